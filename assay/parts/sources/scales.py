"""Units of recorded rewards. Axes: R transitions in the order of their episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Choice

Columns = dict[str, Tensor]


class RewardScale(Choice, Protocol):
    """The factor of the rewards of offline data, computed from them before the first update.

    Source: arXiv:2110.06169, appendix B. Assumes that scale alone matters. Degenerate: factor 1 changes nothing.
    """

    def __call__(self, datasets: Sequence[Columns]) -> float:
        """Returns one factor for the rewards of all datasets."""


@dataclass(frozen=True)
class ReturnRange(RewardScale):
    """factor = decisions / (best return - worst return): a decision is worth about 1, whatever the rewards' units.

    IQL's 1000 / range on D4RL (arXiv:2110.06169, appendix B), whose episodes have 1,000 decisions; with 0, `decisions`
    are those of the longest episode of the data. An episode that the data cut off counts as it is. Degenerate: equal
    returns count by their size, and data without rewards stay as they are. Assumes that the best and the worst episode
    are typical of the task.
    """

    decisions: int = 0

    def __post_init__(self) -> None:
        if self.decisions < 0:
            raise AssayError(
                f"ReturnRange.decisions is {self.decisions}. Use 0 for the longest episode, or their number"
            )

    def __call__(self, datasets: Sequence[Columns]) -> float:
        found = [returns_of(each) for each in datasets]
        returns, lengths = (torch.cat(parts) for parts in zip(*found, strict=True))
        if not len(returns):
            return 1.0
        span = float(returns.max() - returns.min()) or float(returns.abs().max())
        return (self.decisions or int(lengths.max())) / span if span else 1.0


def returns_of(columns: Columns) -> tuple[Tensor, Tensor]:
    """Returns (return, number of decisions) of each episode of transitions [R, 2], float64 and whole."""
    reward, here = columns["reward"][:, 0].double(), columns["mask"][:, 0]
    over = (columns["terminal"] | columns["truncated"])[:, 0]
    episode = over.long().cumsum(0) - over.long()
    num = int(episode[-1]) + 1 if len(episode) else 0
    returns = torch.zeros(num, dtype=torch.float64).index_add_(0, episode, reward * here)
    return returns, torch.bincount(episode, minlength=num)


def returns_to_go(reward_N: Tensor, is_last_N: Tensor, discount: float) -> Tensor:
    """Returns sum_k discount^k r_t+k to the end of the row's episode [N], float64, of rows in the order in which they
    were recorded; an episode that was cut off counts no reward after its last row.
    """
    onward, found = 0.0, list[float]()
    for reward, is_last in zip(reward_N.double().flip(0).tolist(), is_last_N.flip(0).tolist(), strict=True):
        onward = reward + (0.0 if is_last else discount * onward)
        found.append(onward)
    return torch.tensor(found, dtype=torch.float64).flip(0)


def rescaled(datasets: Sequence[Columns], scale: RewardScale | None) -> tuple[Columns, ...]:
    """Returns the datasets with their rewards times the factor; as they are without a scale."""
    if scale is None:
        return tuple(datasets)
    factor = scale(datasets)
    return tuple({**columns, "reward": factor * columns["reward"]} for columns in datasets)
