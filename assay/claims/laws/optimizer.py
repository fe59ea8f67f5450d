"""Laws of optimizers: frozen parts that move flat tensors, and a state that is saved.

Tensors are flat, or have the shape of the parameter they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.cases import normal
from assay.claims.laws.laws import Contract, is_finite, law, runs, settled, shown
from assay.claims.laws.state import continuing
from assay.core.record import State, Sums
from assay.core.settings import changed, children, is_schedule

METRICS = {"td_error": 0.7, "samples": 1.0}
"""Metrics that an optimizer gets besides gradients: means, of one decision per update."""


@dataclass(frozen=True)
class OptimizerCase:
    """Parameters of one precision, and the gradients and metrics of each update."""

    name: str
    dtype: torch.dtype
    sizes: tuple[int, ...]

    def values(self) -> list[Tensor]:
        """Returns flat tensors at the start."""
        return [normal(f"parameters {place}", (size,)).to(self.dtype) for place, size in enumerate(self.sizes)]

    def gradients(self, time: int) -> list[Tensor]:
        """Returns the gradients of an update."""
        return [normal(f"gradients {time} {place}", (size,)).to(self.dtype) for place, size in enumerate(self.sizes)]

    def sums(self, time: int) -> Sums:
        """Returns the metrics of an update; an episode is over after the third."""
        told = {**METRICS, "episode_over": float(time == 2)}
        return {name: [(torch.tensor(value), torch.tensor(1.0))] for name, value in told.items()}


CASES = (
    OptimizerCase("two tensors of float32", torch.float32, (5, 3)),
    OptimizerCase("one tensor of float64", torch.float64, (4,)),
    OptimizerCase("one tensor of bfloat16", torch.bfloat16, (4,)),
)


def walk(part: Any, case: OptimizerCase, values: list[Tensor], state: State, first: int, steps: int) -> None:
    """Applies updates from time `first` on, in place."""
    for time in range(first, first + steps):
        part.step(values, case.gradients(time), case.sums(time), state)


def held_still(part: Any) -> Any:
    """Returns the optimizer, and those inside it, at learning rate 0."""
    for name, below in children(part):
        if name == "learning_rate":
            part = changed(part, (name,), 0.0)
        elif getattr(below, "slot", None) == "optimizer":
            part = changed(part, (name,), held_still(below))
    return part


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Yields the tensors and numbers of a state."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors_in(item)
    elif isinstance(tree, Tensor | int | float):
        yield torch.as_tensor(tree)


@law("its learning rate and its clip norm are numbers that are not negative, or the rate a schedule")
def declared(part: Any, case: OptimizerCase) -> Iterator[str]:
    """A clip norm of 0 leaves gradients as they are."""
    for name in ("learning_rate", "clip_norm"):
        value = getattr(part, name)
        if not is_schedule(value) and (not isinstance(value, int | float) or value < 0):
            yield f"{name} is {value!r}"


@law("gradients move the values, and they stay finite")
def moves(part: Any, case: OptimizerCase) -> Iterator[str]:
    """Three updates."""
    values = case.values()
    walk(part, case, values, part.init(values), 0, 3)
    if all(torch.equal(mine, start) for mine, start in zip(values, case.values(), strict=True)):
        yield "three updates left every value as it was"
    yield from (f"values are {shown(value)}" for value in values if not is_finite(value))


@law("learning rate 0 moves nothing")
def still(part: Any, case: OptimizerCase) -> Iterator[str]:
    """Three updates, bit for bit."""
    values, fixed = case.values(), settled(held_still(part))
    walk(fixed, case, values, fixed.init(values), 0, 3)
    if not all(torch.equal(mine, start) for mine, start in zip(values, case.values(), strict=True)):
        yield "values moved"


@law("a gradient of NaN moves neither values nor state", lambda part: bool(getattr(part, "is_steady", False)))
def steady(part: Any, case: OptimizerCase) -> Iterator[str]:
    """In the third update, in one number of the first tensor; then as if it had not been."""
    values = case.values()
    state = part.init(values)
    walk(part, case, values, state, 0, 2)
    kept, before = [value.clone() for value in values], [one.clone() for one in tensors_in(state)]
    gradients = case.gradients(2)
    gradients[0][1] = torch.nan
    part.step(values, gradients, case.sums(2), state)
    if not all(torch.equal(mine, other) for mine, other in zip(values, kept, strict=True)):
        yield "values moved"
    if not all(torch.equal(mine, other) for mine, other in zip(tensors_in(state), before, strict=True)):
        yield "the state moved"


@law("a step on slices is the step on the whole", lambda part: part.is_elementwise)
def slices(part: Any, case: OptimizerCase) -> Iterator[str]:
    """Three updates of 200 numbers, and of their first 128 and last 72 alone, bit for bit."""
    whole = OptimizerCase(case.name, case.dtype, (200,))

    def stepped(cut: slice) -> tuple[Tensor, State]:
        values = [value[cut] for value in whole.values()]
        state = part.init(values)
        for time in range(3):
            part.step(values, [gradient[cut] for gradient in whole.gradients(time)], whole.sums(time), state)
        return values[0], state

    (values, state), *halves = (stepped(cut) for cut in (slice(200), slice(128), slice(128, 200)))
    if not torch.equal(values, torch.cat([half for half, _ in halves])):
        yield "values differ"
    both = zip(tensors_in(state), *(tensors_in(half) for _, half in halves), strict=True)
    for all_of_it, *some in both:
        if not torch.equal(all_of_it, torch.cat(some) if all_of_it.dim() else some[0]):
            yield "the state differs"


def begun(part: Any, case: OptimizerCase) -> State:
    """Returns values and the optimizer's state at the start."""
    values = case.values()
    return {"values": values, "state": part.init(values)}


def moved(part: Any, case: OptimizerCase, state: State, time: int) -> list[Tensor]:
    """Returns the values after the update of a time."""
    walk(part, case, state["values"], state["state"], time, 1)
    values: list[Tensor] = state["values"]
    return values


LAWS = (runs, declared, moves, still, *continuing(begun, moved), steady, slices)
OPTIMIZER = Contract("optimizer", LAWS, lambda part: CASES)
check_optimizer = OPTIMIZER.check
"""Checks the laws of an optimizer."""
