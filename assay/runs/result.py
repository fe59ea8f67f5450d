"""The result of a run: the policy, the curves, the scores before and after, and what its README says."""

from __future__ import annotations

import html
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Certified
from assay.core.slots import Task
from assay.engine import evaluation
from assay.engine.guards.correctness import Alarm, Alarms
from assay.runs import plot
from assay.runs.deploy import with_predict
from assay.runs.notebook import html_table, svg_curves
from assay.runs.plan import Plan
from assay.runs.progress import Noted
from assay.runs.ranges import range_of
from assay.statistics.intervals import Change, Estimate, measured_change


@dataclass
class Run:
    """A finished (or loaded) run: the policy, the curves, the scores before and after, and the folder."""

    folder: Path
    recipe: Recipe
    task: Task
    models: Mapping[str, Any]
    curves: list[dict[str, Any]]
    scores_before: np.ndarray
    scores_after: np.ndarray
    alarms: list[Alarm]
    certificate: Certified | None = None
    ended: str = ""
    """Why training stopped before its last step; "" if it did not."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Time by phase: sample, reward, credit, update, evaluate, save."""
    plan: Plan | None = field(default=None, repr=False)
    """What decided its numbers; None for one that was only read."""

    @property
    def policy(self) -> Any:
        """Returns the policy to deploy: the actor or its wrapper; a control policy has `predict(observation)`."""
        return with_predict(self.recipe.policy(self.models), self.task)

    @property
    def before(self) -> Estimate:
        """Returns mean held-out score before training, with its interval."""
        return self.change.before

    @property
    def after(self) -> Estimate:
        """Returns mean held-out score after training, with its interval."""
        return self.change.after

    @property
    def change(self) -> Change:
        """Returns before, after, and the paired change on the same held-out starts; a prompt counts once."""
        both, same = (self.scores_before, self.scores_after), evaluation.labels(self.task, len(self.scores_after))
        return measured_change("held-out score", *both, paired=True, labels=same, bounds=range_of(self.task))

    def __repr__(self) -> str:
        """Returns the scores before and after, and the folder, in a sentence."""
        change = self.change
        scores = f"held-out score {change.before} before, {change.after} after, change {change.change}"
        return f"<{self.recipe.name} on {self.task.name}: {scores}; {self.folder}>"

    def _repr_html_(self) -> str:
        """Returns the scores before and after, the alarms and the curve, for a notebook."""
        change = self.change
        row = [str(change.before), str(change.after), str(change.change)]
        table = html_table(["before", "after", "change (95 % intervals)"], [row])
        alarms = "".join(f"<p>alarm: {html.escape(alarm.message)}</p>" for alarm in self.alarms[:3])
        title = f"{self.recipe.name} on {self.task.name}: held-out score"
        return table + alarms + svg_curves({self.recipe.name: self.curve("evaluation")}, title)

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Returns (steps, values) of one metric."""
        rows = [row for row in self.curves if row.get(name) is not None]
        return [row["step"] for row in rows], [row[name] for row in rows]


def draw_curve(run: Run) -> None:
    """Draws learning_curve.png in the run folder; skipped without matplotlib, which the command line reports."""
    series = [plot.curve(run.recipe.name, "evaluation", [run.curves])]
    title = f"{run.recipe.name} on {run.task.name}"
    with suppress(AssayError):
        plot.learning_curve(run.folder / "learning_curve.png", series, title=title, subtitle="held-out score")


def spoken(certificate: Certified | None) -> str:
    """Returns a certificate's verdict as a sentence, or "" without a certificate."""
    if certificate is None:
        return ""
    return f" {'Certified' if certificate.holds else 'NO SOLUTION, do not use this policy'}: {certificate.statement}."


def noted(alarms: Alarms) -> list[Noted]:
    """Returns alarms by guard: the latest message and the count."""
    return [
        Noted(same[-1].message, alarms.counts[guard], any(alarm.stop for alarm in same))
        for guard in alarms.counts
        if (same := [alarm for alarm in alarms.kept if alarm.guard == guard])
    ]
