"""A pretrained network as the body of critics. Axes: B sequences, T tokens.

A critic of a pretrained actor is `Critic(PretrainedBody(actor), Value())`: a copy of the actor's network, so that the
critic's gradient does not move the policy, with a head that is in float32 or wider and starts at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.spaces import Context, Spec
from assay.models.bodies.hidden import Sequences
from assay.models.pretrained.transformers import Pretrained, network_for


class PretrainedStates(nn.Module):
    """Last hidden states of a pretrained network, whose output layer is left out."""

    has_layers_in_a_row = True

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.width = network.base_model, int(network.get_output_embeddings().weight.shape[1])
        self.dtype = network.dtype

    def layers(self) -> Sequence[nn.Module]:
        """Modules of one kind that run one after the other; none where the network keeps them elsewhere."""
        found = vars(self.network)["_modules"].get("layers")
        return list(found) if isinstance(found, nn.ModuleList) else []

    def states(self, tokens_BT: Tensor) -> Tensor:
        """[B, T, width]. Rows are padded behind, where no token of theirs looks: no mask but the causal one.

        A network in bfloat16 computes in it whatever its weights are in: beside a head in float32 the engine keeps all
        trained weights of a model in float32.
        """
        is_low = self.dtype == torch.bfloat16
        kind = tokens_BT.device.type
        with torch.autocast(kind, torch.bfloat16) if is_low else nullcontext():
            hidden: Tensor = self.network(input_ids=tokens_BT, use_cache=False).last_hidden_state
        return hidden.to(torch.promote_types(hidden.dtype, torch.float32))

    def before(self, context: Context) -> Tensor:
        """The state before each token, zeros at column 0, [B, T, width]."""
        return functional.pad(self.states(context["tokens"][:, :-1]), (0, 0, 1, 0))

    def after(self, context: Context) -> Tensor:
        """The state with each token, [B, T, width]."""
        return self.states(context["tokens"])


@dataclass(frozen=True)
class PretrainedBody(Sequences):
    """A copy of a pretrained network, without its output layer.

    `model` is the actor's: its dtype and LoRA settings hold here too, and follow those of the actor when they are set.
    With LoRA a critic trains adapters of its own and its head; with `frozen` the head alone.
    """

    model: Pretrained = field(metadata={"follows": "actor"})
    frozen: bool = False
    not_a_part: ClassVar[str] = "needs a folder with a model"

    def states(self, spec: Spec) -> nn.Module:
        """The network for this task, without gradient where it is frozen."""
        states = PretrainedStates(network_for(self.model, spec))
        return states.requires_grad_(False) if self.frozen else states
