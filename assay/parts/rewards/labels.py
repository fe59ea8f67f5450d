"""Rewards that depend on a prompt's label. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene, TextTask
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import applied, placed, states_of


@dataclass(frozen=True)
class ByLabel(Reward):
    """reward = table[label][outcome], on the last decision: the reward of an outcome depends on the prompt's label.

    The label is the fact `label` of the prompt (a column of the user's file); the outcome is whether the total of
    `reward` is above `threshold`. `table` maps a label to (reward if not, reward if so). A label without an entry
    raises AssayError.
    """

    table: Mapping[str, tuple[float, float]]
    reward: Reward = Verifier()
    label: str = "label"
    threshold: float = 0.5

    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"table": {"": (0.0, 1.0)}, "label": ""},)

    def init(self, scene: Scene) -> State:
        """Returns the state of the reward inside."""
        return states_of({"outcome": self.reward}, scene)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the table's rewards."""
        rewarded, values = applied({"outcome": self.reward}, experience, scene, state)
        is_so = ((values["outcome"] * rewarded.mask).sum(1) > self.threshold).tolist()
        labels = labels_of(rewarded, scene, self.label)
        unknown = sorted(set(labels) - set(self.table))
        if unknown:
            raise AssayError(f"ByLabel.table has no entry for the label '{unknown[0]}' (it has {sorted(self.table)})")
        total = [self.table[label][int(so)] for label, so in zip(labels, is_so, strict=True)]
        return placed(rewarded, torch.tensor(total, device=rewarded.mask.device))


def labels_of(experience: Experience, scene: Scene, name: str) -> list[str]:
    """Returns the fact `name` of each row's prompt as text; the empty name gives every row the empty label."""
    if not name:
        return [""] * len(experience)
    if not isinstance(scene.task, TextTask):
        raise AssayError(f"task '{scene.task.name}' has no labels: it is not a text task. Use a task with prompts")
    rows = scene.task.texts(experience, scene.split)
    missing = next((row for row, told in enumerate(rows) if name not in told), None)
    if missing is not None:
        raise AssayError(f"task '{scene.task.name}': the prompt of row {missing} has no column '{name}'. Add it")
    return [str(row[name]) for row in rows]
