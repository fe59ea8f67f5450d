"""`--body`: a network of the user's own, or a recurrent one, in the models of a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.settings import replaced
from assay.core.slots import ModelSpec
from assay.engine.memory import parts_below
from assay.models.bodies.by_data import StandardisedByData
from assay.models.bodies.convolution import Convolution
from assay.models.bodies.module import ModuleBody
from assay.models.bodies.normalised import Normalised
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.standardised import Standardised
from assay.models.bodies.token_module import TokenModule
from assay.models.bodies.transformer import Transformer
from assay.runs.user_code.addresses import needed_address
from assay.runs.user_code.loading import value_of

NETWORKS = (Perceptron, Normalised, Convolution)
"""Bodies whose place an own network takes; on tokens it takes that of a transformer."""


RECURRENT = {"gru": "Gru", "lstm": "Lstm"}
"""Bodies that have a name: they stand around the networks on vectors, which read their state."""


def with_body(recipe: Recipe, word: str) -> Recipe:
    """Returns the recipe with the network that `--body` names in place of those of its actor and critics, in its phases
    too. AssayError for a recipe without a network on vectors, images or tokens.
    """
    models = {"actor": recipe.actor, **recipe.critics}
    if word in RECURRENT:
        found = {name: remembering(model, word) for name, model in models.items()}
        if all(found[name] is models[name] for name in models):
            what = f"--body {word} stands around a network on vectors, and '{recipe.name}' has none here"
            raise AssayError(f"{what}. Use it on a control task")
        return with_models(recipe, found)
    make = network_of(word)
    found = {name: swapped(model, make) for name, model in models.items()}
    if all(found[name] is models[name] for name in models):
        raise AssayError(
            f"--body takes the place of a network on vectors, images or tokens, and '{recipe.name}' has none here. Use "
            "it on a control task, or on a language task without --model."
        )
    return with_models(recipe, found)


def with_models(recipe: Recipe, found: Mapping[str, ModelSpec]) -> Recipe:
    """Returns the recipe with these models, in its phases too."""
    changed = replace(recipe, actor=found["actor"], critics={name: found[name] for name in recipe.critics})
    return changed.share_models(recipe)


def remembering(model: ModelSpec, word: str) -> ModelSpec:
    """Returns the model with a recurrent body around its networks on vectors; AssayError if it standardises them."""
    from assay.models.bodies import recurrent  # here: other networks do not need it

    for kind in (Perceptron, Normalised):
        model = replaced(model, kind, getattr(recurrent, RECURRENT[word]))
    if any(isinstance(part, Standardised | StandardisedByData) for _, part in parts_below(model, "model")):
        what = f"--body {word} reads observations as they are, and here they are standardised"
        raise AssayError(f"{what}. Use --preset classic")
    return model


def network_of(word: str) -> Callable[..., Any]:
    """Returns what makes the network that `--body` names."""
    address = needed_address(word, "--body")
    if not address.name:
        raise AssayError(f"--body {word} is a file. Name the nn.Module in it: {word}:NAME")
    make = value_of(address)
    if isinstance(make, nn.Module):
        raise AssayError(
            f"--body {word} is a module that is made already, and each model needs one of its own. Give its class, "
            "or a function of the observation's shape that makes one."
        )
    if not callable(make):
        raise AssayError(f"--body {word} is {make!r:.60}. Give a class of nn.Module, or a function that makes one.")
    return make


def swapped(model: ModelSpec, make: Callable[..., Any]) -> ModelSpec:
    """Returns the model with the networks that `make` makes in place of its own."""
    for kind in NETWORKS:
        model = replaced(model, kind, lambda part: ModuleBody(make))
    return replaced(model, Transformer, lambda part: TokenModule(make))
