"""Placements: which devices compute which call of an update, scored on a virtual clock.

An update is a graph of calls of models (generate, score, train). A plan gives each call a mesh, a set of devices. Calls
are started in the order in which their inputs are there, each when its inputs are and no earlier call holds one of its
devices. Weights that another mesh needs are moved first, which holds both meshes.

    seconds of a call on n devices = work / n^scaling
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Mesh = frozenset[int]
Plan = Mapping[str, Mesh]
"""The mesh of each call."""


@dataclass(frozen=True)
class PlannedCall:
    """A call of a model: its seconds on one device, how they scale, and the calls whose results it reads.

    `weights_of` is the call on whose mesh the weights are before: if the two meshes differ, they are moved.
    """

    name: str
    model: str
    work: float
    scaling: float = 1.0
    after: tuple[str, ...] = ()
    weights_of: str = ""

    def seconds(self, mesh: Mesh) -> float:
        """Returns the duration on a mesh."""
        return float(self.work / len(mesh) ** self.scaling)


@dataclass(frozen=True)
class Graph:
    """The calls of one update, and the seconds that moving a model's weights to another mesh takes."""

    calls: tuple[PlannedCall, ...]
    moving: float = 0.0

    def seconds(self, plan: Plan) -> float:
        """Returns the time until the last call ends."""
        free, ends, left = dict[int, float](), dict[str, float](), list(self.calls)
        while left:
            there = [call for call in left if all(name in ends for name in call.after)]
            ready = {call.name: max((ends[name] for name in call.after), default=0.0) for call in there}
            call = min(there, key=lambda one: (ready[one.name], self.calls.index(one)))
            mesh, begin = plan[call.name], ready[call.name]
            if call.weights_of and plan[call.weights_of] != mesh:
                begin = hold(free, mesh | plan[call.weights_of], begin, self.moving)
            ends[call.name] = hold(free, mesh, begin, call.seconds(mesh))
            left.remove(call)
        return max(ends.values())


def hold(free: dict[int, float], mesh: Mesh, ready: float, seconds: float) -> float:
    """Holds the devices of a mesh for some seconds, from when it is ready and they are free; returns the end."""
    end = max(ready, *(free.get(device, 0.0) for device in mesh)) + seconds
    free.update(dict.fromkeys(mesh, end))
    return end


# ---------------------------------------------------------------------------------------------------- plans
def meshes(num: int) -> tuple[Mesh, ...]:
    """Returns all devices, their halves, halves of those, ...: 7 meshes of 4 devices. `num` is a power of two."""
    sizes = [num >> level for level in range(num.bit_length())]
    return tuple(frozenset(range(first, first + size)) for size in sizes for first in range(0, num, size))


def together(graph: Graph, num: int) -> dict[str, Mesh]:
    """Returns the plan in which every call uses all devices, one after the other."""
    return dict.fromkeys((call.name for call in graph.calls), frozenset(range(num)))


def by_call(graph: Graph, options: Sequence[Mesh]) -> Iterator[dict[str, Mesh]]:
    """Yields every plan with a mesh for each call."""
    names = [call.name for call in graph.calls]
    return (dict(zip(names, chosen, strict=True)) for chosen in itertools.product(options, repeat=len(names)))


def by_model(graph: Graph, options: Sequence[Mesh]) -> Iterator[dict[str, Mesh]]:
    """Yields every plan with a mesh for each model, which all of its calls use: no weights are moved."""
    models = list(dict.fromkeys(call.model for call in graph.calls))
    for chosen in itertools.product(options, repeat=len(models)):
        placed = dict(zip(models, chosen, strict=True))
        yield {call.name: placed[call.model] for call in graph.calls}


def best(graph: Graph, plans: Iterable[dict[str, Mesh]]) -> tuple[float, dict[str, Mesh]]:
    """Returns the shortest time of some plans, and the first plan that has it."""
    return min(((graph.seconds(plan), plan) for plan in plans), key=lambda found: found[0])


def every_plan(plan: Plan) -> bool:
    """Returns True: without a limit of memory every plan fits."""
    return True


def searched(
    graph: Graph,
    options: Sequence[Mesh],
    start: Plan,
    seed: int,
    beta: float = 0.5,
    moves: int = 3_000,
    fits: Callable[[Plan], bool] = every_plan,
) -> tuple[float, dict[str, Mesh]]:
    """Returns the shortest time that a Metropolis search over the meshes of single calls finds, and its plan.

    A move gives one call another mesh; it is kept with probability min(1, exp(-beta (new - old))), and never if the
    plan does not fit. `beta` is per second; with infinite beta it climbs, and stays where each single move is worse.
    """
    draw = np.random.default_rng(seed)
    names, plan, now = [call.name for call in graph.calls], dict(start), graph.seconds(start)
    least, found = now, dict(start)
    for _ in range(moves):
        name, mesh = names[int(draw.integers(len(names)))], options[int(draw.integers(len(options)))]
        moved = {**plan, name: mesh}
        new = graph.seconds(moved)
        if (new <= now or draw.random() < math.exp(-beta * (new - now))) and fits(moved):
            plan, now = moved, new
            if now < least:
                least, found = now, dict(plan)
    return least, found


# ---------------------------------------------------------------------------------------------------- graphs
def ppo_graph(
    generate: tuple[float, float], infer: tuple[float, float], train: tuple[float, float], moving: float
) -> Graph:
    """Returns an update of ppo with an actor, a critic, a reference and a reward model; (work, scaling) of each kind
    of call. Both trainings wait for all scores, and use the weights that generated or valued.
    """
    scored = ("reward", "reference", "value")
    return Graph(
        (
            PlannedCall("generate", "actor", *generate),
            *(PlannedCall(name, "critic" if name == "value" else name, *infer, after=("generate",)) for name in scored),
            PlannedCall("train actor", "actor", *train, after=scored, weights_of="generate"),
            PlannedCall("train critic", "critic", *train, after=scored, weights_of="value"),
        ),
        moving,
    )
