"""Rewards that depend on a prompt's label, a fact of the prompt. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import DemonstratedTask, Reward, Scene, TextTask
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import applied, placed, states_of

NUM_CHECKED = 32
"""Prompts whose labels are checked before a run."""


@dataclass(frozen=True)
class ByLabel(Reward):
    """reward = `table[label][outcome]`, on the last decision: the reward of an outcome depends on the prompt's label.

    The label is the fact `label` of the prompt (a column of the user's file); the outcome is whether the total of
    `reward` is above `threshold`. `table` maps a label to (reward if not, reward if so). A label without an entry
    raises AssayError. Logs the share of rows with the outcome as `outcome/LABEL`.
    """

    table: Mapping[str, tuple[float, float]]
    reward: Reward = Verifier()
    label: str = "label"
    threshold: float = 0.5

    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"table": {"": (0.0, 1.0)}, "label": ""},)

    def init(self, scene: Scene) -> State:
        """Returns the state of the reward inside; refuses a task whose prompts lack the label, or have another one."""
        check_labels(scene, self.label, self.table)
        return states_of({"outcome": self.reward}, scene)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the table's rewards."""
        rewarded, values = applied({"outcome": self.reward}, experience, scene, state)
        is_so = ((values["outcome"] * rewarded.mask).sum(1) > self.threshold).tolist()
        labels = labels_of(rewarded, scene, self.label, self.table)
        log_by_label("outcome", labels, is_so, rewarded, scene)
        total = [self.table[label][int(so)] for label, so in zip(labels, is_so, strict=True)]
        return placed(rewarded, torch.tensor(total, device=rewarded.mask.device))


def labels_of(experience: Experience, scene: Scene, name: str, known: Collection[str] | None = None) -> list[str]:
    """Returns the fact `name` of each row's prompt as text; the empty name gives every row the empty label.

    Raises AssayError for a prompt without the fact, and for a label that is not among the `known` ones.
    """
    labels = [""] * len(experience)
    if name:
        if not isinstance(scene.task, TextTask):
            raise AssayError(f"task '{scene.task.name}' has no labels: it is not a text task. Use a task with prompts")
        rows = scene.task.texts(experience, scene.split)
        missing = next((row for row in rows if name not in row), None)
        if missing is not None:
            raise AssayError(
                f"task '{scene.task.name}': the prompt '{missing['prompt'][:60]}' has no column '{name}'. Add it to "
                "every line of the file"
            )
        labels = [str(row[name]) for row in rows]
    unknown = [] if known is None else sorted(set(labels) - set(known))
    if unknown and known is not None:
        raise AssayError(
            f"task '{scene.task.name}': the reward has no entry for the {name or 'label'} '{unknown[0]}' (it has "
            f"{sorted(known)}). Add one, or rename the {name or 'label'}"
        )
    return labels


def check_labels(scene: Scene, name: str, known: Collection[str]) -> None:
    """Raises AssayError if one of the task's first prompts has no label, or one that is not known; a part's `init`
    calls it, so that this happens before anything is spent. Outside of a run there is no task, and nothing to check.
    """
    if name and isinstance(scene.task, DemonstratedTask):
        labels_of(scene.task.demonstrate(np.arange(NUM_CHECKED), 0), scene.given(split=0), name, known)


def log_by_label(
    metric: str, labels: Sequence[str], values: Sequence[float], rewarded: Experience, scene: Scene
) -> None:
    """Logs the mean of a number over the rows of each label that have a decision, as METRIC/LABEL."""
    for label, value, is_there in zip(labels, values, rewarded.mask.any(1).tolist(), strict=True):
        scene.log(f"{metric}/{label}" if label else metric, float(value) * is_there, float(is_there))
