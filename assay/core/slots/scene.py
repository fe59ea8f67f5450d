"""Everything that a part may use besides the experience it works on: no globals, no files, no clock.

Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need, Progress
from assay.core.slots.tasks import Task

NO_STARTS = np.empty(0, dtype=np.int64)

DISCARDED = "discarded_decisions"
"""The metric under which a rollout logs decisions that it sampled and does not return: they count as spent."""

OnRows = Callable[[Any, Experience], Tensor]
"""function(model, rows): a tensor whose first axis is the rows."""


def logp_of(actor: Any, rows: Experience) -> Tensor:
    """Returns an actor's log-probabilities of the recorded decisions, [B, T]: for `Models.over`, and for gathered rows,
    which may be on another device than the actor.
    """
    weights = next(actor.parameters(), None) if isinstance(actor, nn.Module) else None
    there = rows if weights is None or weights.device == rows.mask.device else rows.to(weights.device)
    logp: Tensor = actor.score(there, frozenset({Need.LOGP})).logp
    return logp.to(rows.mask.device)


class Models(Protocol):
    """The recipe's models by name (`actor`, critics, target networks), used without gradient."""

    def model(self, name: str) -> Any:
        """Returns the model. Raises AssayError with the names of the existing models if it is missing."""

    def over(self, name: str, experience: Experience, function: OnRows) -> Tensor:
        """Evaluates function(model, rows) on each micro-batch without gradient and joins the results in row order."""


class NoModels:
    """The models of a part that is called outside of a run: none."""

    def model(self, name: str) -> Any:
        """Raises AssayError: there are no models."""
        raise AssayError(f"a part asks for the model '{name}' outside of a run. Pass a scene that has models")

    def over(self, name: str, experience: Experience, function: OnRows) -> Tensor:
        """Raises AssayError: there are no models."""
        return self.model(name)


def not_rewarded(experience: Experience) -> Experience:
    """Returns the experience unchanged: the reward function of a scene outside of a run."""
    return experience


@dataclass(frozen=True)
class Scene:
    """The task, the models (no gradient), randomness, progress and the split, for one call of one part.

    `draw` is this part's own coordinate: two parts, or one part at two steps, never share random numbers. Values
    logged with `log` appear in the step's metrics. The other fields are set for some slots only: `actor` (the acting
    policy), `starts` and `reward` for rollouts, `num_starts` for curricula, `fresh` for sources, `handed` in `init`.
    """

    task: Task = None  # type: ignore[assignment]
    models: Models = field(default_factory=NoModels)
    draw: Draw = Draw(0)
    progress: Progress = Progress()
    split: int = 0
    actor: Any = None
    starts: np.ndarray = field(default_factory=lambda: NO_STARTS)
    num_starts: int = 0
    fresh: Experience | None = None
    reward: Callable[[Experience], Experience] = not_rewarded
    handed: Mapping[str, Any] = field(default_factory=dict)
    """Data and tables from earlier phases, by name; the values are trees of plain values."""
    metrics: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """(sum, count) pairs of what parts logged in this step, by name."""

    def log(self, name: str, value: float, count: float = 1.0) -> None:
        """Adds (value, count) to the step's metric `name`; a step shows the sum of values over the sum of counts."""
        self.metrics.setdefault(name, []).append((float(value), float(count)))

    def given(self, **changes: Any) -> Scene:
        """Returns the scene with these fields replaced; logged metrics stay shared."""
        return replace(self, **changes)


ALONE = Scene()
"""The scene of a part that is called by itself, in a notebook or a test: no task, no models, seed 0."""
