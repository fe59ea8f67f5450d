"""A table over contexts of tokens that copies what its prompt shows: hints act as on a model that reads. Axes: B, T."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.slots import Ask
from assay.core.spaces import Spec
from assay.models.bodies.token_table import ContextTable, TokenTable


class ReadingContextTable(ContextTable):
    """Numbers of every context, and `copy` more for the token that the prompt shows at the place of the next one.

    Places count from the prompt's last token that is no choice, so that an answer has the same rows after every prompt.
    What is shown is the last run of choices before that token.
    """

    copy: float

    def __init__(self, spec: Spec, body: ReadingTable, ask: Ask) -> None:
        super().__init__(spec, body, ask)
        self.copy = body.copy if ask.shape == (self.choices,) else 0.0

    def first_place(self, prompt: Sequence[int]) -> int:
        return len(prompt) - self.mark_of(prompt) + 1

    def mark_of(self, prompt: Sequence[int]) -> int:
        """Returns the index of the prompt's last token that is no choice."""
        return max(place for place, chosen in enumerate(self.chosen(torch.tensor(prompt)).tolist()) if not chosen)

    def shown_in(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        found = [self.run_in(prompt[: self.mark_of(prompt)]) for prompt in prompts]
        longest = max(map(len, found))
        return torch.tensor([[*run, *[0] * (longest - len(run))] for run in found], dtype=torch.int64)

    def run_in(self, tokens: Sequence[int]) -> list[int]:
        """Returns the last run of choices."""
        run: list[int] = []
        for token in reversed(tokens):
            if int(self.chosen(torch.tensor(token))):
                run.insert(0, token)
            elif run:
                break
        return run

    def copied(self, found: Tensor, shown: Tensor) -> Tensor:
        if not self.copy:
            return found
        number = self.chosen(shown)
        is_there = torch.arange(1, self.choices + 1, device=found.device) == number.unsqueeze(-1)
        return found + self.copy * is_there.to(found.dtype)

    def before(self, tokens: Tensor) -> Tensor:
        column, rows = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape), len(tokens)
        is_choice = self.chosen(tokens) > 0
        earlier = [column.new_full((rows, 1), -1)]
        mark = torch.cat([*earlier, torch.where(is_choice, -1, column).cummax(1).values[:, :-1]], 1).clamp(min=0)
        last = torch.cat([*earlier, torch.where(is_choice, column, -1).cummax(1).values], 1)  # at t: before token t
        end = last.gather(1, mark)
        first = mark.gather(1, end.clamp(min=0)) + 1
        place = first + column - mark - 1
        shown = torch.where((end >= 0) & (place <= end), tokens.gather(1, place.clamp(0, tokens.shape[1] - 1)), 0)
        prompt = tokens[:, min(1, tokens.shape[1] - 1)].unsqueeze(1).expand(tokens.shape)
        number = self.row_of(prompt, column - mark + 1, tokens.new_zeros(*tokens.shape, 0))
        return self.copied(self.at(number), shown)


@dataclass(frozen=True)
class ReadingTable(TokenTable):
    """`TokenTable` of prompts and places that adds `copy` to the logit of what the prompt shows at the next place.

    A stand-in for a model that can use a text in its context: it copies a shown token with probability e^copy / (e^copy
    + choices - 1) at the start, and what it learns after a hint is known without it, since both share their rows.
    Assumes window 0. Values copy nothing. Degenerate: copy 0 ignores hints; without them it is `TokenTable`.
    """

    copy: float = 4.0

    def outputs(self, spec: Spec, ask: Ask) -> ContextTable:
        return ReadingContextTable(spec, self, ask)
