"""A network of one's own that reads tokens: any causal `nn.Module`. Axes: N rows, B, T tokens, W width, V vocabulary.

It has no cache: each token is sampled after reading all before it again, at a cost that grows with the square of the
length. `Transformer` and pretrained models keep theirs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import AssayError
from assay.core.spaces import Context, Spec, Vocabulary
from assay.models.bodies.hidden import Sequences

PROBE = 6
"""Tokens of the two rows that a module is tried on."""


class Example(nn.Module):
    """A small recurrent network of tokens, for the laws."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(vocab_size, 16), nn.GRU(16, 16, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns states [B, T, 16]."""
        found: Tensor = self.cell(self.embedding(tokens))[0]
        return found


class States(nn.Module):
    """The states of a module after and before each token; AssayError if it is not made for causal sequences."""

    def __init__(self, make: Callable[..., Any], size: int) -> None:
        super().__init__()
        self.name = getattr(make, "__name__", type(make).__name__)
        net = make(size) if inspect.signature(make).parameters else make()
        if not isinstance(net, nn.Module):
            what = f"body {self.name} made a {type(net).__name__}"
            raise AssayError(f"{what}. It must be an nn.Module, or a function that makes one")
        self.net = net
        if stray := next((name for name, one in net.named_modules() if isinstance(one, nn.Dropout) and one.p), ""):
            what = f"body {self.name} drops units at random ({stray})"
            raise AssayError(f"{what}, so that what is scored is not what was sampled. Use p=0")
        found = self.tried(size)
        self.width, self.dtype = found.shape[-1], found.dtype

    def tried(self, size: int) -> Tensor:
        """Returns the states of two rows whose last tokens differ; all states but the last must be equal."""
        tokens = torch.arange(PROBE).expand(2, -1) % size
        tokens = torch.cat((tokens[:, :-1], torch.tensor([[0], [size - 1]])), 1)
        try:
            with torch.no_grad():
                found = self.net(tokens)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise AssayError(
                f"body {self.name} cannot read tokens [rows, length] of a vocabulary of {size}: {error}. The size of "
                "the vocabulary is the argument that it is made with"
            ) from error
        if not isinstance(found, Tensor) or found.shape[:-1] != tokens.shape or not found.is_floating_point():
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            fix = f"Return a state of each token, [2, {PROBE}, W]"
            raise AssayError(f"body {self.name} returned {what} for tokens [2, {PROBE}]. {fix}")
        if not torch.allclose(found[0, :-1], found[1, :-1], rtol=1e-4, atol=1e-5):
            raise AssayError(
                f"body {self.name} is not causal: the states of earlier tokens change with the last one, which is not "
                "known when they are sampled. Mask what comes later"
            )
        return found

    def after(self, context: Context) -> Tensor:
        """Returns the state after each token, [B, T, W]."""
        found: Tensor = self.net(context["tokens"])
        return found

    def before(self, context: Context) -> Tensor:
        """Returns the state before each token: zeros at column 0, [B, T, W]."""
        found: Tensor = self.net(context["tokens"][:, :-1])
        return functional.pad(found, (0, 0, 1, 0))

    def decoder(
        self, output: Callable[[Tensor], Tensor], prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int
    ) -> Reader:
        """Returns a decoder of `repeats` rows of each prompt."""
        return Reader(self, output, prompts, repeats, num_new)


class Reader:
    """Decodes N rows token by token and reads each whole row again for the next one. Rows are padded at their ends,
    which a causal network does not see.
    """

    def __init__(
        self,
        states: States,
        output: Callable[[Tensor], Tensor],
        prompts: Sequence[Sequence[int]],
        repeats: Sequence[int],
        num_new: int,
    ) -> None:
        self.states, self.output = states, output
        device = next(states.parameters(), torch.empty(0)).device
        longest = max(map(len, prompts)) + num_new
        rows = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts], device=device)
        row = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(repeats)).to(device)
        self.tokens, self.used = rows[row], torch.tensor([len(prompt) for prompt in prompts], device=device)[row]

    def logits(self) -> Tensor:
        """Returns logits [N, V] for the next token."""
        found = self.states.net(self.tokens[:, : int(self.used.max())])
        return self.output(found[torch.arange(len(found), device=found.device), self.used - 1])

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        self.tokens[torch.arange(len(tokens), device=tokens.device), self.used] = tokens
        self.used = self.used + 1

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self.tokens, self.used = self.tokens[rows], self.used[rows]


@dataclass(frozen=True)
class TokenModule(Sequences):
    """Any causal `nn.Module` of tokens as a body: `make(V)`, a class or a function, from tokens [B, T] to a state of
    each token [B, T, W]; an output layer on top gives logits or values.

    It is tried when it is made: the state of a token may not change with later ones, and nothing may be dropped at
    random. One without arguments is made without. Degenerate: a module of no parameters gives fixed states.
    """

    make: Callable[..., Any] = Example

    def states(self, spec: Spec) -> States:
        if not isinstance(spec.observation, Vocabulary):
            what = f"a module of tokens needs a language task, this one has {spec.observation}"
            raise AssayError(f"{what}. Use ModuleBody(make)")
        return States(self.make, spec.observation.size)
