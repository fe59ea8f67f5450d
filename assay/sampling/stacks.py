"""Layers as decoding needs them: one face for our transformer and for Llama-like networks of transformers.

Axes: N tokens, W width, H query heads, K key heads, D head size, R rank, V vocabulary. Weights are the trainer's own,
never copied or merged: a low-rank adapter is two more products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from assay.models.bodies.transformer import Trunk
from assay.sampling import kernels

KNOWN = ("llama", "qwen2", "qwen3", "mistral")
STRETCHED = ("dynamic", "longrope")
"""Rotary positions whose angles change with the longest text: a row's would depend on its neighbours."""


@dataclass
class Places:
    """Where a step's keys and values go: pages [pages, page, K, D] of one layer, and each row's page and offset."""

    keys: Tensor
    values: Tensor
    page: Tensor
    offset: Tensor

    def store(self, key_NKD: Tensor, value_NKD: Tensor) -> None:
        """Writes them."""
        self.keys[self.page, self.offset], self.values[self.page, self.offset] = key_NKD, value_NKD


class Stack(Protocol):
    """A decoder taken apart, so that whoever holds the cache can do the attention."""

    num_layers: int
    num_heads: int
    num_key_heads: int
    head_size: int
    scale: float
    identity: tuple[Any, ...]
    """See `identity_of`: steps that were recorded with another one are of no use."""

    @property
    def weight(self) -> Tensor:
        """A weight, for its type and device."""

    def embed(self, token_N: Tensor) -> Tensor:
        """Tokens to states [N, W]."""

    def angles(self, position_N: Tensor) -> tuple[Tensor, ...]:
        """What turns queries and keys at these positions, each [N, ...]; the same for all layers."""

    def project(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Query [N, H, D], key and value [N, K, D], turned."""

    def place(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...], cache: Places) -> Tensor:
        """Query [N, H, D]; keys and values go where `cache` says."""

    def finish(self, layer: int, state_NW: Tensor, attended_NHD: Tensor) -> Tensor:
        """The layer's result from what attention gave; may take the state's memory."""

    def logits(self, state_NW: Tensor) -> Tensor:
        """After the last layer: float32 (or wider) logits [N, V]."""


class TrunkStack:
    """Our own transformer."""

    def __init__(self, actor: Any) -> None:
        trunk = actor.trunk
        assert isinstance(trunk, Trunk)
        # Not the actor itself: a sampler is kept for as long as its actor is there.
        self.output, self.forbidden = actor.output, actor.forbidden
        self.trunk, self.blocks, self.identity = trunk, trunk.layers(), identity_of(actor)
        self.num_layers, self.head_size = len(self.blocks), trunk.head_size
        self.num_heads = self.num_key_heads = self.blocks[0].num_heads
        self.scale = self.head_size**-0.5

    @property
    def weight(self) -> Tensor:
        """The last norm's."""
        return self.trunk.norm

    def embed(self, token_N: Tensor) -> Tensor:
        """Tokens to states."""
        return self.trunk.embedding(token_N)

    def angles(self, position_N: Tensor) -> tuple[Tensor, ...]:
        """Complex turns."""
        return (self.trunk.turn(position_N.unsqueeze(1)),)

    def project(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Each row is a sequence of one token."""
        query, key, value = self.blocks[layer].project(state_NW.unsqueeze(1), angles[0])
        return query[:, :, 0], key[:, :, 0], value[:, :, 0]

    def place(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...], cache: Places) -> Tensor:
        """As projected."""
        query, key, value = self.project(layer, state_NW, angles)
        cache.store(key, value)
        return query

    def finish(self, layer: int, state_NW: Tensor, attended_NHD: Tensor) -> Tensor:
        """Residuals and perceptron."""
        return self.blocks[layer].finish(state_NW.unsqueeze(1), attended_NHD.unsqueeze(2)).squeeze(1)

    def logits(self, state_NW: Tensor) -> Tensor:
        """The actor's, without its forbidden tokens."""
        logits = self.output(self.trunk.last_norm(state_NW)) + self.forbidden
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class LlamaStack:
    """Llama, Qwen2, Qwen3, Mistral: RMS norms, rotary halves, grouped heads, gated perceptron."""

    def __init__(self, actor: Any) -> None:
        network = actor.network
        config, base = network.config.get_text_config(), network.base_model
        self.base, self.head, self.layers = base, network.get_output_embeddings(), list(base.layers)
        attention = self.layers[0].self_attn
        self.num_layers, self.head_size = len(self.layers), int(attention.head_dim)
        self.num_heads, self.num_key_heads = config.num_attention_heads, config.num_key_value_heads
        self.scale, self.identity = float(attention.scaling), identity_of(network)

    @property
    def weight(self) -> Tensor:
        """The last norm's."""
        weight: Tensor = self.base.norm.weight
        return weight

    def embed(self, token_N: Tensor) -> Tensor:
        """Tokens to states."""
        state: Tensor = self.base.embed_tokens(token_N)
        return state

    def angles(self, position_N: Tensor) -> tuple[Tensor, ...]:
        """Cosines and sines, [N, D]."""
        cos, sin = self.base.rotary_emb(self.weight, position_N.unsqueeze(0))
        return cos[0], sin[0]

    def heads(self, layer: int, state_NW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values before their norms and turns."""
        attention, norm = self.layers[layer].self_attn, self.layers[layer].input_layernorm
        normed = kernels.rms_norm(state_NW, norm.weight, norm.variance_epsilon)
        parts = products(normed, attention.q_proj, attention.k_proj, attention.v_proj)
        query, key, value = (part.unflatten(1, (-1, self.head_size)) for part in parts)
        return query, key, value

    def norms(self, layer: int) -> tuple[Any, Any] | None:
        """The norms of queries and keys, where the network has them (Qwen3)."""
        attention = self.layers[layer].self_attn
        return (attention.q_norm, attention.k_norm) if "q_norm" in attention._modules else None

    def project(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Norm, projections, norms of queries and keys where the network has them, turns."""
        query, key, value = self.heads(layer, state_NW)
        norms = self.norms(layer)
        if norms is not None:
            query = kernels.rms_norm(query, norms[0].weight, norms[0].variance_epsilon)
            key = kernels.rms_norm(key, norms[1].weight, norms[1].variance_epsilon)
        cos, sin = angles
        return kernels.turned(query, cos, sin), kernels.turned(key, cos, sin), value

    def place(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...], cache: Places) -> Tensor:
        """Norms, turns and storing in one kernel on a GPU."""
        if not state_NW.is_cuda:
            query, key, value = self.project(layer, state_NW, angles)
            cache.store(key, value)
            return query
        norms = self.norms(layer)
        weights = None if norms is None else (norms[0].weight, norms[1].weight)
        epsilon = 0.0 if norms is None else norms[0].variance_epsilon
        placed: Tensor = kernels.compiled().place_heads(
            self.heads(layer, state_NW), weights, epsilon, angles, cache.keys, cache.values, cache.page, cache.offset
        )
        return placed

    def finish(self, layer: int, state_NW: Tensor, attended_NHD: Tensor) -> Tensor:
        """Residuals and gated perceptron."""
        block = self.layers[layer]
        state = added(block.self_attn.o_proj, attended_NHD.flatten(1), state_NW)
        norm, mlp = block.post_attention_layernorm, block.mlp
        normed = kernels.rms_norm(state, norm.weight, norm.variance_epsilon)
        return added(mlp.down_proj, kernels.gated(*products(normed, mlp.gate_proj, mlp.up_proj)), state)

    def logits(self, state_NW: Tensor) -> Tensor:
        """The output layer's products, summed and kept in float32."""
        norm = self.base.norm
        state, weight = kernels.rms_norm(state_NW, norm.weight, norm.variance_epsilon), self.head.weight
        if state.is_cuda and state.dtype == torch.bfloat16:
            return torch.mm(state, weight.t(), out_dtype=torch.float32)
        return torch.nn.functional.linear(state, weight).to(torch.promote_types(state.dtype, torch.float32))


def products(state_NW: Tensor, *linears: Any) -> list[Tensor]:
    """Each layer's product with its matrix, and what its adapters add; one product for all matrices that follow each
    other in memory, as the engine lays the parameters of a model.
    """
    bases = [base_of(linear) for linear in linears]
    weights = [base.weight for base in bases]
    ends = [weight.data_ptr() + weight.numel() * weight.element_size() for weight in weights]
    joins = all(base.bias is None for base in bases)
    joins &= len({weight.untyped_storage().data_ptr() for weight in weights}) == 1
    joins &= all(end == after.data_ptr() for end, after in zip(ends, weights[1:], strict=False))
    if joins:
        sizes, first = [len(weight) for weight in weights], weights[0].detach()
        whole = first.as_strided((sum(sizes), first.shape[1]), (first.shape[1], 1), first.storage_offset())
        results = list(nn.functional.linear(state_NW, whole).split(sizes, 1))
    else:
        results = [nn.functional.linear(state_NW, base.weight, base.bias) for base in bases]
    return [adapted(result, linear, state_NW) for result, linear in zip(results, linears, strict=True)]


def added(linear: Any, inner: Tensor, state: Tensor) -> Tensor:
    """state + linear(inner), in the state's own memory: the residual is added inside the product, without a copy."""
    base = base_of(linear)
    whole = state.addmm_(inner, base.weight.t())
    return adapted(whole if base.bias is None else whole.add_(base.bias), linear, inner)


# ------------------------------------------------------------------------------------------------------- adapters
class Adapter(NamedTuple):
    """scaling * up (down x), beside a matrix."""

    down_RW: Tensor
    up_VR: Tensor
    scaling: float


def adapted(result: Tensor, linear: Any, inner: Tensor) -> Tensor:
    """What a layer's matrix gave, and what its active adapters add to it in its place."""
    for adapter in adapters_of(linear):
        result.addmm_(inner @ adapter.down_RW.t(), adapter.up_VR.t(), alpha=adapter.scaling)
    return result


def is_adapted(linear: Any) -> bool:
    """Whether this is a layer of peft with low-rank adapters; peft itself is not needed to see that."""
    return (type(linear).__module__, type(linear).__name__) == ("peft.tuners.lora.layer", "Linear")


def base_of(linear: Any) -> Any:
    """The layer below its adapters."""
    return linear.base_layer if is_adapted(linear) else linear


def adapters_of(linear: Any) -> list[Adapter]:
    """Those that are on and not in the matrix already."""
    if not is_adapted(linear) or linear.disable_adapters or linear.merged:
        return []
    names = [name for name in linear.active_adapters if name in linear.lora_A]
    weights = [(linear.lora_A[name].weight, linear.lora_B[name].weight, linear.scaling[name]) for name in names]
    return [Adapter(down, up, scaling) for down, up, scaling in weights]


def is_known(linear: Any) -> bool:
    """Whether the products here are all that the layer does: a matrix, with or without low-rank adapters of its own
    type; none that rescale (DoRA), drop out while they train, have a bias, or choose by token.
    """
    base = base_of(linear)
    if type(base) is not nn.Linear:
        return False
    if not is_adapted(linear):
        return True
    inner = [*linear.lora_A.values(), *linear.lora_B.values()]
    drops = [one for one in linear.lora_dropout.values() if isinstance(one, nn.Dropout) and one.training and one.p]
    odd = linear.lora_variant or linear.fan_in_fan_out or drops or any(one.bias is not None for one in inner)
    return not odd and all(one.weight.dtype == base.weight.dtype for one in inner)


def identity_of(network: Any) -> tuple[Any, ...]:
    """What a recorded step depends on beside the numbers in memory: where weights are, and which adapters are on."""
    places = [weight.data_ptr() for weight in network.parameters()]
    adapters = [one for module in network.modules() for one in adapters_of(module)]
    return (*places, *((one.down_RW.data_ptr(), one.scaling) for one in adapters))


# --------------------------------------------------------------------------------------------------------- choice
def stack_of(actor: Any) -> Stack | None:
    """The actor's layers, where they are of a kind known here."""
    if isinstance(getattr(actor, "trunk", None), Trunk):
        return TrunkStack(actor)
    network = getattr(actor, "network", None)
    config = getattr(network, "config", None)
    if (
        network is None
        or config is None
        or config.model_type not in KNOWN
        or getattr(config, "use_sliding_window", False)
    ):
        return None
    plain = config.hidden_act == "silu" and not getattr(config, "sliding_window", None)
    plain &= getattr(network.base_model.rotary_emb, "rope_type", "default") not in STRETCHED
    return LlamaStack(actor) if plain and has_known_layers(network) else None


def has_known_layers(network: Any) -> bool:
    """Whether every layer that is multiplied here is known, and the output layer one matrix alone."""
    head, layers = network.get_output_embeddings(), network.base_model.layers
    linears = [
        linear
        for layer in layers
        for block, names in ((layer.self_attn, "q k v o"), (layer.mlp, "gate up down"))
        for linear in (block.get_submodule(f"{name}_proj") for name in names.split())
    ]
    return type(head) is nn.Linear and head.bias is None and all(map(is_known, linears))
