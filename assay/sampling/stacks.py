"""Layers as decoding needs them: one face for our transformer and for Llama-like networks of transformers.

Axes: N tokens, W width, H query heads, K key heads, D head size, V vocabulary. Modules are called, never copied: the
weights are the trainer's, and adapters inside them are active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from assay.networks.transformer import Trunk
from assay.sampling import kernels

KNOWN = ("llama", "qwen2", "qwen3", "mistral")


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

    @property
    def weight(self) -> Tensor:
        """A weight, for its type and device."""

    def embed(self, token_N: Tensor) -> Tensor:
        """Tokens to states [N, W]."""

    def angles(self, position_N: Tensor) -> Any:
        """What turns queries and keys at these positions; the same for all layers."""

    def project(self, layer: int, state_NW: Tensor, angles: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Query [N, H, D], key and value [N, K, D], turned."""

    def place(self, layer: int, state_NW: Tensor, angles: Any, cache: Places) -> Tensor:
        """Query [N, H, D]; keys and values go where `cache` says."""

    def finish(self, layer: int, state_NW: Tensor, attended_NHD: Tensor) -> Tensor:
        """The layer's result from what attention gave."""

    def logits(self, state_NW: Tensor) -> Tensor:
        """After the last layer: float32 (or wider) logits [N, V]."""


class TrunkStack:
    """Our own transformer."""

    def __init__(self, actor: Any) -> None:
        self.actor, trunk = actor, actor.trunk
        assert isinstance(trunk, Trunk)
        self.trunk, self.blocks = trunk, trunk.layers()
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

    def angles(self, position_N: Tensor) -> Tensor:
        """Complex turns."""
        return self.trunk.turn(position_N.unsqueeze(1))

    def project(self, layer: int, state_NW: Tensor, angles: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each row is a sequence of one token."""
        query, key, value = self.blocks[layer].project(state_NW.unsqueeze(1), angles)
        return query[:, :, 0], key[:, :, 0], value[:, :, 0]

    def place(self, layer: int, state_NW: Tensor, angles: Tensor, cache: Places) -> Tensor:
        """As projected."""
        query, key, value = self.project(layer, state_NW, angles)
        cache.store(key, value)
        return query

    def finish(self, layer: int, state_NW: Tensor, attended_NHD: Tensor) -> Tensor:
        """Residuals and perceptron."""
        return self.blocks[layer].finish(state_NW.unsqueeze(1), attended_NHD.unsqueeze(2)).squeeze(1)

    def logits(self, state_NW: Tensor) -> Tensor:
        """The actor's, without its forbidden tokens."""
        logits: Tensor = self.actor.logits(self.trunk.last_norm(state_NW))
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
        self.scale = float(attention.scaling)

    @property
    def weight(self) -> Tensor:
        """The last norm's."""
        weight: Tensor = self.base.norm.weight
        return weight

    def embed(self, token_N: Tensor) -> Tensor:
        """Tokens to states."""
        state: Tensor = self.base.embed_tokens(token_N)
        return state

    def angles(self, position_N: Tensor) -> tuple[Tensor, Tensor]:
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

    def project(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Norm, projections, norms of queries and keys where the network has them, turns."""
        query, key, value = self.heads(layer, state_NW)
        norms = self.norms(layer)
        if norms is not None:
            query = kernels.rms_norm(query, norms[0].weight, norms[0].variance_epsilon)
            key = kernels.rms_norm(key, norms[1].weight, norms[1].variance_epsilon)
        return kernels.turned(query, *angles), kernels.turned(key, *angles), value

    def place(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, Tensor], cache: Places) -> Tensor:
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
    """Each layer's product; one product for all where plain matrices follow each other in memory, as the engine lays
    the parameters of a model.
    """
    weights = [linear.weight for linear in linears]
    ends = [weight.data_ptr() + weight.numel() * weight.element_size() for weight in weights]
    plain = all(type(linear) is nn.Linear and linear.bias is None for linear in linears)
    plain &= len({weight.untyped_storage().data_ptr() for weight in weights}) == 1
    if not plain or any(end != after.data_ptr() for end, after in zip(ends, weights[1:], strict=False)):
        return [linear(state_NW) for linear in linears]
    sizes = [len(weight) for weight in weights]
    first = weights[0].detach()
    whole = first.as_strided((sum(sizes), first.shape[1]), (first.shape[1], 1), first.storage_offset())
    return list(nn.functional.linear(state_NW, whole).split(sizes, 1))


def added(linear: Any, inner: Tensor, state: Tensor) -> Tensor:
    """state + linear(inner), in one product where the layer is a plain matrix (an adapter is not)."""
    if type(linear) is nn.Linear and linear.bias is None:
        return torch.addmm(state, inner, linear.weight.t())
    result: Tensor = state + linear(inner)
    return result


def stack_of(actor: Any) -> Stack | None:
    """The actor's layers, where they are of a kind known here."""
    if isinstance(getattr(actor, "trunk", None), Trunk):
        return TrunkStack(actor)
    network = getattr(actor, "network", None)
    config = getattr(network, "config", None)
    if config is None or config.model_type not in KNOWN or getattr(config, "use_sliding_window", False):
        return None
    plain = config.hidden_act == "silu" and not getattr(config, "sliding_window", None)
    return LlamaStack(actor) if plain else None
