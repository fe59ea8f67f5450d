"""Sampling again with a part of the solution where the policy failed. Axes: B rows, T columns.

Hints appear in rollouts only: the policy is evaluated and exported on the task's own prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Origin, State, concatenate
from assay.core.slots import PromptedTask, Rollout, Scene
from assay.core.slots.scene import DISCARDED
from assay.ops import groups
from assay.parts.rollouts.episodes import Around, Episodes, group_rows
from assay.parts.rollouts.hints import Hint, InAnswer, InPrompt

FIRST_AGAIN = 1 << 20
"""Distance of the sample numbers of rows that are sampled again from the first ones: they share no random numbers."""


def hinted_groups(
    scene: Scene, hint: Hint, starts: np.ndarray, shares: np.ndarray, group_size: int, visit: int = 1
) -> Experience:
    """Returns a rewarded group of each start that saw its share of the solution, with `hinted` true.

    Random numbers are those of samples `visit` * FIRST_AGAIN and on.
    """
    place, samples = group_rows(np.arange(len(starts)), group_size)
    played = hint.play(scene, starts[place], shares[place], samples + visit * FIRST_AGAIN)
    rows = scene.reward(played).add({"hinted": torch.ones(len(played), dtype=torch.bool)})
    return with_origin(rows, Origin.HINTED)


def with_origin(rows: Experience, origin: Origin) -> Experience:
    """Sets the `source` of the rows."""
    return rows.with_columns(source=torch.full((len(rows),), int(origin)))


def unhinted(rows: Experience) -> Experience:
    """Returns rows that the policy sampled by itself, marked as such."""
    return with_origin(rows.add({"hinted": torch.zeros(len(rows), dtype=torch.bool)}), Origin.POLICY)


def together(first: Experience, again: Experience) -> Experience:
    """Returns both; rows without given decisions get the columns `answer` and `elapsed` of those that have them."""
    if "answer" in again.extra and "answer" not in first.extra:
        first = first.add({"answer": first.mask, "elapsed": first.mask.sum(1)})
    return concatenate([first, again])


def failed_groups(rows: Experience, threshold: float) -> Tensor:
    """Returns whether no score of a row's group is above the threshold, bool [B].

    A group without a decision (infrastructure faults) has not failed: nothing is known of it.
    """
    by_group, there = groups.row_groups(rows), rows.mask.any(1)
    score = rows.column("score") if "score" in rows.extra else groups.outcome(rows)
    return ~groups.any_of((score > threshold) & there, by_group) & groups.any_of(there, by_group)


def in_order(rows: Experience, starts: np.ndarray) -> Experience:
    """Returns the rows in the order of the starts, those of one start as they are."""
    place = {start: number for number, start in reversed(list(enumerate(starts.tolist())))}
    order = np.argsort([place[start] for start in rows.column("start").tolist()], kind="stable")
    return rows.rows(torch.from_numpy(order))


@dataclass(frozen=True)
class Hinted(Around):
    """Gathers and rewards, then samples groups that failed again with more and more of the solution.

    A group failed if no member's score is above `threshold`. For each share of the `ladder` in turn, the groups that
    have failed so far are replaced by `group_size` rows that saw that share, whatever these score. `hinted` [B] marks
    them, and their `source` is HINTED. Rows that are replaced count as spent. They are trained after the prompt that
    the policy saw; `onto_prompt` moves them onto the task's own prompt: the recorded log-probabilities stay those under
    the hint (an off-policy sample). Degenerate: without failed groups, or a ladder, it equals `gather`. Source: GHPO,
    2025.
    Assumes demonstrations.
    """

    gather: Rollout = Episodes()
    hint: Hint = InPrompt()
    ladder: tuple[float, ...] = (0.5,)
    group_size: int = 8
    threshold: float = 0.0
    onto_prompt: bool = False
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"hint": InAnswer()}, {"onto_prompt": True})
    writes: ClassVar[Mapping[str, str]] = {"hinted": "B: the policy saw more than the task's prompt when it acted"}

    def __post_init__(self) -> None:
        if any(not 0.0 < share <= 1.0 for share in self.ladder):
            raise AssayError(f"ladder is {self.ladder}. Use shares of the solution above 0 and at most 1")
        if self.onto_prompt and isinstance(self.hint, InAnswer):
            raise AssayError("onto_prompt moves answers to the bare prompt, and those of InAnswer() follow it already")

    @property
    def breaks(self) -> dict[str, str]:
        """Laws that rows on another prompt do not obey, with the reason."""
        what = "rows on the bare prompt keep the log-probability that was recorded under the hint"
        return {"recorded": what} if self.onto_prompt else {}

    @property
    def by_start(self) -> bool:
        return self.gather.by_start

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if there is nothing to show."""
        self.hint.check(scene.task, "Hinted")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns solved groups unchanged and failed ones sampled again, all rewarded, in the order of the starts."""
        rows = unhinted(scene.reward(self.gather(scene, state)))
        for rung, share in enumerate(self.ladder):
            failed = failed_groups(rows, self.threshold)
            scene.log(f"failed_groups/{rung}", float(failed.sum()), float(len(rows)))
            starts = np.unique(rows.column("start")[failed].numpy())
            if not len(starts):
                continue
            scene.log(DISCARDED, float(rows.mask[failed].sum()))
            shares = np.full(len(starts), share)
            again = hinted_groups(scene, self.hint, starts, shares, self.group_size, rung + 1)
            if self.onto_prompt:
                assert isinstance(scene.task, PromptedTask)
                again = scene.task.onto(again, scene.task.prompts(again.column("start").numpy(), scene.split))
            kept = rows.rows(~failed)
            rows = together(kept, again) if len(kept) else again
        return in_order(rows, scene.starts)
