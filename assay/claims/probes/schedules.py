"""Which models an update moves: stages that are due, target networks and their rates; what a phase hands on.

Weights have the shapes of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from assay.claims.probes.formulas import prepared
from assay.claims.probes.tensors import distance, worst
from assay.core.recipe import Phase, Recipe
from assay.core.record import Draw, Experience, Progress
from assay.core.spaces import Spec
from assay.engine.engine import Engine
from assay.engine.loop import learn
from assay.engine.placement import Placement


def history(recipe: Recipe, experience: Experience, spec: Spec, num: int) -> list[dict[str, Tensor]]:
    """Returns all weights by model, before `num` updates on the same experience and after each of them."""
    recipe = recipe.at_limit(spec.horizon).at(Progress())
    engine, found = Engine(recipe, spec, 0, Placement()), []

    def weights() -> dict[str, Tensor]:
        return {name: flat.values.clone() for name, flat in engine.flats.items()}

    def batches(*given: Any) -> Iterator[Experience]:
        for _ in range(num):
            yield prepared(recipe, engine, experience)
            found.append(weights())

    found.append(weights())
    learn(engine, recipe, Draw(0), batches)
    return found


def schedule_gap(
    recipe: Recipe,
    experience: Experience,
    spec: Spec,
    every: Mapping[str, int],
    targets: Mapping[str, tuple[str, float, int]],
    num: int = 6,
) -> float:
    """Returns the largest deviation of trained weights from a schedule; infinite if a model moves when it should not.

    `every` names the trained models and how often they move, `targets` the target networks as (model, rate, every):
    target <- target + rate * (model - target). Counted from update 0, at which all of them are due.
    """
    past, gap = history(recipe, experience, spec, num), 0.0
    if set(past[0]) != {*every, *targets}:
        return float("inf")
    for update, (before, after) in enumerate(zip(past, past[1:], strict=False)):
        for name, often in every.items():
            if bool((after[name] != before[name]).any()) != (update % often == 0):
                return float("inf")
        for name, (model, rate, often) in targets.items():
            moved = rate * (after[model] - before[name]) if update % often == 0 else 0.0 * before[name]
            gap = worst(gap, float((after[name] - before[name] - moved).abs().max()))
    return gap


def history_gap(recipe: Recipe, base: Recipe, experience: Experience, spec: Spec, num: int) -> float:
    """Returns the largest difference of any weight of the base, before `num` updates and after each of them."""
    ours, theirs = (history(one, experience, spec, num) for one in (recipe, base))
    return worst(*(distance(a[name], b[name]) for a, b in zip(ours, theirs, strict=True) for name in b))


def hand_off_gap(recipe: Recipe, names: Sequence[str], spec: Spec) -> float:
    """Returns the largest difference of these models' first weights from those that the only earlier phase ends with,
    where its copies have left what they copy.
    """
    (phase,) = recipe.before
    before, after = (Engine(one, spec, seed, Placement()) for one, seed in ((phase.recipe, 1), (recipe, 0)))
    for name in phase.recipe.copies:
        before.flats[name].values.add_(1.0)
    after.load(handed_on(phase, before), recipe)
    return worst(*(distance(before.flats[name].values, after.flats[name].values) for name in names))


def handed_on(phase: Phase, engine: Engine) -> dict[str, Tensor]:
    """Returns the weights that a phase hands on, by their full names in later phases."""
    found: dict[str, Tensor] = {}
    for own, place in phase.handed:
        flat = engine.flats[own]
        found |= {f"{place}.{part}": value for part, value in zip(flat.names, flat.split(flat.values), strict=True)}
    return found
