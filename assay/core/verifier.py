"""The reward part that uses the task's own rewards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene

VERIFIED = "reward/verifier"
COMPONENT = "component/"
"""Columns [B] of the numbers that a row's score is made of begin with it; NaN where one does not apply to a row."""


@runtime_checkable
class Metered(Protocol):
    """A task whose playing costs something that no column holds: calls of sessions, time spent waiting for them."""

    def measured(self, split: int) -> Mapping[str, tuple[float, float]]:
        """Returns sum and count of what playing a split has cost since the last call, by metric."""

    def waited(self) -> float:
        """Returns the seconds since the last call in which nothing was decoded for lack of replies."""


def log_components(judged: Experience, scene: Scene) -> None:
    """Logs `reward/NAME`, the mean of each component of the scores over the rows it applies to, and
    `not_applicable/NAME`, the share of the other rows where there are any.
    """
    ended = (judged.terminal | judged.truncated).any(1)
    for column, value_B in judged.extra.items():
        if not column.startswith(COMPONENT):
            continue
        name, applies = column.removeprefix(COMPONENT), ended & ~value_B.isnan()
        if bool(applies.any()):
            scene.log(f"reward/{name}", float(value_B[applies].sum()), float(applies.sum()))
        if not bool(applies[ended].all()):
            scene.log(f"not_applicable/{name}", float((ended & ~applies).sum()), float(ended.sum()))


@dataclass(frozen=True)
class Verifier(Reward):
    """Adds the task's rewards to experience: the verifier's outcome of each completion, or the rewards of the steps.

    The first reward part of a recipe by default. Writes `score` [B], the task's own score of each row, and keeps its
    rewards as the column `reward/verifier`: rows that have it are not verified again. A row with an infrastructure
    fault is excluded from training.
    """

    writes: ClassVar[Mapping[str, str]] = {
        "score": "B: the task's own score of the row",
        VERIFIED: "BT: the verifier's reward, kept so that it runs once",
    }

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with rewards; rewards that were verified before are restored from their column."""
        if VERIFIED in experience.extra:
            return experience.with_columns(reward=experience.extra[VERIFIED])
        judged = scene.task.judge(experience, scene.split)
        log_components(judged, scene)
        if isinstance(scene.task, Metered):
            for name, (value, count) in scene.task.measured(scene.split).items():
                scene.log(name, value, count)
        is_verified = judged.reward is not experience.reward  # step rewards are in the record already: nothing to keep
        return judged.add({VERIFIED: judged.reward}) if is_verified else judged
