"""Running moments of observations and returns. Axes: N rows, T columns, F numbers of an observation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Rollout, Scene
from assay.core.slots.scene import DISCARDED
from assay.models.bodies.perceptron import features
from assay.models.bodies.standardised import Moments
from assay.parts.rollouts.episodes import Around, Fragments

TINY = 1e-8
"""Added to variances before their root."""


def no_moments() -> State:
    """Returns the moments of nothing."""
    return {"count": 0.0, "mean": torch.zeros((), dtype=torch.float64), "squares": torch.zeros((), dtype=torch.float64)}


def observe(state: State, rows: Tensor) -> None:
    """Adds rows [R, ...] to count, mean and sum of squared deviations (Chan, Golub and LeVeque, 1983)."""
    count = float(len(rows))
    if not count:
        return
    mean = rows.double().mean(0)
    squares = (rows.double() - mean).square().sum(0)
    # Where the rows are: a checkpoint brings moments back on the host.
    total, gap = state["count"] + count, mean - state["mean"].to(rows.device)
    state["squares"] = state["squares"].to(rows.device) + squares + gap.square() * (state["count"] * count / total)
    state["mean"] = state["mean"].to(rows.device) + gap * (count / total)
    state["count"] = total


def deviation(state: State) -> Tensor:
    """Returns the standard deviation of everything observed; 1 if that is nothing."""
    return (state["squares"] / state["count"] + TINY).sqrt() if state["count"] else torch.ones_like(state["squares"])


@dataclass(frozen=True)
class Standardising(Around):
    """Runs `gather`, measures the observations for the bodies `Standardised` of `models`, and with `reward` divides
    rewards by the deviation of u, u <- discount * u + reward, reset at an episode's end.

    The moments of all earlier rollouts are set before a rollout begins, so that acting and training of a step see the
    same ones. The first rollout of a run is gathered twice: the first time only to measure, and its decisions count as
    spent. `episode_return` and evaluations stay in the task's own units. Degenerate: while nothing was measured the
    mean is 0 and the deviation 1. Source: arXiv:2006.05990, normalised observations. Assumes that moments settle.
    """

    gather: Rollout = Fragments()
    models: tuple[str, ...] = ()
    reward: bool = False
    discount: float = 0.99
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"gather": Fragments(4, 8)},
        {"gather": Fragments(4, 8), "reward": True},
    )

    def init(self, scene: Scene) -> State:
        inner = self.gather.init(scene)
        return {"gather": inner, "begun": False, "observation": no_moments(), "return": no_moments(), "running": None}

    def __call__(self, scene: Scene, state: State) -> Experience:
        if not state["begun"]:
            first = self.measured(self.gather(scene, state["gather"]), state)
            scene.log(DISCARDED, float(first.mask.sum()))
            state["begun"] = True
        seen = state["observation"]
        for name in self.models:
            for module in scene.models.model(name).modules():
                if isinstance(module, Moments):
                    module.keep({"mean": seen["mean"], "deviation": deviation(seen)})
        return self.measured(self.gather(scene, state["gather"]), state)

    def measured(self, record: Experience, state: State) -> Experience:
        """Adds the record to the moments; returns it with scaled rewards, if they are."""
        if self.models:
            observe(state["observation"], features(record.context)[record.mask])
        if not self.reward:
            return record
        observe(state["return"], self.returns(record, state)[record.mask])
        scale = deviation(state["return"]).to(record.reward.dtype)
        return replace(record, reward=record.reward / scale)

    def returns(self, record: Experience, state: State) -> Tensor:
        """Returns u [N, T]; rows continue those of the last call, where episodes have not ended."""
        over, reward = record.terminal | record.truncated, (record.reward * record.mask).double()
        running = state["running"]
        if running is None or len(running) != len(record):
            running = reward.new_zeros(len(record))
        running = running.to(reward.device)
        columns = []
        for t in range(record.num_columns):
            running = torch.where(record.mask[:, t], self.discount * running + reward[:, t], running)
            columns.append(running)
            running = running * ~over[:, t]
        state["running"] = running
        return torch.stack(columns, 1)
