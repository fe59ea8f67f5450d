"""Buffers of a sampler: tokens and log-probabilities of B results, and their uniform numbers.

Axes: B results, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.decoding.pages import CachedRow, Way
from assay.ops.decoded import Written


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
