"""A table over contexts of tokens: exact starting policies and closed forms for testbeds. Axes: N, B, T, C choices.

A context is the first token after bos (the prompt), the place of the next token, and the last `window` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body
from assay.core.spaces import Context, Spec, Vocabulary

LARGEST = 1 << 18
"""Most rows of a table."""


class ContextTable(nn.Module):
    """Numbers of every context, initialised to 0: a row each, or linear in fixed random features of the context.

    Choices are the tokens after the end token. All other tokens of a window count as one.
    """

    features: Tensor | None

    def __init__(self, spec: Spec, body: TokenTable, ask: Ask) -> None:
        super().__init__()
        vocabulary = spec.observation
        if not isinstance(vocabulary, Vocabulary):
            raise AssayError(f"a table of tokens needs a language task, this one has {vocabulary}. Use Table()")
        self.vocabulary, self.window, self.horizon = vocabulary, body.window, spec.horizon
        self.choices, self.members = min(body.choices, vocabulary.size - vocabulary.eos - 1), ask.members
        num_rows = vocabulary.size * spec.horizon * (self.choices + 1) ** self.window
        if num_rows > LARGEST:
            raise AssayError(f"a table with window {self.window} has {num_rows} rows, at most {LARGEST}. Lower window")
        actions = (self.choices,) if ask.action else ()
        features = None
        if body.rank:
            drawn = torch.randn(num_rows, body.rank, generator=torch.Generator().manual_seed(body.rank))
            features = drawn * body.rank**-0.5
        self.register_buffer("features", features, persistent=False)
        members = (ask.members,) if ask.members else ()
        self.table = nn.Parameter(torch.zeros(body.rank or num_rows, *actions, *ask.shape, *members))

    def chosen(self, token: Tensor) -> Tensor:
        """Returns the number of each token among the choices, from 1; 0 for all that are no choice."""
        number = token - self.vocabulary.eos
        return torch.where((number > 0) & (number <= self.choices), number, 0)

    def row_of(self, prompt: Tensor, place: Tensor, last: Tensor) -> Tensor:
        """Returns the row of contexts with these prompts, places and last tokens [..., window], newest first."""
        row = prompt * self.horizon + place.clamp(max=self.horizon - 1)
        for past in self.chosen(last).unbind(-1):
            row = row * (self.choices + 1) + past
        return row

    def rows_before(self, tokens: Tensor) -> Tensor:
        """Returns the row of the context before each token, [B, T]."""
        place = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        prompt = tokens[:, min(1, tokens.shape[1] - 1)].unsqueeze(1).expand(tokens.shape)
        past = [functional.pad(tokens, (back, 0))[:, : tokens.shape[1]] for back in range(1, self.window + 1)]
        return self.row_of(prompt, place, torch.stack(past, -1) if past else tokens.new_zeros(*tokens.shape, 0))

    def at(self, row: Tensor) -> Tensor:
        """Returns the numbers of these rows."""
        return self.table[row] if self.features is None else torch.tensordot(self.features[row], self.table, 1)

    def first_place(self, prompt: Sequence[int]) -> int:
        """Returns the place of the first token after a prompt."""
        return len(prompt)

    def shown_in(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Returns the tokens that each prompt shows for the places of an answer, [P, L], 0 for none: none at all."""
        return torch.zeros(len(prompts), 0, dtype=torch.int64)

    def copied(self, found: Tensor, shown: Tensor) -> Tensor:
        """Returns numbers [..., C] after what is shown for their places, [...], acted on them: the numbers."""
        return found

    def before(self, tokens: Tensor) -> Tensor:
        """Returns the numbers before each token, [B, T, ...]."""
        return self.at(self.rows_before(tokens))

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns the numbers before each token, or of the tokens chosen there; members are the first axis."""
        found = self.before(context["tokens"])
        if action is not None:
            chosen = (self.chosen(action) - 1).clamp(min=0).view(*action.shape, *[1] * (found.dim() - 2))
            found = found.gather(2, chosen.expand(*found.shape[:2], 1, *found.shape[3:])).squeeze(2)
        return found.movedim(-1, 0)[:num] if self.members else found


@dataclass(frozen=True)
class TokenTable(Body):
    """A row of numbers for each context of a language task with short answers, all 0 at the start: a uniform policy.

    `choices`: how many tokens can be chosen, those after the end token: answers end at the task's limit or with a stop
    string, never with the end token. `rank` > 0 makes the numbers linear in
    that many fixed random features of the context, so that contexts share parameters; 0 is a separate row for each.
    Assumes prompts of one token after bos: longer ones are told apart by their first token only, and decoding refuses
    a prompt of bos alone.
    """

    window: int = 0
    choices: int = 10
    rank: int = 0

    def outputs(self, spec: Spec, ask: Ask) -> ContextTable:
        return ContextTable(spec, self, ask)
