"""A small decoder-only transformer: rotary positions, RMS norms, causal attention. Axes: B, T, H heads, D head size.

The same weights are evaluated on whole sequences at once (training) and token by token with a cache (sampling).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import AssayError
from assay.core.spaces import Context, Spec, Vocabulary
from assay.models.bodies.hidden import Sequences
from assay.ops import packing


class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x)."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm_attention = nn.Parameter(torch.ones(width))
        self.norm_mlp = nn.Parameter(torch.ones(width))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def project(self, x: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rotated queries and keys, and values, each [B, H, T, D]."""
        batch, length, width = x.shape
        normed = functional.layer_norm(x, (width,), self.norm_attention)
        query_key, value = self.qkv(normed).split((2 * width, width), -1)
        query, key = rotate(query_key, turn).split(width, -1)
        shape = batch, length, self.num_heads, width // self.num_heads
        return query.view(shape).transpose(1, 2), key.view(shape).transpose(1, 2), value.view(shape).transpose(1, 2)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Adds the attention's output [B, H, T, D] and the MLP."""
        batch, length, width = x.shape
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        normed = functional.layer_norm(x, (width,), self.norm_mlp)
        return x + self.down(functional.gelu(self.up(normed)))

    def forward(self, x: Tensor, turn: Tensor, allowed: Tensor | None) -> Tensor:
        """Evaluates one layer on whole sequences; `allowed` [B, 1, T, T] replaces the causal mask for packed rows."""
        query, key, value = self.project(x, turn)
        return self.finish(x, attend(query, key, value, allowed))


def attend(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
    """Computes attention of whole sequences, causal unless `allowed` says what each query sees: [B, H, T, D]."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed, is_causal=allowed is None)


def rotate(heads: Tensor, turn: Tensor) -> Tensor:
    """Applies rotary position embedding (arXiv:2104.09864): neighbouring features are points, rotated by `turn`."""
    points = torch.view_as_complex(heads.to(turn.real.dtype).unflatten(-1, (-1, 2)))
    return torch.view_as_real(points * turn).flatten(-2).to(heads.dtype)


class Trunk(nn.Module):
    """Maps tokens [B, T] to hidden states [B, T, width]; `pack_to` as in `Transformer`."""

    has_layers_in_a_row = True

    def __init__(self, vocabulary: Vocabulary, width: int, num_layers: int, num_heads: int, pack_to: int = 0) -> None:
        super().__init__()
        self.head_size, self.pack_to = width // num_heads, pack_to
        self.embedding = nn.Embedding(vocabulary.size, width)
        self.blocks = nn.ModuleList(Block(width, num_heads) for _ in range(num_layers))
        self.norm = nn.Parameter(torch.ones(width))
        nn.init.normal_(self.embedding.weight, std=0.02)
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and "embedding" not in name:
                deep = (2 * num_layers) ** -0.5 if "out" in name or "down" in name else 1.0
                nn.init.normal_(weight, std=deep * weight.shape[1] ** -0.5)

    def layers(self) -> list[Block]:
        """The blocks, typed."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def turn(self, position: Tensor) -> Tensor:
        """Returns exp(i * position * 10000^(-2k/D)) for every pair k of queries and keys: complex [..., T, width]."""
        half = self.head_size // 2
        frequency = torch.exp(torch.arange(half, device=position.device) * (-math.log(10000.0) / half))
        angle = (position.unsqueeze(-1) * frequency).to(torch.promote_types(self.norm.dtype, torch.float32))
        return torch.polar(torch.ones_like(angle), angle).repeat(*[1] * position.dim(), self.norm.shape[0] // half)

    def forward(self, tokens: Tensor, position: Tensor | None = None, document: Tensor | None = None) -> Tensor:
        """Returns hidden states; `document` [B, T] separates packed sequences, `position` [B, T] restarts in each."""
        if position is None:
            position = torch.arange(tokens.shape[1], device=tokens.device)
        allowed = None if document is None else packing.same_document_before(document).unsqueeze(1)
        x, turn = self.embedding(tokens), self.turn(position)
        for block in self.blocks:
            x = block(x, turn, allowed)
        return self.last_norm(x)

    def last_norm(self, x: Tensor) -> Tensor:
        """Applies the norm after the last layer."""
        return functional.layer_norm(x, (x.shape[-1],), self.norm)

    def decoder(
        self, output: Callable[[Tensor], Tensor], prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int
    ) -> Cache:
        """Returns a decoder of `repeats` rows of each prompt."""
        return Cache(self, output, prompts, repeats, num_new)

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        return self.norm.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.norm.dtype

    def after(self, context: Context) -> Tensor:
        """Returns the state after each token, [B, T, width]."""
        hidden: Tensor = self(context["tokens"])
        return hidden

    def before(self, context: Context) -> Tensor:
        """Returns the state before each token: hidden states shifted by one, zeros at column 0, [B, T, width]."""
        tokens = context["tokens"][:, :-1]
        if self.pack_to:
            hidden = packing.through_packed(self, tokens, context["valid"][:, :-1], self.pack_to)
        else:
            hidden = self(tokens)
        return functional.pad(hidden, (0, 0, 1, 0))


@dataclass(frozen=True)
class Transformer(Sequences):
    """A decoder-only transformer for language tasks. The default has 0.4 million parameters.

    `pack_to`: pack short sequences into rows of this many tokens when scoring; 0 pads instead.
    """

    width: int = 128
    layers: int = 2
    heads: int = 4
    pack_to: int = 0

    def states(self, spec: Spec) -> Trunk:
        if not isinstance(spec.observation, Vocabulary):
            raise AssayError(
                f"a transformer needs a language task, this one has observations {spec.observation}. Use Perceptron()"
            )
        if self.width % (2 * self.heads):
            raise AssayError(
                f"width {self.width} is not a multiple of 2 x heads ({self.heads}). Try width {2 * self.heads * 16}"
            )
        return Trunk(spec.observation, self.width, self.layers, self.heads, self.pack_to)


class Cache:
    """Decodes N rows token by token: `logits` for the next token of each row, `push` the chosen tokens, `keep` the
    unfinished rows. Holds their keys and values, and the last hidden state of each, which `output` maps to logits.

    Rows are aligned at their ends: shorter prompts have unused slots in front, which are masked, so that all rows
    write the same slot. Rows of one prompt share its prefill.
    """

    def __init__(
        self,
        trunk: Trunk,
        output: Callable[[Tensor], Tensor],
        prompts: Sequence[Sequence[int]],
        repeats: Sequence[int],
        num_new: int,
    ) -> None:
        self.trunk, self.output = trunk, output
        device = trunk.norm.device
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        longest = int(lengths.max())
        unused = (longest - lengths).to(device)
        tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
        slot = torch.arange(longest, device=device)
        position = (slot - unused.unsqueeze(1)).clamp(min=0)
        seen = slot >= unused.unsqueeze(1)
        allowed = None
        if bool((lengths != longest).any()):
            causal = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
            # Unused slots attend to themselves, so that no softmax is empty.
            allowed = (causal & seen.unsqueeze(1) | torch.eye(longest, dtype=torch.bool, device=device)).unsqueeze(1)
        row = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(repeats)).to(device)
        self.layers: list[tuple[Tensor, Tensor]] = []
        x, turn = trunk.embedding(tokens), trunk.turn(position)
        for block in trunk.layers():
            query, key, value = block.project(x, turn)
            x = block.finish(x, attend(query, key, value, allowed))
            self.layers.append((room_for(key[row], num_new), room_for(value[row], num_new)))
        self.hidden = trunk.last_norm(x[:, -1])[row]
        self.used = longest
        self.unused = unused[row]
        self.ragged = allowed is not None

    def logits(self) -> Tensor:
        """Returns logits [N, V] for the next token."""
        return self.output(self.hidden)

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        position = (self.used - self.unused).unsqueeze(1)
        seen = None
        if self.ragged:
            slot = torch.arange(self.used + 1, device=tokens.device)
            seen = (slot >= self.unused.unsqueeze(1))[:, None, None]
        x, turn = self.trunk.embedding(tokens).unsqueeze(1), self.trunk.turn(position)
        for block, (keys, values) in zip(self.trunk.layers(), self.layers, strict=True):
            query, key, value = block.project(x, turn)
            keys[:, :, self.used] = key[:, :, 0]
            values[:, :, self.used] = value[:, :, 0]
            end = self.used + 1
            x = block.finish(x, attend_one(query, keys[:, :, :end], values[:, :, :end], seen))
        self.used += 1
        self.hidden = self.trunk.last_norm(x[:, 0])

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self.layers = [(keys[rows], values[rows]) for keys, values in self.layers]
        self.hidden, self.unused = self.hidden[rows], self.unused[rows]


def room_for(slots: Tensor, num_new: int) -> Tensor:
    """Returns [N, H, S, D] with `num_new` more slots."""
    return functional.pad(slots, (0, 0, 0, num_new))


def attend_one(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Computes attention of one query per row: [N, H, 1, D]."""
    scores = (query @ keys.transpose(-1, -2)) * query.shape[-1] ** -0.5
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    return scores.softmax(-1) @ values
