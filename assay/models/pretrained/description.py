"""What the layers of a pretrained network compute, read off the network: the one description that its sampler and its
packed rows follow.

A network that differs from Llama's says how in `FAMILIES`, or in its configuration and modules. What is not described
here is decoded by the network's own cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from assay.ops.attention import Attention

STRETCHED = ("dynamic", "longrope")
"""Rotary positions whose angles change with the longest text: a row would depend on its neighbours."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
}
UNTURNED = "none"
"""The kind of angles that leave heads as they are."""


@dataclass(frozen=True)
class Family:
    """How networks of a model type differ from Llama's: names of the norms before attention, after it, before the
    MLP and after it ("": none); an addend to the weights of norms (`shift`); norms that are rounded after the product
    with their weights and not before it (`is_wide`); the attribute of attention modules with the cap of scores.
    """

    norms: tuple[str, str, str, str] = ("input_layernorm", "", "post_attention_layernorm", "")
    shift: float = 0.0
    is_wide: bool = False
    cap: str = ""


AROUND = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
FAMILIES = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "mixtral", "smollm3"), Family()),
    "gpt_oss": Family(is_wide=True),
    "gemma2": Family(AROUND, shift=1.0, is_wide=True, cap="attn_logit_softcapping"),
    "gemma3_text": Family(AROUND, shift=1.0, is_wide=True),
}


@dataclass(frozen=True, eq=False)
class Norm:
    """x / sqrt(mean x^2 + epsilon) times (shift + weight), rounded to x's type before that product or after it."""

    module: Any
    epsilon: float
    shift: float
    is_wide: bool

    @property
    def weight(self) -> Tensor:
        """The weight as stored."""
        weight: Tensor = self.module.weight
        return weight

    @property
    def is_plain(self) -> bool:
        """Whether it is Llama's."""
        return not self.shift and not self.is_wide


@dataclass(frozen=True, eq=False)
class Heads:
    """The first half of a layer: state + after(attention(before(state))).

    `angles` is the place of its rotary angles among the kinds of the network, `norms` those of queries and keys.
    """

    module: Any
    how: Attention
    angles: int
    norms: tuple[Norm, Norm] | None
    before: Norm
    after: Norm | None


@dataclass(frozen=True, eq=False)
class Experts:
    """An MLP of which each token goes through the experts that it has chosen, weighted by a softmax of the router's
    logits; of those of the chosen alone if `is_normalised`.
    """

    router: Any
    module: Any
    is_normalised: bool

    def mixed(self, state_NW: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (state [N, W], the experts chosen by each token [N, K])."""
        _, weight, chosen = self.router.forward(state_NW)  # without hooks: see `routing`
        return self.module(state_NW, chosen, weight), chosen

    def weights(self, logits_NE: Tensor, chosen_NK: Tensor) -> Tensor:
        """Returns the weights of chosen experts, [N, K]."""
        probability = logits_NE.float().softmax(-1).gather(1, chosen_NK)
        return probability / probability.sum(-1, keepdim=True) if self.is_normalised else probability

    @property
    def num_chosen(self) -> int:
        """K."""
        return int(self.router.top_k)


@dataclass(frozen=True, eq=False)
class Mlp:
    """The second half of a layer: state + after(down(activation(gate) * up)) of before(state), or experts instead."""

    module: Any
    activation: Callable[[Tensor], Tensor]
    experts: Experts | None
    before: Norm
    after: Norm | None


@dataclass(frozen=True, eq=False)
class Description:
    """A network's layers in halves, its last norm, the soft cap of its logits (0: none), its kinds of rotary angles."""

    heads: tuple[Heads, ...]
    mlps: tuple[Mlp, ...]
    norm: Norm
    cap: float
    kinds: tuple[str, ...]


def family_of(network: Any) -> Family | None:
    """Returns how a network, or a module of it, differs from Llama's; None if that is not known."""
    return FAMILIES.get(getattr(getattr(network, "config", None), "model_type", ""))


def attention_of(module: Any) -> Attention | None:
    """Returns what a network's attention module computes; None if its family is not known."""
    family = family_of(module)
    if family is None:
        return None
    window = getattr(module, "sliding_window", getattr(module.config, "sliding_window", None))
    cap = getattr(module, family.cap) if family.cap else None
    return Attention(float(module.scaling), int(window or 0), float(cap or 0.0), getattr(module, "sinks", None))


def trouble(network: Any) -> str:
    """Returns why the layers of a network are not described here; empty if they are."""
    config, family = getattr(network, "config", None), family_of(network)
    if family is None:
        return f"its architecture ({getattr(config, 'model_type', 'unknown')}) has no description of its layers"
    if activation_of(config) not in ACTIVATIONS:
        return f"its activation is {activation_of(config)}"
    known = network.base_model.rotary_emb.rope_type
    stretched = [some for some in (known.values() if isinstance(known, dict) else (known,)) if some in STRETCHED]
    if stretched:
        return f"its rotary angles ({stretched[0]}) change with the longest text of a batch"
    if not all(layer.self_attn.is_causal for layer in network.base_model.layers):
        return "its attention is not causal"
    return ""


def activation_of(config: Any) -> str:
    """Returns the name of the MLP's activation."""
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)


def described(network: Any) -> Description:
    """Returns the description of a network without `trouble`."""
    base, family, config = network.base_model, family_of(network), network.config
    assert family is not None
    activation, shift, is_wide = ACTIVATIONS[activation_of(config)], family.shift, family.is_wide

    def norm(module: Any, name: str = "") -> Norm:
        module = module.get_submodule(name)
        own = vars(module)
        return Norm(module, own["variance_epsilon"] if "variance_epsilon" in own else own["eps"], shift, is_wide)

    def heads(block: Any, kind: str) -> Heads:
        module, how, (before, after, _, _) = block.self_attn, attention_of(block.self_attn), family.norms
        assert how is not None
        norms = (norm(module.q_norm), norm(module.k_norm)) if "q_norm" in module._modules else None
        return Heads(module, how, kinds.index(kind), norms, norm(block, before), norm(block, after) if after else None)

    def mlp(block: Any) -> Mlp:
        _, _, before, after = family.norms
        return Mlp(
            block.mlp, activation, experts_of(block.mlp), norm(block, before), norm(block, after) if after else None
        )

    of_layers = [kind_of(base, place, block) for place, block in enumerate(base.layers)]
    kinds = tuple(dict.fromkeys(of_layers))
    halves = tuple(heads(block, kind) for block, kind in zip(base.layers, of_layers, strict=True))
    cap = getattr(config, "final_logit_softcapping", None)
    return Description(halves, tuple(map(mlp, base.layers)), norm(base.norm), float(cap or 0.0), kinds)


def experts_of(mlp: Any) -> Experts | None:
    """Returns the experts of an MLP; None if it has none."""
    router = mlp._modules.get("router", mlp._modules.get("gate"))
    if "experts" not in mlp._modules or router is None:
        return None
    return Experts(router, mlp.experts, bool(getattr(router, "norm_topk_prob", True)))


def kind_of(base: Any, place: int, block: Any) -> str:
    """Returns the kind of a layer's rotary angles: that of its type where types have their own, UNTURNED without."""
    if not vars(block.self_attn).get("use_rope", True):
        return UNTURNED
    return str(base.config.layer_types[place]) if isinstance(base.rotary_emb.rope_type, dict) else ""


def angles(base: Any, kinds: tuple[str, ...], like: Tensor, position_N: Tensor) -> tuple[Tensor, ...]:
    """Returns cosines and sines [N, D] of each kind in turn, in the dtype of `like`; 1 and 0 where nothing turns."""
    found: list[Tensor] = []
    for kind in kinds:
        named = {"layer_type": kind} if isinstance(base.rotary_emb.rope_type, dict) else {}
        cos, sin = (some[0] for some in base.rotary_emb(like, position_N.unsqueeze(0), **named))
        if 2 * cos.shape[1] == base.layers[0].self_attn.head_dim:  # the angles of one half, which are both's
            cos, sin = torch.cat((cos, cos), 1), torch.cat((sin, sin), 1)
        found += [torch.ones_like(cos), torch.zeros_like(sin)] if kind == UNTURNED else [cos, sin]
    return tuple(found)
