"""Experts of recorded tokens, chosen again in the update: the router's weights are computed, its choice is given.

A router's top k changes with the last bits of a state, and with them a token's probability by any amount: sampling and
training then disagree about tokens on which nothing was learned (routing replay, arXiv:2510.11370).

Axes: B rows, T tokens, N tokens in a row, L layers with experts, K experts of a token. Choices are numbers of experts
plus one, so that 0, with which records are padded, leaves the choice to the router.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.models.pretrained import description
from assay.models.pretrained.description import Experts

GIVEN = "experts_given"
"""The name under which choices pass through the network, to the attention of each layer."""


def prepare(network: Any) -> int:
    """Lets the network take choices; returns how many each token has in all layers, 0 without experts."""
    if description.trouble(network):
        return 0
    layers = network.base_model.layers
    of_layers, many = [description.experts_of(layer.mlp) for layer in layers], 0
    for layer, experts in zip(layers, of_layers if any(of_layers) else [], strict=False):
        # Through the attention's arguments, since gradient checkpointing runs a layer again with its arguments.
        router = None if experts is None else experts.router
        layer.self_attn.register_forward_pre_hook(partial(lend, router, many), with_kwargs=True)
        if experts is not None:
            experts.router.register_forward_hook(partial(replay, experts))
            many += experts.num_chosen
    return many


def lend(router: Any, first: int, attention: Any, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Takes the choices from the attention's arguments and lends this layer's to its router, if any, for one call."""
    given = options.pop(GIVEN, None)
    if router is not None:
        router.lent = None if given is None else given.flatten(0, -2)[:, first : first + int(router.top_k)]
    return args, options


def replay(experts: Experts, router: Any, args: Any, found: tuple[Tensor, Tensor, Tensor]) -> Any:
    """Returns (logits, weights, choices) of a router with the choices that were lent to it, if any were."""
    lent = vars(router).pop("lent", None)
    if lent is None:
        return found
    logits, weight, own = found
    chosen = torch.where(lent > 0, lent.to(own.dtype) - 1, own)
    return logits, experts.weights(logits, chosen).to(weight.dtype), chosen
