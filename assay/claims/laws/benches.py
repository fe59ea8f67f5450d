"""Small engines that terms are tried on: a task, models and experience for each kind of action."""

from __future__ import annotations
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any
import torch
from torch import nn
from assay.claims.laws.cases import (
    CHOICES,
    NUMBERED,
    SPECS,
    TOKENS,
    TORQUES,
    in_other_units,
    normal,
)
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import ModelSpec, Over
from assay.core.spaces import Spec
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.heads.bins import Bins
from assay.models.heads.bounded import Deterministic, SquashedGaussian
from assay.models.heads.value import ActionValue, Greedy
from assay.models.model import Critic, Policy, Temperature
from assay.ops import random

COPIED = {"reference": "actor", "target": "actor", "old": "actor", "teacher": "actor"}
"""Copies whose names do not say what they copy; `x_target` copies `x`."""



SMALL = {"hidden": (8,), "width": 8, "layers": 1, "heads": 2}
"""Small sizes, for fast checks."""


@dataclass(frozen=True, eq=False)
class Bench:
    """Models for one kind of task; `copies` says which name copies which model."""

    name: str
    spec: Spec
    models: Mapping[str, ModelSpec]
    copies: Mapping[str, str] = field(default_factory=dict)

    def source_of(self, name: str) -> str | None:
        """Returns the model that a copy copies, or None if the name is not a copy."""
        named = {**COPIED, **self.copies}.get(name, name.removesuffix("_target") if name.endswith("_target") else None)
        return named if named in self.models and name not in self.models else None

    def model(self, name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Returns a model, the same object each time."""
        return self.built(name, dtype)

    def over(self, name: str) -> Over:
        """Returns the function with which an annotation computes its column by this model, here on all rows at once."""
        return lambda experience, function: function(self.model(name), experience)

    @lru_cache(maxsize=256)  # noqa: B019 - benches live as long as the process
    def built(self, name: str, dtype: torch.dtype) -> nn.Module:
        """Returns a model with perturbed parameters, so that nothing is zero by chance; copies differ from it."""
        source = self.source_of(name)
        if source is None and name not in self.models:
            raise AssayError(f"bench '{self.name}' has no model '{name}'. It has {', '.join(self.models)}")
        if dtype != torch.float64:
            return copy.deepcopy(self.model(name)).to(dtype)
        with random.seeded(5):
            module = self.models[source or name].build(self.spec).double()
        with torch.no_grad():
            for place, parameter in enumerate(module.parameters()):
                parameter.add_(normal(f"{source or name} {place}", parameter.shape), alpha=0.3)
                if source is not None:
                    parameter.add_(normal(f"{name} {place}", parameter.shape), alpha=0.1)
        return module.requires_grad_(source is None)


@lru_cache(maxsize=64)
def in_units(bench: Bench, factor: float, shift: float) -> Bench:
    """Returns the bench with actions in other units: the same weights, the same decisions."""
    return replace(bench, spec=in_other_units(bench.spec, factor, shift))


FEW = Perceptron((8,))
CRITICS: dict[str, ModelSpec] = {
    "value": Critic(FEW),
    "q": Critic(FEW, ActionValue()),
    "temperature": Temperature(0.7),
}
STANDARD: tuple[Bench, ...] = (
    Bench("tokens", TOKENS, {"actor": Policy(Transformer(8, 1, 2)), "value": Critic(Transformer(8, 1, 2))}),
    Bench("torques, Gaussian", TORQUES, {"actor": Policy(FEW), **CRITICS}),
    Bench("torques, squashed", TORQUES, {"actor": Policy(FEW, SquashedGaussian()), **CRITICS}),
    Bench("torques, deterministic", TORQUES, {"actor": Policy(FEW, Deterministic()), **CRITICS}),
    Bench("choices, categorical", CHOICES, {"actor": Policy(FEW), "value": Critic(FEW)}),
    Bench("choices, action values", CHOICES, {"actor": Policy(FEW, Greedy()), "value": Critic(FEW)}),
    Bench("numbered states", NUMBERED, {"actor": Policy(Table()), "value": Critic(Table())}),
)


RANGE = 110.0
"""Reach of the values of rewards within 1 at discount 0.99."""


def benches_of(recipe: Recipe) -> list[Bench]:
    """Returns benches with a recipe's own models, made small, on every kind of task that they can be built for."""
    models = {name: smaller(spec) for name, spec in {"actor": recipe.actor, **recipe.critics}.items()}
    copies = {name: one.of for name, one in recipe.copies.items()}
    found = []
    for spec in SPECS:
        kind = type(spec.action).__name__ + ("" if spec.goal is None else " with goals")
        bench = Bench(f"{recipe.name} on {kind}", spec, models, copies)
        try:
            built = [bench.model(name) for name in models]
        except AssayError:
            continue
        found += [bench] if built else []
    return found


def smaller(spec: Any) -> Any:
    """Returns a model spec, its body and its head, with their sizes cut down; bins whose range is a task's have one."""
    if not is_dataclass(spec) or isinstance(spec, type):
        return spec
    if isinstance(spec, Bins):
        return spec if spec.low < spec.high else replace(spec, low=-RANGE, high=RANGE)
    below = {f.name: getattr(spec, f.name) for f in fields(spec) if f.init}
    return replace(spec, **{name: SMALL.get(name, smaller(value)) for name, value in below.items()})
