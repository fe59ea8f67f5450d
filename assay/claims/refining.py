"""A policy that answers by a script, and what rollouts that refine its answers gather, for claims of such methods.

Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from assay.core.recipe import Recipe
from assay.core.record import Experience, Origin
from assay.core.slots import Scene
from assay.core.verifier import Verifier
from assay.ops.decoded import Written
from assay.rollouts.completions import Ends
from assay.tasks.language.prompts import PromptTask

G = 8
"""Members of a group."""


@dataclass(frozen=True)
class Scripted:
    """A policy whose k-th answer to a text, in one call, is the k-th of its list; log-probabilities are -1/2."""

    task: PromptTask
    said: Callable[[str], Sequence[str]]
    not_a_part = "a policy"

    def answers(
        self, prompts: Sequence[Sequence[int]], starts: np.ndarray, seeds: np.ndarray, ends: Ends, **_: Any
    ) -> Written:
        """Returns the answers, each with the end token."""
        seen: dict[str, int] = {}
        rows = []
        for prompt in prompts:
            text = self.task.tokenizer.decode(prompt)
            place = seen[text] = seen.get(text, -1) + 1
            rows.append([*self.task.tokenizer.encode(self.said(text)[place]), self.task.tokenizer.vocabulary.eos])
        length = torch.tensor([len(row) for row in rows])
        tokens = torch.tensor([[*row, *[0] * (int(length.max()) - len(row))] for row in rows])
        return Written(tokens, torch.full(tokens.shape, -0.5), length, torch.ones(len(rows), dtype=torch.bool))


def wrong_rows(
    ours: Recipe,
    task: PromptTask,
    said: Callable[[str], Sequence[str]],
    groups: Mapping[int, Sequence[tuple[str, int]]],
    discarded: float,
) -> float:
    """Returns how many rows of starts 1, 0, 2, ... are not the expected (answer, sample): tokens, decisions, marks,
    origins; plus the distance of what was thrown away.
    """
    assert ours.rollout is not None
    scene = Scene(task, actor=Scripted(task, said), starts=np.array(list(groups)))

    def reward(rows: Experience) -> Experience:
        for part in ours.rewards or (Verifier(),):
            rows = part(rows, scene)
        return rows

    scene = scene.given(reward=reward)
    with torch.no_grad():
        rows = ours.rollout(scene, ours.rollout.init(scene))
    expected = [(start, *one) for start, own in groups.items() for one in own]
    if len(rows) != len(expected) or rows.source is None:
        return 99.0
    wrong = 0
    for row, (start, answer, sample) in enumerate(expected):
        item, vocabulary = task.items.item(start, 0), task.tokenizer.vocabulary
        before = [vocabulary.bos, *task.tokenizer.encode(item.prompt)]
        after = [*task.tokenizer.encode(answer), vocabulary.eos]
        shown = rows.context["tokens"][row, : len(before) + len(after)].tolist()
        decided = rows.mask[row].nonzero().flatten().tolist()
        is_new = sample >= 2**20
        wrong += shown != [*before, *after] or decided != list(range(len(before), len(before) + len(after)))
        wrong += int(rows.column("sample")[row]) != sample or int(rows.column("start")[row]) != start
        wrong += int(rows.source[row]) != int(Origin.HINTED if is_new else Origin.POLICY)
        wrong += bool(rows.column("hinted")[row]) != is_new
        wrong += not abs(float(rows.reward[row].sum() - rows.column("score")[row])) <= 1e-6
    return float(wrong) + abs(sum(value for value, _ in scene.metrics.get("discarded_decisions", [])) - discarded)


def with_refined(data: Experience) -> Experience:
    """Returns the experience with every fourth row marked as written after feedback."""
    is_new = torch.arange(len(data)) % 4 == 2
    return data.with_columns(source=torch.where(is_new, int(Origin.HINTED), int(Origin.POLICY)))


def is_refined(data: Experience) -> torch.Tensor:
    """Returns whether a row is, [B, 1]."""
    if data.source is None:
        return torch.zeros(len(data), 1, dtype=torch.bool)
    return (data.source != int(Origin.POLICY)).unsqueeze(1)


def length_of(*answers: str) -> float:
    """Returns the decisions of answers, in bytes, each with its end token."""
    return float(sum(len(one.encode()) + 1 for one in answers))
