"""Critics of a pretrained actor: the same pretrained network with a value head. Axes: B sequences, T tokens, N critics.

A critic has its own copy of the network, so that its gradient does not move the policy. Heads are in float32 (or wider)
whatever the network is in, and start at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.spaces import Context, Spec
from assay.models.pretrained.transformers import Pretrained, network_for


class PretrainedStates(nn.Module):
    """Last hidden states of a pretrained network, whose output layer is left out."""

    has_layers_in_a_row = True

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.width = network.base_model, int(network.get_output_embeddings().weight.shape[1])

    def layers(self) -> Sequence[nn.Module]:
        """Modules of one kind that run one after the other; none where the network keeps them elsewhere."""
        found = vars(self.network)["_modules"].get("layers")
        return list(found) if isinstance(found, nn.ModuleList) else []

    def states(self, tokens_BT: Tensor) -> Tensor:
        """[B, T, width]. Rows are padded behind, where no token of theirs looks: no mask but the causal one."""
        hidden: Tensor = self.network(input_ids=tokens_BT, use_cache=False).last_hidden_state
        return hidden.to(torch.promote_types(hidden.dtype, torch.float32))

    def before(self, context: Context) -> Tensor:
        """The state before each token, zeros at column 0, [B, T, width]."""
        return functional.pad(self.states(context["tokens"][:, :-1]), (0, 0, 1, 0))

    def after(self, context: Context) -> Tensor:
        """The state with each token, [B, T, width]."""
        return self.states(context["tokens"])


class PretrainedCritic(nn.Module):
    """A head on pretrained states."""

    has_layers_in_a_row = True

    def __init__(self, states: PretrainedStates) -> None:
        super().__init__()
        self.states = states

    def layers(self) -> Sequence[nn.Module]:
        """The network's."""
        return self.states.layers()


class StateHead(PretrainedCritic):
    """V(tokens before t) by a linear layer; starts at 0."""

    def __init__(self, states: PretrainedStates) -> None:
        super().__init__(states)
        self.head = zero_linear(states.width)

    def forward(self, context: Context) -> Tensor:
        """State values [B, T]."""
        hidden = self.states.before(context)
        with torch.autocast(hidden.device.type, enabled=False):
            return self.head(hidden.to(self.head.weight.dtype)).squeeze(-1)


class DecisionHeads(PretrainedCritic):
    """Q_i(tokens before t, token t) of N heads with a hidden layer each; starts at 0."""

    def __init__(self, states: PretrainedStates, num: int) -> None:
        super().__init__(states)
        width = states.width
        self.inner, self.heads = nn.Linear(width, num * width), nn.Parameter(torch.zeros(num, width))

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Action values [N, B, T]; the decisions of a token sequence are its own tokens, so it is read once."""
        hidden = self.states.after(context)
        with torch.autocast(hidden.device.type, enabled=False):
            wide = self.inner(hidden.to(self.heads.dtype)).relu().unflatten(-1, self.heads.shape)
            return (wide * self.heads).sum(-1).movedim(-1, 0)


def zero_linear(width: int) -> nn.Linear:
    """A linear layer with one output that is 0."""
    layer = nn.Linear(width, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def states_for(model: Pretrained, spec: Spec, frozen: bool) -> PretrainedStates:
    """The network of a model for this task, without gradient where it is frozen."""
    states = PretrainedStates(network_for(model, spec))
    return states.requires_grad_(False) if frozen else states


@dataclass(frozen=True)
class PretrainedValue:
    """A critic V(tokens so far): a copy of a pretrained network with a scalar head.

    `model` is the actor's: its dtype and LoRA settings hold here too, and follow those of the actor when they are set.
    With LoRA the critic trains adapters of its own and the head. `frozen` trains the head alone.
    """

    model: Pretrained = field(metadata={"follows": "actor"})
    frozen: bool = False

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        return StateHead(states_for(self.model, spec, self.frozen))


@dataclass(frozen=True)
class PretrainedQ:
    """`num` critics of what was written so far, the last token included, on a copy of a pretrained network; settings
    as in `PretrainedValue`.
    """

    model: Pretrained = field(metadata={"follows": "actor"})
    num: int = 2
    frozen: bool = False

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        return DecisionHeads(states_for(self.model, spec, self.frozen), self.num)
