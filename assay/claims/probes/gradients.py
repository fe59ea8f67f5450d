"""The gradient that the engine would apply, kept instead of applied. Gradients have the shapes of parameters."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from assay.claims.probes.tensors import credited
from assay.core.errors import AssayError
from assay.core.recipe import Recipe, Stage
from assay.core.record import Experience, Fit, Progress
from assay.core.spaces import Discrete, Spec
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.engine.updates import Update

NOWHERE = Spec(Discrete(1), Discrete(1), 1)
"""The task spec where every model is given."""


@dataclass(frozen=True, eq=False)
class Given:
    """A model spec that builds copies of an existing module, whatever the task."""

    module: nn.Module

    def build(self, spec: Spec) -> nn.Module:
        """Returns a copy of the module."""
        return copy.deepcopy(self.module)


class Witness(Engine):
    """An engine that keeps each update's gradient instead of applying it: same terms, micro-batches and counts."""

    gradients: Mapping[str, Tensor]

    def apply(self, stage: Stage, gradients: list[Tensor], result: Update, fits: Sequence[Fit] = ()) -> None:
        """Keeps the gradient before clipping."""
        flats = zip(stage.trains, gradients, strict=True)
        parts = [part for model, flat in flats for part in self.flats[model].split(flat)]
        self.gradients = dict(zip(self.names(stage), parts, strict=True))

    def names(self, stage: Stage) -> list[str]:
        """Returns `model.parameter` of every parameter that a stage trains."""
        return [f"{model}.{name}" for model in stage.trains for name in self.flats[model].names]

    def gradient(self, stage: Stage, batch: Experience) -> dict[str, Tensor]:
        """Returns d loss / d parameter of one update, by `model.parameter`; zeros if there is no decision to learn
        from.
        """
        tensors = [tensor for model in stage.trains for tensor in self.flats[model].tensors]
        self.gradients = {name: torch.zeros_like(t) for name, t in zip(self.names(stage), tensors, strict=True)}
        self.update(stage, batch)
        return dict(self.gradients)


def witness(
    recipe: Recipe,
    actor: nn.Module,
    models: Mapping[str, nn.Module] | None = None,
    *,
    spec: Spec | None = None,
    placement: Placement = Placement(),
) -> Witness:
    """Returns a witness with copies of given modules: the actor and, by name, critics and copies such as `reference`.

    Critics that are not given are built for `spec`; copies that are not given start equal to their originals.
    """
    given = dict(models or {})
    missing = [name for name in recipe.critics if name not in given]
    if missing and spec is None:
        raise AssayError(f"recipe '{recipe.name}' has critics ({', '.join(missing)}); give models= or spec=")
    unknown = [name for name in given if name not in {*recipe.critics, *recipe.copies}]
    if unknown:
        known = ", ".join([*recipe.critics, *recipe.copies]) or "none"
        raise AssayError(f"recipe '{recipe.name}' has no model '{unknown[0]}'; besides the actor it has {known}")
    critics = {name: Given(given[name]) if name in given else critic for name, critic in recipe.critics.items()}
    engine = Witness(replace(recipe, actor=Given(actor), critics=critics), spec or NOWHERE, 0, placement)
    for name in recipe.copies:
        if name in given:
            engine.models[name].load_state_dict(given[name].state_dict())
    return engine


def actor_gradient(engine: Witness, recipe: Recipe, experience: Experience) -> dict[str, Tensor]:
    """Returns the actor's gradient by parameter name, summed over the stages that train it."""
    batch = credited(recipe, engine.annotate(experience, recipe.needs))
    total: dict[str, Tensor] = {}
    for stage in recipe.stages:
        if "actor" in stage.trains:
            for name, value in engine.gradient(stage, batch).items():
                if name.startswith("actor."):
                    own = name.removeprefix("actor.")
                    total[own] = total[own] + value if own in total else value
    return total


def gradient(
    recipe: Recipe,
    experience: Experience,
    actor: nn.Module,
    *,
    models: Mapping[str, nn.Module] | None = None,
    spec: Spec | None = None,
    placement: Placement = Placement(),
) -> dict[str, Tensor]:
    """Returns d loss / d theta of the actor on this experience, by parameter name, before clipping and before Adam.

    It is what `Engine.update` would pass to its optimizer. Credit is computed as in the loop unless the column
    `advantage` (or `chosen`) is set. `models` gives critics, and copies such as `reference`, by name.
    """
    recipe = recipe.at_limit(experience.num_columns).at(Progress())
    return actor_gradient(witness(recipe, actor, models, spec=spec, placement=placement), recipe, experience)
