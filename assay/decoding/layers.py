"""Layers as decoding needs them: one interface for our transformer and for described networks of transformers.

Axes: N tokens, W width, H query heads, K key heads, D head size, R rank, V vocabulary. Weights are the trainer's own,
never copied or merged: a low-rank adapter is two more products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from assay.decoding import kernels
from assay.models.bodies.transformer import Trunk
from assay.models.pretrained import description
from assay.models.pretrained.description import Norm
from assay.ops.attention import Attention


@dataclass
class CachePlaces:
    """Where a step's keys and values are stored: one layer's pages [pages, page, K, D], each row's page and offset."""

    keys: Tensor
    values: Tensor
    page: Tensor
    offset: Tensor

    def store(self, key_NKD: Tensor, value_NKD: Tensor) -> None:
        """Writes keys and values."""
        self.keys[self.page, self.offset], self.values[self.page, self.offset] = key_NKD, value_NKD


class Stack(Protocol):
    """A decoder in parts, so that the owner of the cache can compute the attention."""

    num_layers: int
    num_heads: int
    num_key_heads: int
    head_size: int
    identity: tuple[Any, ...]
    """See `identity_of`: steps that were recorded with another identity are invalid."""
    is_static: bool
    """Whether a step runs the same kernels whatever the numbers, so that it can be recorded."""
    num_choices: int
    """Experts that a token chooses in all layers together; 0 without experts."""
    chosen: list[Tensor]
    """Those of the last pass, [N, K] for each layer with experts."""

    @property
    def weight(self) -> Tensor:
        """A weight, for its dtype and device."""

    def attention(self, layer: int) -> Attention:
        """Returns what a layer's attention computes."""

    def embed(self, token_N: Tensor) -> Tensor:
        """Maps tokens to states [N, W]."""

    def angles(self, position_N: Tensor) -> tuple[Tensor, ...]:
        """Returns the rotary angles of queries and keys at these positions, each [N, ...]; the same for all layers."""

    def project(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns query [N, H, D], key and value [N, K, D], rotated."""

    def place(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...], cache: CachePlaces) -> Tensor:
        """Returns query [N, H, D]; stores keys and values in `cache`."""

    def finish(self, layer: int, state_NW: Tensor, attended_NHD: Tensor) -> Tensor:
        """Returns the layer's output from the attention's; may overwrite the state."""

    def logits(self, state_NW: Tensor) -> Tensor:
        """Returns float32 (or wider) logits [N, V] after the last layer."""


class TrunkStack:
    """Our own transformer."""

    def __init__(self, actor: Any) -> None:
        trunk = actor.trunk
        assert isinstance(trunk, Trunk)
        # Not the actor itself, which owns the sampler: a reference would be a cycle.
        self.output, self.forbidden, self.temperature = actor.output, actor.forbidden, actor.temperature
        self.trunk, self.blocks, self.identity = trunk, trunk.layers(), identity_of(actor)
        self.num_layers, self.head_size = len(self.blocks), trunk.head_size
        self.num_heads = self.num_key_heads = self.blocks[0].num_heads
        self.how, self.is_static, self.num_choices = Attention(self.head_size**-0.5), True, 0
        self.chosen: list[Tensor] = []

    @property
    def weight(self) -> Tensor:
        """The weight of the last norm."""
        return self.trunk.norm

    def attention(self, layer: int) -> Attention:
        """Returns causal attention over all tokens."""
        return self.how

    def embed(self, token_N: Tensor) -> Tensor:
        """Maps tokens to states."""
        return self.trunk.embedding(token_N)

    def angles(self, position_N: Tensor) -> tuple[Tensor, ...]:
        """Returns complex rotations."""
        return (self.trunk.turn(position_N.unsqueeze(1)),)

    def project(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Projects each row as a sequence of one token."""
        query, key, value = self.blocks[layer].project(state_NW.unsqueeze(1), angles[0])
        return query[:, :, 0], key[:, :, 0], value[:, :, 0]

    def place(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...], cache: CachePlaces) -> Tensor:
        """Projects, then stores keys and values."""
        query, key, value = self.project(layer, state_NW, angles)
        cache.store(key, value)
        return query

    def finish(self, layer: int, state_NW: Tensor, attended_NHD: Tensor) -> Tensor:
        """Adds the residuals and the MLP."""
        return self.blocks[layer].finish(state_NW.unsqueeze(1), attended_NHD.unsqueeze(2)).squeeze(1)

    def logits(self, state_NW: Tensor) -> Tensor:
        """Returns the actor's logits, which exclude its forbidden tokens."""
        logits = self.output(self.trunk.last_norm(state_NW)) / self.temperature + self.forbidden
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class PretrainedStack:
    """A network of transformers as its description says: RMS norms, rotary halves, grouped heads, gated MLP."""

    def __init__(self, actor: Any) -> None:
        network = actor.network
        config, self.base, self.head = network.config, network.base_model, network.get_output_embeddings()
        self.described, self.temperature = description.described(network), actor.temperature
        self.of_heads, self.mlps = self.described.heads, self.described.mlps
        self.num_layers, self.head_size = len(self.mlps), int(self.of_heads[0].module.head_dim)
        self.num_heads, self.num_key_heads = config.num_attention_heads, config.num_key_value_heads
        experts = [mlp.experts for mlp in self.mlps if mlp.experts is not None]
        self.identity, self.is_static = identity_of(network), not experts
        self.num_choices, self.chosen = sum(one.num_chosen for one in experts), list[Tensor]()

    @property
    def weight(self) -> Tensor:
        """The weight of the last norm."""
        return self.described.norm.weight

    def attention(self, layer: int) -> Attention:
        """Returns what a layer's attention computes."""
        return self.of_heads[layer].how

    def embed(self, token_N: Tensor) -> Tensor:
        """Maps tokens to states; a pass begins here."""
        self.chosen = []
        state: Tensor = self.base.embed_tokens(token_N)
        return state

    def angles(self, position_N: Tensor) -> tuple[Tensor, ...]:
        """Returns cosines and sines of each kind of angles in turn, [N, D]."""
        return description.angles(self.base, self.described.kinds, self.weight, position_N)

    def turns(self, layer: int, angles: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Returns the layer's own cosines and sines."""
        first = 2 * self.of_heads[layer].angles
        return angles[first], angles[first + 1]

    def heads(self, layer: int, state_NW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values before their norms and rotations."""
        attention = self.of_heads[layer].module
        normed = normal(self.of_heads[layer].before, state_NW)
        parts = products(normed, attention.q_proj, attention.k_proj, attention.v_proj)
        query, key, value = (part.unflatten(1, (-1, self.head_size)) for part in parts)
        return query, key, value

    def project(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Applies norm, projections, norms of queries and keys if the network has them, and rotations."""
        query, key, value = self.heads(layer, state_NW)
        norms = self.of_heads[layer].norms
        if norms is not None:
            query, key = normal(norms[0], query), normal(norms[1], key)
        cos, sin = self.turns(layer, angles)
        return kernels.turned(query, cos, sin), kernels.turned(key, cos, sin), value

    def place(self, layer: int, state_NW: Tensor, angles: tuple[Tensor, ...], cache: CachePlaces) -> Tensor:
        """Applies norms, rotations and storing, in one kernel on a GPU where it knows the norms."""
        norms = self.of_heads[layer].norms
        if not state_NW.is_cuda or (norms is not None and not norms[0].is_plain):
            query, key, value = self.project(layer, state_NW, angles)
            cache.store(key, value)
            return query
        weights = None if norms is None else (norms[0].weight, norms[1].weight)
        epsilon = 0.0 if norms is None else norms[0].epsilon
        placed: Tensor = kernels.compiled().place_heads(
            self.heads(layer, state_NW), weights, epsilon, self.turns(layer, angles),
            cache.keys, cache.values, cache.page, cache.offset,
        )  # fmt: skip
        return placed

    def finish(self, layer: int, state_NW: Tensor, attended_NHD: Tensor) -> Tensor:
        """Adds the residuals and the gated MLP."""
        heads, mlp = self.of_heads[layer], self.mlps[layer]
        state = joined(heads.module.o_proj, attended_NHD.flatten(1), state_NW, heads.after)
        normed = normal(mlp.before, state)
        if mlp.experts is not None:
            mixed, chosen = mlp.experts.mixed(normed)
            self.chosen.append(chosen)
            return state.add_(mixed if mlp.after is None else normal(mlp.after, mixed))
        gate, up = products(normed, mlp.module.gate_proj, mlp.module.up_proj)
        inner = kernels.gated(gate, up) if mlp.activation is nn.functional.silu else mlp.activation(gate) * up
        return joined(mlp.module.down_proj, inner, state, mlp.after)

    def logits(self, state_NW: Tensor) -> Tensor:
        """Returns the output layer's products, summed and kept in float32, capped where the network does."""
        state, weight, cap = normal(self.described.norm, state_NW), self.head.weight, self.described.cap
        if self.temperature != 1.0 and not cap:
            state = state / self.temperature  # rounded as in `PretrainedActor.judged`
        if state.is_cuda and state.dtype == torch.bfloat16:
            logits = torch.mm(state, weight.t(), out_dtype=torch.float32)
        else:
            logits = nn.functional.linear(state, weight).to(torch.promote_types(state.dtype, torch.float32))
        return cap * torch.tanh(logits / cap) / self.temperature if cap else logits


def normal(norm: Norm, state: Tensor) -> Tensor:
    """Returns the normed state."""
    if norm.is_plain:
        return kernels.rms_norm(state, norm.weight, norm.epsilon)
    return kernels.rms_norm(state, norm.weight, norm.epsilon, norm.shift, norm.is_wide)


def joined(linear: Any, inner: Tensor, state: Tensor, norm: Norm | None) -> Tensor:
    """Returns state + linear(inner), the second normed if there is a norm, in the state's own memory."""
    if norm is None:
        return added(linear, inner, state)
    return state.add_(normal(norm, products(inner, linear)[0]))


def products(state_NW: Tensor, *linears: Any) -> list[Tensor]:
    """Returns each layer's product with its matrix, and its adapters' contribution; one product for all matrices that
    are adjacent in memory, as the engine lays out a model's parameters.
    """
    bases = [base_of(linear) for linear in linears]
    weights = [base.weight for base in bases]
    ends = [weight.data_ptr() + weight.numel() * weight.element_size() for weight in weights]
    # One product for several matrices: with few rows the GPU waits for memory, not for arithmetic.
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
    """Returns state + linear(inner) in the state's own memory: the product adds the residual, without a copy."""
    base = base_of(linear)
    # In place: no copy of the state in each layer.
    whole = state.addmm_(inner, base.weight.t())
    return adapted(whole if base.bias is None else whole.add_(base.bias), linear, inner)


# ------------------------------------------------------------------------------------------------------- adapters
class Adapter(NamedTuple):
    """scaling * up (down x), beside a matrix."""

    down_RW: Tensor
    up_VR: Tensor
    scaling: float


def adapted(result: Tensor, linear: Any, inner: Tensor) -> Tensor:
    """Adds the contribution of a layer's active adapters to its result, in place."""
    for adapter in adapters_of(linear):
        result.addmm_(inner @ adapter.down_RW.t(), adapter.up_VR.t(), alpha=adapter.scaling)
    return result


def is_adapted(linear: Any) -> bool:
    """Returns whether this is a layer of peft with low-rank adapters; does not import peft."""
    return (type(linear).__module__, type(linear).__name__) == ("peft.tuners.lora.layer", "Linear")


def base_of(linear: Any) -> Any:
    """Returns the layer below its adapters."""
    return linear.base_layer if is_adapted(linear) else linear


def adapters_of(linear: Any) -> list[Adapter]:
    """Returns the adapters that are active and not merged into the matrix."""
    if not is_adapted(linear) or linear.disable_adapters or linear.merged:
        return []
    names = [name for name in linear.active_adapters if name in linear.lora_A]
    weights = [(linear.lora_A[name].weight, linear.lora_B[name].weight, linear.scaling[name]) for name in names]
    return [Adapter(down, up, scaling) for down, up, scaling in weights]


def is_known(linear: Any) -> bool:
    """Returns whether the products here are all that the layer does: a matrix, with or without low-rank adapters of
    its own dtype; none that rescale (DoRA), drop out in training, have a bias, or choose by token.
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
    """Returns what a recorded step depends on besides numbers: addresses of weights, and active adapters."""
    places = [weight.data_ptr() for weight in network.parameters()]
    adapters = [one for module in network.modules() for one in adapters_of(module)]
    return (*places, *((one.down_RW.data_ptr(), one.scaling) for one in adapters))


# --------------------------------------------------------------------------------------------------------- choice
def stack_of(actor: Any) -> Stack | None:
    """Returns the actor's layers if they are of a known kind, else None."""
    if isinstance(getattr(actor, "trunk", None), Trunk):
        return TrunkStack(actor)
    return PretrainedStack(actor) if not trouble(getattr(actor, "network", None)) else None


def trouble(network: Any) -> str:
    """Returns why a network is not decoded here; empty if it is."""
    return description.trouble(network) or ("" if has_known_layers(network) else "it has layers of another kind")


def has_known_layers(network: Any) -> bool:
    """Returns whether every layer that is multiplied here is known, and the output layer is one matrix alone."""
    head, found = network.get_output_embeddings(), list[bool]()
    for layer in network.base_model.layers:
        found += [is_known(layer.self_attn.get_submodule(f"{name}_proj")) for name in "qkvo"]
        experts = description.experts_of(layer.mlp)
        if experts is None:
            found += [is_known(layer.mlp.get_submodule(f"{name}_proj")) for name in ("gate", "up", "down")]
        else:  # the network's own code, without adapters
            found += [type(one).__module__.startswith("transformers.") for one in (experts.router, experts.module)]
    return type(head) is nn.Linear and head.bias is None and all(found)
