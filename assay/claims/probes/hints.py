"""Policies that need a known share of each solution, and files that have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from assay.claims.testbeds.language.enumerable import SIGNS
from assay.claims.testbeds.language.places import reading
from assay.claims.probes.completions import completed
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import Models, Scene
from assay.core.slots.scene import NoModels
from assay.core.verifier import Verifier
from assay.models.bodies.reading_table import ReadingTable
from assay.models.model import Policy
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import TextFile

TASK = reading(4, 5)
"""Five prompts with codes of four digits."""


def code_of(prompt: int) -> str:
    """Returns the code of a prompt."""
    return TASK.items.item(prompt, 0).answer


def half_known(wrong: bool = False, unsure: bool = False) -> Any:
    """Returns a policy without chance that writes prompt k with its first k digits wrong (all, if `wrong`), and copies
    what it is shown: prompt k is right after k digits of its code. If `unsure`, prompt 0 is right half of the time.
    """
    actor: Any = Policy(ReadingTable(copy=200.0)).build(TASK.spec)
    table, encode = actor.table, TASK.tokenizer.encode
    with torch.no_grad():
        for prompt in range(5):
            for place, digit in enumerate(code_of(prompt)):
                token = encode(str((int(digit) + (wrong or place < prompt)) % 10))[0]
                sign = torch.tensor(encode(SIGNS[prompt])[0])
                row = table.row_of(sign, torch.tensor(2 + place), torch.zeros(0, dtype=torch.int64))
                table.table[row, token - TASK.tokenizer.vocabulary.eos - 1] = 100.0
                if unsure and prompt == place == 0:
                    table.table[row, (token - 2) % 10] = 100.0
    return actor


def told(prompt: int, shown: int, wrong: int) -> tuple[list[int], list[int]]:
    """Returns the tokens of a prompt with the first `shown` digits of its code, and of an answer whose digits from
    there to `wrong` are wrong.
    """
    code, encode = code_of(prompt), TASK.tokenizer.encode
    said = "".join(str((int(digit) + (shown <= place < wrong)) % 10) for place, digit in enumerate(code))
    hint = f"\n\nhint: {code[:shown]}\n" if shown else ""
    return [TASK.tokenizer.vocabulary.bos, *encode(SIGNS[prompt] + hint)], encode(said)


def hint_scene(starts: tuple[int, ...], actor: Any = None, models: Models = NoModels()) -> Scene:
    """Returns a scene of these prompts with rewards by the verifier, and the policy `half_known` unless given."""
    scene = Scene(TASK, models, actor=actor or half_known(), starts=np.array(starts))
    return scene.given(reward=lambda rows: Verifier()(rows, scene))


def gathered_in(recipe: Recipe, scene: Scene) -> Experience:
    """Returns what the recipe's rollout gathers from a new start in this scene."""
    assert recipe.rollout is not None
    with torch.no_grad():
        return recipe.rollout(scene, recipe.rollout.init(scene))


def differs(rows: Experience, row: int, prompt: int, shown: int, wrong: int) -> bool:
    """Returns whether a row is not the prompt after `shown` digits of its code, then the decisions of `told`."""
    seen, said = told(prompt, shown, wrong)
    tokens = rows.context["tokens"][row, : len(seen) + len(said)].tolist()
    decided = rows.mask[row].nonzero().flatten().tolist()
    return tokens != [*seen, *said] or decided != list(range(len(seen), len(seen) + len(said)))


def file_of(*solutions: tuple[str, str], worked: bool = True) -> PromptTask:
    """Returns the task of a file with these (solution, answer); prompts are their numbers."""
    rows = tuple(Item(f"{place}", answer, text) for place, (text, answer) in enumerate(solutions))
    return PromptTask("file", TextFile("", "", 0.0, 0, rows, worked=worked), CharacterTokenizer(), 8, 120)


BARE_FILE = file_of(("18", "18"), ("7", "7"), worked=False)
"""A file whose answers stand alone."""


class Told:
    """A rollout that returns given rows."""

    num_starts, has_logp, writes, by_start = 3, True, (), False

    def __init__(self, rows: Experience) -> None:
        self.rows = rows

    def init(self, scene: Scene) -> dict[str, object]:
        """Returns no state."""
        return {}

    def __call__(self, scene: Scene, state: object) -> Experience:
        """Returns the rows."""
        return self.rows


def partly_right(*given: tuple[int, int]) -> Experience:
    """Returns an answer for each (prompt, number of right digits before wrong ones), with probability 1/2 a token;
    neighbours have other wrong digits.
    """
    said = []
    for row, (prompt, kept) in enumerate(given):
        code = code_of(prompt)
        said.append(code[:kept] + "".join(str((int(digit) + 1 + row % 3) % 10) for digit in code[kept:]))
    return completed(TASK, said, [prompt for prompt, _ in given], prob=[0.5] * len(said))
