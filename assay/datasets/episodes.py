"""A dataset as episodes of experience, the inverse of `dataset.from_experience`.

Axes: E episodes, T columns, N rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.core.record import Experience, Origin
from assay.datasets.dataset import Dataset


def to_experience(data: Dataset) -> Experience:
    """Returns one sequence for each episode, whose last column holds the observation after the last decision.

    Where a row's next observation is not the next row's, that of the next row is shown. Without log-probabilities they
    are 0. Degenerate: episodes of unequal length are padded with masked zeros.
    """
    lengths = torch.tensor([last - first for first, last in data.bounds])
    num, longest = len(lengths), int(lengths.max())
    episode = torch.repeat_interleave(torch.arange(num), lengths)
    place = torch.arange(len(data)) - torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)

    def laid_out(column: Tensor, after: Tensor | None = None) -> Tensor:
        found = column.new_zeros(num, longest + 1, *column.shape[1:])
        found[episode, place] = column
        if after is not None:
            found[torch.arange(num), lengths] = after[data.ends]
        return found

    key = "observation" if data.observation.is_floating_point() else "state"
    context = {key: laid_out(data.observation, data.next_observation)}
    if data.achieved is not None and data.next_achieved is not None:
        context["achieved"] = laid_out(data.achieved, data.next_achieved)
    if data.goal is not None:
        context["goal"] = laid_out(data.goal, data.goal)
    return Experience(
        context,
        laid_out(data.action),
        laid_out(torch.ones(len(data), dtype=torch.bool)),
        laid_out(torch.zeros_like(data.reward) if data.logp is None else data.logp),
        laid_out(data.reward),
        laid_out(data.terminal),
        laid_out(data.truncated),
        cost=None if data.cost is None else laid_out(data.cost),
        source=torch.full((num,), int(Origin.DATASET)),
        extra={} if data.success is None else {"success": laid_out(data.success)},
    )
