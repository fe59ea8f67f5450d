"""Buffers of a sampler: tokens and log-probabilities of B results, and their uniform numbers.

Axes: B results, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.decoding.pages import CachedRow, Prompt, Way
from assay.ops.decoded import Stop, Written


@dataclass
class Results:
    """Buffers for results on the device, [B, N] and `limit` [B]; the last row and the last column are padding."""

    tokens: Tensor
    logp: Tensor
    logp_model: Tensor
    uniform: Tensor
    limit: Tensor

    @classmethod
    def empty(cls, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Results:
        """Returns empty buffers; log-probabilities in float32 or wider."""
        numbers = torch.zeros(3, rows, columns, dtype=torch.promote_types(dtype, torch.float32), device=device)
        tokens = torch.zeros(rows, columns, dtype=torch.int64, device=device)
        return cls(tokens, numbers[0], numbers[1], numbers[2], torch.ones(rows, dtype=torch.int64, device=device))

    def holds(self, num: int, most: int) -> bool:
        """Returns whether there is room for `num` results of `most` tokens."""
        return self.tokens.shape[0] > num and self.tokens.shape[1] > most

    def larger(self, num: int, most: int) -> Results:
        """Returns buffers large enough for these and for the previous capacity."""
        rows, columns = self.tokens.shape
        return Results.empty(max(num + 1, rows), max(most + 1, columns), self.logp.dtype, self.tokens.device)

    def begin(self, uniform_BN: Tensor | None, limit_B: Tensor) -> None:
        """Resets the buffers for new results."""
        if uniform_BN is not None:
            most = int(limit_B.max())
            self.uniform[: len(limit_B), :most].copy_(uniform_BN[:, :most])
        self.limit[: len(limit_B)].copy_(limit_B)
        self.tokens.fill_(-1)  # no token: an end token of an older result would end a new one

    def tokens_since(self, result_N: Tensor, since: Sequence[int], many: Sequence[int]) -> list[list[int]]:
        """Returns tokens of these results from `since` on, at least up to `many`."""
        column = torch.arange(max(1, max(num - first for num, first in zip(many, since, strict=True))))
        where = (torch.tensor(since).unsqueeze(1) + column).clamp(max=self.tokens.shape[1] - 1).to(result_N.device)
        found: list[list[int]] = self.tokens[result_N.unsqueeze(1), where].tolist()
        return found

    def written(self, num: int, most: int, cut: dict[int, int], way: Way) -> Written:
        """Returns the first `num` results; `cut` is where a stop string ended one."""
        tokens, logp, limit = self.tokens[:num, :most].clone(), self.logp[:num, :most].clone(), self.limit[:num]
        # Ends are found here, once, and not step by step: the device never tells the host which token it drew.
        ends = (tokens == way.eos) & (torch.arange(most, device=tokens.device) < limit.unsqueeze(1))
        has_ended = ends.any(1)
        length = torch.where(has_ended, ends.long().argmax(1) + 1, limit)
        if cut:
            where, last = (torch.tensor(list(some), device=tokens.device) for some in (cut, cut.values()))
            length[where], has_ended[where] = last, True
        model = self.logp_model[:num, :most].clone() if way.change is not None else None
        return Written(tokens, logp, length, has_ended, model)


class Routes:
    """The experts that each token of B texts chose in all layers, plus one, by its place in the text [B, T, E]; 0 where
    it was not read. The last row and column are padding.
    """

    def __init__(self, num: int, most: int, many: int, device: torch.device) -> None:
        self.table = torch.zeros(num + 1, most + 1, many, dtype=torch.int16, device=device)

    @classmethod
    def of(cls, rows: Sequence[CachedRow], new: int, many: int, device: torch.device) -> Routes | None:
        """Returns room for rows that write up to `new` tokens, each with `many` choices; None without choices."""
        most = max(len(row.prompt.tokens) + len(row.own) for row in rows) + new
        return cls(len(rows), most, many, device) if many else None

    def note(self, result_N: Tensor, place_N: Tensor, chosen: Sequence[Tensor], over_N: Tensor) -> None:
        """Records the choices of tokens, by layer, at these places of these results, but of rows that are over."""
        rows, columns, _ = self.table.shape
        where = result_N.masked_fill(over_N, rows - 1), place_N.clamp(max=columns - 1)
        before = self.table[where]  # a token that is read again was decided by what it chose first
        self.table[where] = torch.where(before > 0, before, (torch.cat([*chosen], 1) + 1).to(before.dtype))

    def keep(self, prompts: Sequence[Prompt], chosen: Sequence[Tensor]) -> None:
        """Keeps the choices of concatenated prompts with each of them."""
        lengths = [len(prompt.tokens) for prompt in prompts]
        for prompt, own in zip(prompts, torch.cat([*chosen], 1).split(lengths), strict=True):
            prompt.chosen = own

    def begin(self, rows: Iterable[CachedRow]) -> None:
        """Records those of the prompts of rows that join."""
        for row in rows:
            assert row.prompt.chosen is not None
            place = torch.arange(len(row.prompt.tokens), device=self.table.device)
            result, over = torch.full_like(place, row.result), torch.zeros_like(place, dtype=torch.bool)
            self.note(result, place, [row.prompt.chosen], over)

    def written(self) -> Tensor:
        """Returns them all."""
        return self.table[:-1, :-1]


def first_stop(row: CachedRow, tokens: Sequence[int], since: int, num: int, stop: Stop) -> int | None:
    """Returns how many of a row's tokens there are where a stop string is first complete; `tokens` are those from
    `since` on, of which all up to `num` have then been searched.
    """
    before = row.said[-stop.reach :] if not since else []
    found = stop.first(before + list(tokens[: num - since]), len(before) + row.looked - since)
    row.looked = num
    return None if found is None else found - len(before) + since


class Versions:
    """The version of the weights that decides each token [B, N], if `newest` may change them; it returns theirs."""

    def __init__(self, newest: Callable[[], int], num: int, most: int) -> None:
        self.newest, self.last = newest, newest()
        self.known = torch.full((num, most), self.last)

    def turn(self, rows: Iterable[CachedRow]) -> None:
        """Lets the weights change; the tokens that these rows have not written are decided by the new ones."""
        before, self.last = self.last, self.newest()
        for row in rows if self.last != before else ():
            self.known[row.result, row.time :] = self.last
