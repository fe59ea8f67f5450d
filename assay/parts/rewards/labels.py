"""Rewards that depend on a prompt's label, a fact of the prompt. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
    """reward = `table[label][verdict]`, on the last decision: the reward of a verdict depends on the prompt's label.

    The label is the fact `label` of the prompt (a column of the user's file). The verdict is the name of the first of
    `rules` whose total is above `threshold`, else `otherwise`: abstained, right, wrong. Verdicts that a label's row
    leaves out are worth 0. A label without a row raises AssayError. Logs the share of rows for which a rule holds as
    `outcome/LABEL`, and that of each verdict as `verdict/LABEL/VERDICT`. Degenerate: with `label` empty every row has
    the empty label, and the reward depends on the verdict alone. Source: by definition. Assumes that the file names a
    label.
    """

    table: Mapping[str, Mapping[str, float]]
    rules: Mapping[str, Reward] = field(default_factory=lambda: {"right": Verifier()})
    otherwise: str = "wrong"
    label: str = "label"
    threshold: float = 0.5
    reads_shares: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"table": {"": {"right": 1.0, "wrong": -0.5}}, "label": ""},)

    def __post_init__(self) -> None:
        names = {*self.rules, self.otherwise}
        unknown = sorted({verdict for row in self.table.values() for verdict in row} - names)
        if unknown:
            raise AssayError(f"ByLabel.table has the verdict '{unknown[0]}', which no rule gives ({sorted(names)})")

    def init(self, scene: Scene) -> State:
        """Returns the rules' states; refuses a task whose prompts lack the label, or have another one."""
        check_labels(scene, self.label, self.table)
        return states_of(self.rules, scene)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        rewarded, values = applied(self.rules, experience, scene, state)
        holds = {name: ((value * rewarded.mask).sum(1) > self.threshold).tolist() for name, value in values.items()}
        verdicts = [
            next((name for name in self.rules if holds[name][row]), self.otherwise) for row in range(len(rewarded))
        ]
        labels = labels_of(rewarded, scene, self.label, self.table)
        log_by_label("outcome", labels, [verdict != self.otherwise for verdict in verdicts], rewarded, scene)
        for name in (*self.rules, self.otherwise):
            found = [f"{label}/{name}" if label else name for label in labels]
            log_by_label("verdict", found, [verdict == name for verdict in verdicts], rewarded, scene)
        total = [self.table[label].get(verdict, 0.0) for label, verdict in zip(labels, verdicts, strict=True)]
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
