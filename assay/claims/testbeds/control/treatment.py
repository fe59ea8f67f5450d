"""A patient is given two drugs: a dose that acts late and raises the pressure, and a relief that lowers it.

    effect   <- effect + 0.3 (dose - effect)                            a dose acts over the decisions that follow
    pressure <- pressure + 0.4 (1.4 effect - 0.6 relief - pressure)     above 0.7 a decision costs 1
    severity <- severity + 0.02 - 0.1 effect + poison max(0, dose + relief - 0.9) + noise;   reward = -severity

The log is that of three clinicians, a cautious, a usual and a bold one. None gives a dose above 0.65 or a relief above
0.2, so the log says that much of both heals fast at a low pressure, and does not show that together they are poison. A
bold clinician's patients pass the limit of pressure: the log has what heals faster and costs, too. Held-out episodes
are true patients.

Axes: N patients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import at_least, name_with_dials
from assay.core.record import Draw, Experience, Origin, concatenate
from assay.core.spaces import Box, Context, Spec
from assay.ops import random
from assay.tasks.control.costs import costed
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

HORIZON = 20
LIMIT, TOXIC = 0.7, 0.9
MOST_GIVEN = (0.65, 0.2)
LEVELS = (-0.15, 0.0, 0.2)
"""What the three clinicians give more of the dose, or less, than the usual one."""


@dataclass(frozen=True)
class Patient:
    """Rows of a state: severity, pressure, effect of the doses so far."""

    poison: float
    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = True
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Starts untreated, at a severity from 0.6 to 1."""
        severity, pressure = 0.6 + 0.4 * uniform[0], 0.2 * uniform[1]
        return np.stack([severity, pressure, np.zeros_like(severity)])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gives one dose of each; no patient dies."""
        assert uniform is not None
        dose, relief = action.reshape(-1, 2).astype(np.float64).clip(0.0, 1.0).T
        severity, pressure, effect = state
        effect = effect + 0.3 * (dose - effect)
        pressure = pressure + 0.4 * (1.4 * effect - 0.6 * relief - pressure)
        harm = self.poison * np.maximum(dose + relief - TOXIC, 0.0)
        severity = (severity + 0.02 - 0.1 * effect + harm + 0.04 * (uniform - 0.5)).clip(0.0, 2.0)
        return np.stack([severity, pressure, effect]), -severity.astype(np.float32), np.zeros(len(dose), bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns the three numbers."""
        return {"observation": torch.from_numpy(state.T.astype(np.float32))}


def usual(context: Context) -> Tensor:
    """Returns what the usual clinician gives: a higher dose for the severely ill."""
    dose = 0.3 + 0.2 * context["observation"][:, 0]
    return torch.stack((dose, torch.full_like(dose, 0.1)), 1)


@dataclass(frozen=True)
class Clinician:
    """Gives `more` of the dose than usual, of both up to 0.1 more or less by chance, never above the most given."""

    more: float
    num_draws: ClassVar[int] = 2

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns doses and log-probability 0."""
        assert uniform is not None
        given = usual(context) + torch.tensor([self.more, 0.0]) + 0.2 * (uniform - 0.5)
        return given.clamp(min=0.0).minimum(torch.tensor(MOST_GIVEN)), torch.zeros(len(uniform))


def record_patients(poison: float, episodes: int, draw: Draw) -> Experience:
    """Returns the log of a draw: as many patients of each clinician."""
    played, rows = [], np.arange(episodes)
    for place, more in enumerate(LEVELS):
        own = Draw(draw.seed, (49, place))
        starts = random.integers(own.at(1), 2**40, episodes)
        one = treatment(poison, episodes).play(Clinician(more), starts, np.zeros_like(rows), own, split=0, greedy=False)
        played.append(replace(one, source=torch.full((episodes,), int(Origin.DATASET))))
    return concatenate(played)


def high_pressure(context: Context) -> Tensor:
    """Returns 1 where the pressure is above its limit, else 0."""
    return (context["observation"][:, 1:2] > LIMIT).float()


@dataclass(frozen=True)
class LoggedPatients(SteppedTask):
    """A task with a log of its own."""

    logged: Callable[[Draw], Experience] | None = None


def treatment(poison: float = 0.5, episodes: int = 60) -> SteppedTask:
    """Returns the task with its log: `episodes` patients of each clinician."""
    at_least("treatment", 0.0, poison=poison)
    at_least("treatment", 1, episodes=episodes)
    name = name_with_dials("treatment", poison=(poison, 0.5), episodes=(episodes, 60))
    dynamics = Patient(poison)
    spec = Spec(Box((-1.0,) * 3, (2.0,) * 3), Box((0.0, 0.0), (1.0, 1.0)), HORIZON)
    task = LoggedPatients(
        name, spec, partial(ArraySimulation, dynamics), usual, dynamics,
        logged=partial(record_patients, poison, episodes),
    )
    return costed(task, name, high_pressure)
