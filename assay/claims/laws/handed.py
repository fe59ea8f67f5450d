"""The law of parts that read models before the update: those that they declare, as they are. Tensors have any shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from assay.claims.laws.cases import normal
from assay.claims.laws.laws import Law, declares, law
from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import ModelSpec
from assay.core.slots.scene import OnRows
from assay.core.spaces import Discrete, Spec, Vocabulary
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.heads.bounded import Deterministic
from assay.models.heads.dynamics import Dynamics
from assay.models.heads.value import ActionValue
from assay.models.model import Critic, Policy
from assay.ops import random


class Handed:
    """A small model for each name that a part declares: an actor, critics of actions (q...), dynamics, else critics of
    states.
    """

    def __init__(self, names: Sequence[str], spec: Spec) -> None:
        self.known: dict[str, nn.Module] = {name: model_called(name, spec) for name in names}
        self.before = {name: deepcopy(model.state_dict()) for name, model in self.known.items()}

    def model(self, name: str) -> Any:
        """Returns the critic; AssayError if the part did not declare it."""
        if name not in self.known:
            declared = ", ".join(self.known) or "none"
            raise AssayError(f"it asks for the model '{name}' and its `models` are {declared}. Add it there")
        return self.known[name]

    def over(self, name: str, experience: Experience, function: OnRows) -> Tensor:
        """All rows at once."""
        with torch.no_grad():
            return function(self.model(name), experience)

    def changed(self) -> Iterator[str]:
        """Yields what is not as it was."""
        for name, model in self.known.items():
            if any(not torch.equal(value, self.before[name][key]) for key, value in model.state_dict().items()):
                yield f"it changed the model '{name}'"
            if any(own.grad is not None for own in model.parameters()):
                yield f"it left a gradient in the model '{name}'"


def model_called(name: str, spec: Spec) -> nn.Module:
    """Returns a model with weights that belong to its name."""
    body: Any = Transformer(8, 1, 2) if isinstance(spec.action, Vocabulary) else Perceptron((8,))
    body = Table() if isinstance(spec.observation, Discrete) else body
    model: ModelSpec = Critic(body, ActionValue()) if name.startswith("q") else Critic(body)
    if name.startswith("actor"):
        model = Policy(body, Deterministic())
    if name.startswith("dynamics"):
        model = Critic(body, Dynamics(2))
    with random.seeded(7):
        module = model.build(spec)
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            parameter.add_(normal(f"{name} {place}", parameter.shape).to(parameter.dtype), alpha=0.1)
    return module.requires_grad_(False)


def reads_models(use: Callable[[Any, Any], Handed]) -> Law:
    """Returns the law for a slot; `use(part, case)` uses the part once and returns the models it was handed."""

    @law("it reads the models that it declares, and changes none", declares("models"))
    def handed_models(part: Any, case: Any) -> Iterator[str]:
        """Neither weights nor gradients; others are not there."""
        yield from use(part, case).changed()

    return handed_models
