"""Replay by priority: transitions with large errors are drawn more often. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Models, Prediction, Scene, Schedule, Target, number
from assay.ops import random
from assay.parts.predictions import OfAction
from assay.parts.sources.replay import Replay, integers
from assay.parts.targets.one_step import NextValue

IMPORTANCE = "importance"
PRIORITY = "priority"
SMALLEST = 1e-6
"""Added to errors, so that no transition is lost."""
FINE = 2**31 - 1
"""Steps of the random numbers in (0, 1)."""


@dataclass(frozen=True)
class ErrorView:
    """What a target may look at while priorities are computed: models without gradient, and random numbers."""

    models: Models
    draw: Draw
    not_a_part: ClassVar[str] = "what the target of the source below gets"

    def model(self, name: str) -> Any:
        """Returns a model by name."""
        return self.models.model(name)

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Returns uniform numbers of this tag."""
        return random.uniform_tensor(self.draw.at(tag), shape)


@dataclass(frozen=True)
class Prioritised(Replay):
    """Draws transition i with probability p_i^exponent / sum_k p_k^exponent,  p_i = |y - Q(s, a)| + 1e-6 when it was
    last drawn; the largest so far until then. PER (arXiv:1511.05952).

    The column `importance` is (1 / (N P(i)))^correction over its largest in the batch: `ByImportance` weighs a critic's
    loss by it, which undoes the bias as `correction` comes to 1. The errors are those of the batch's own update: models
    are read before it. One number in each B-th of the total priority (stratified). Degenerate: exponent 0 is `Replay`
    bit for bit, with importance 1. Assumes that errors say what is worth learning: noise looks like it.
    """

    exponent: float = 0.6
    correction: float | Schedule = 0.4
    of: Prediction = OfAction("q")
    target: Target = NextValue()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exponent < 0.0:
            raise AssayError(f"source.exponent is {self.exponent}. Use 0 (uniform) or more, such as 0.6")

    @property
    def writes(self) -> Mapping[str, str]:
        """The weight of a transition in the loss."""
        return {**super().writes, IMPORTANCE: "BT: weight of a transition that is drawn by priority"}

    def init(self, scene: Scene) -> State:
        """Returns an empty buffer, and 1 as the largest priority so far."""
        return {**super().init(scene), PRIORITY: torch.zeros(0, dtype=torch.float64), "largest": torch.ones(())}

    def store(self, columns: dict[str, Tensor], state: State) -> None:
        """Writes rows into the buffer, with the largest priority so far."""
        place = (state["next"] + torch.arange(len(columns["mask"]))) % self.capacity
        super().store(columns, state)
        home, room = columns["mask"].device, len(state["columns"]["mask"])
        known, state["largest"] = state[PRIORITY].to(home), state["largest"].to(home)
        state[PRIORITY] = torch.cat([known, known.new_zeros(room - len(known))])
        state[PRIORITY][place.to(home)] = state["largest"].to(known.dtype)

    def drawn(self, scene: Scene, state: State, draw: Draw) -> Iterator[Experience]:
        """Yields the batch of one update, after its errors have become its priorities."""
        size, priority = state["size"], state[PRIORITY]
        if self.exponent == 0.0:
            index, weight = integers(draw, size, self.batch, priority), priority.new_ones(self.batch)
        else:
            share = priority[:size].pow(self.exponent)
            index = self.by_share(share.cumsum(0), draw)
            weight = (share.sum() / (size * share[index])).pow(number(self.correction))
        batch = self.rows(index, state)
        error = self.errors(batch, scene, draw)
        state[PRIORITY][index] = error
        state["largest"] = torch.maximum(state["largest"], error.max().to(state["largest"]))
        weight = (weight / weight.max()).to(batch.reward).unsqueeze(1).expand(-1, 2)
        yield batch.add({IMPORTANCE: weight})

    def by_share(self, sums: Tensor, draw: Draw) -> Tensor:
        """Returns one place in each B-th of the total of the shares."""
        strata = torch.arange(self.batch, dtype=sums.dtype, device=sums.device)
        # 2^31 - 1 equal steps: the whole numbers that are the same on every device.
        uniform = (integers(draw, FINE, self.batch, sums).to(sums.dtype) + 0.5) / FINE
        aim = (strata + uniform) / self.batch * sums[-1]
        return torch.searchsorted(sums, aim, right=True).clamp(max=len(sums) - 1)

    @torch.no_grad()
    def errors(self, batch: Experience, scene: Scene, draw: Draw) -> Tensor:
        """Returns |y - Q(s, a)| + 1e-6 of each transition, [B]; the mean over members and samples."""
        view = ErrorView(scene.models, draw)
        value = self.of(scene.models.model(self.of.model), self.target.rows(batch))
        # A target reads models and random numbers alone.
        gap = (self.target(batch, view) - value).abs()  # type: ignore[arg-type]
        return gap.flatten(0, -3).mean(0)[:, 0].double() + SMALLEST if gap.dim() > 2 else gap[:, 0].double() + SMALLEST
