"""Pools of prompts: what a table of visits holds after given rows, and the order of a pool's prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from assay.claims.probes.episodes import outcomes
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Origin, Progress, State
from assay.core.slots import Scene
from assay.parts.curricula.pool import Pool
from assay.parts.rollouts.revisits import FAR
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.addition import addition
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.items import Item
from assay.tasks.language.textfile import TextFile


def prompts_of(*prompts: str, **facts: Sequence[object]) -> PromptTask:
    """Returns the task of a file with these prompts, all answered by "1", and these facts of each row."""
    own = [{name: values[row] for name, values in facts.items()} for row in range(len(prompts))]
    rows = tuple(Item(prompt, "1", "1", one) for prompt, one in zip(prompts, own, strict=True))
    return PromptTask("file", TextFile("", "", 0.0, 0, rows), CharacterTokenizer(), 99, 9)


def visits(starts: Sequence[int], groups: Sequence[int], rewards: Sequence[float]) -> Experience:
    """Returns answers to prompts with these starts, groups and rewards."""
    start, group = torch.tensor(starts), torch.tensor(groups)
    return replace(outcomes(*rewards), group=group).add({"start": start})


def pool_state(recipe: Recipe, scene: Scene, *shares: Sequence[float]) -> tuple[Pool, State]:
    """Returns the recipe's pool, and its state after visits of each prompt with these shares of right answers."""
    pool = recipe.curriculum
    assert isinstance(pool, Pool), recipe.name
    state = pool.init(scene)
    given = [list(own) for own in shares]
    return pool, state | {"visits": given + state["visits"][len(given) :]}


def wrong_table(recipe: Recipe) -> float:
    """Returns how many entries of a pool are wrong: which prompts are in it, of files and of a generator, and what it
    remembers of two visits in one batch, a row without a decision, one that another policy wrote, one of a prompt that
    is not in the pool, and an outcome of exactly 1/2.
    """
    pool = recipe.curriculum
    assert isinstance(pool, Pool)
    file = Scene(prompts_of("a", "b", "a", "c", "d"))
    sizes = [(0, [0, 1, 3, 4]), (3, [0, 1]), (9, [0, 1, 3, 4])]
    wrong = sum(replace(pool, size=size).init(file)["starts"].tolist() != found for size, found in sizes)
    sums = Scene(addition(3))
    wrong += replace(pool, size=5).init(sums)["starts"].tolist() != [*range(5)]
    wrong += len(replace(pool, size=0).init(sums)["starts"]) != 256
    whole = replace(pool, size=0)
    state = whole.init(file)
    rows = visits([0, 0, 0, 0, 0, 1, 1, 1, 2, 3], [0, 0, 0, FAR, FAR, 1, 1, 1, 2, 3], [1, 0, 0.5, 1, 1, 1, 1, 0, 1, 0])
    there = torch.tensor([True] * 7 + [False] + [True] * 2).unsqueeze(1)
    source = torch.tensor([Origin.POLICY] * 5 + [Origin.HINTED, *[Origin.POLICY] * 4])
    for given in (replace(rows, mask=there, source=source), visits([0], [0], [1.0])):
        whole.observe(given, file, state)
    expected = [[1 / 3, 1.0, 1.0], [1.0], [0.0], []]
    return float(wrong + (not_near(state["visits"], expected)))


def not_near(found: Sequence[Sequence[float]], expected: Sequence[Sequence[float]]) -> int:
    """Returns how many lists differ by more than rounding."""
    pairs = zip(found, expected, strict=True)
    return sum(len(one) != len(other) or not np.allclose(one, other, atol=1e-6) for one, other in pairs)


def chosen(recipe: Recipe, scene: Scene, state: State, num: int, calls: int = 1) -> list[int]:
    """Returns the starts that a pool proposes in several calls, of `num` each."""
    assert recipe.curriculum is not None
    progress = [Progress(step, 1000) for step in range(calls)]
    return [
        int(start)
        for one in progress
        for start in recipe.curriculum(scene.given(num_starts=num, progress=one, draw=Draw(0, (one.step,))), state)
    ]


def wrong_passes(starts: Sequence[int], among: Sequence[int]) -> float:
    """Returns how many passes do not have each of these starts once, and how many have the order of the one before."""
    size = len(among)
    passes = [list(starts[begin : begin + size]) for begin in range(0, len(starts) - size + 1, size)]
    again = sum(one == before for before, one in zip(passes, passes[1:], strict=False))
    return float(sum(sorted(one) != sorted(among) for one in passes) + again + (not passes))
