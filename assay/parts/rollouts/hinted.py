"""Sampling again with a hint in the prompt where the policy failed. Axes: B rows, T columns.

Hints appear in rollouts only: the policy is evaluated and exported on the task's own prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, Origin, State, concatenate
from assay.core.slots import DemonstratedTask, PromptedTask, Rollout, Scene
from assay.core.slots.scene import DISCARDED
from assay.ops import groups
from assay.parts.rollouts.episodes import Around, Episodes, group_rows


class Hint(Protocol):
    """Writes prompts that add to the task's own. Law: one prompt for each start, from start and state alone."""

    def __call__(self, scene: Scene, starts: np.ndarray) -> list[str]:
        """Returns a prompt for each start of `scene.task`."""


@dataclass(frozen=True)
class DemonstrationPrefix:
    """The task's prompt followed by the first `share` of the characters of its demonstration.

    Degenerate: share 0 is the task's prompt; share 1 shows the whole solution.
    """

    share: float = 0.5
    not_a_part: ClassVar[str] = "a setting of Hinted"

    def __call__(self, scene: Scene, starts: np.ndarray) -> list[str]:
        """Returns prompt and prefix of each start."""
        task = scene.task
        if not isinstance(task, DemonstratedTask) or not isinstance(task, PromptedTask):
            raise AssayError(f"task '{task.name}' has no demonstrations to take a hint from. Use another hint")
        shown = task.demonstrate(starts, scene.split)
        told = [row["completion"] for row in task.texts(shown, scene.split)]
        return [
            prompt + text[: round(self.share * len(text))]
            for prompt, text in zip(task.prompts(starts, scene.split), told, strict=True)
        ]


@dataclass(frozen=True)
class Hinted(Around):
    """Gathers and rewards, then samples the groups that failed again from hinted prompts.

    A group failed if no member's outcome is above `threshold`. Its rows are replaced by `group_size` new ones,
    sampled with the hint. `onto_prompt` moves them onto the task's own prompt: training uses the bare prompt, and the
    recorded log-probabilities stay those under the hint (an off-policy sample). `hinted` [B] marks them, and their
    `source` is HINTED. Degenerate: without failed groups it equals `gather`.
    """

    gather: Rollout = Episodes()
    hint: Hint = DemonstrationPrefix()
    group_size: int = 8
    threshold: float = 0.0
    onto_prompt: bool = True
    breaks: ClassVar[dict[str, str]] = {
        "recorded": "rows on the bare prompt keep the log-probability that was recorded under the hint",
    }
    writes: ClassVar[Mapping[str, str]] = {"hinted": "B: the policy saw more than the task's prompt when it acted"}

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if the task has no prompts."""
        if not isinstance(scene.task, PromptedTask):
            raise AssayError(f"task '{scene.task.name}' has no prompts to put a hint into. Use rollout Episodes()")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns solved groups unchanged and failed ones sampled again, all rewarded."""
        task = scene.task
        assert isinstance(task, PromptedTask)
        first = scene.reward(self.gather(scene, state))
        first = first.add({"hinted": torch.zeros(len(first), dtype=torch.bool)})
        failed = ~groups.any_of(groups.outcome(first) > self.threshold, groups.row_groups(first))
        scene.log("failed_groups", float(failed.sum()), float(len(first)))
        scene.log(DISCARDED, float(first.mask[failed].sum()))
        starts = np.unique(first.column("start")[failed].numpy())
        if not len(starts):
            return first
        rows, samples = group_rows(np.arange(len(starts)), self.group_size)
        told = self.hint(scene, starts)
        again = task.play_prompts(
            scene.actor,
            [told[row] for row in rows],
            starts[rows],
            samples + FIRST_AGAIN,
            scene.draw,
            split=scene.split,
        )
        again = scene.reward(again).add({"hinted": torch.ones(len(again), dtype=torch.bool)})
        if self.onto_prompt:
            again = task.onto(again, task.prompts(starts[rows], scene.split))
        kept, taught = with_origin(first.rows(~failed), Origin.POLICY), with_origin(again, Origin.HINTED)
        return concatenate([kept, taught]) if len(kept) else taught


FIRST_AGAIN = 1 << 20
"""First sample number of rows that are sampled again, so that they share no random numbers with the first ones."""


def with_origin(rows: Experience, origin: Origin) -> Experience:
    """Sets the `source` of the rows."""
    return rows.with_columns(source=torch.full((len(rows),), int(origin)))
