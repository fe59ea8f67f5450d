"""Episode costs and cost advantages, shared by the constraints. Axes: B, T, K costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Need
from assay.core.slots import Annotation, Choice, Over
from assay.ops import groups, returns


def channel_of(experience: Experience, channel: int) -> Tensor:
    """Returns one cost channel of each decision, [B, T], zero where masked."""
    if experience.cost is None:
        raise AssayError(
            "this constraint needs costs, and the task gives none. Use a task with costs or drop the constraint"
        )
    return experience.cost[..., channel] * experience.mask


def ended_costs(experience: Experience, channel: int) -> Tensor:
    """Returns the total cost of each episode that ended in this batch, [E], with what it cost in earlier batches.

    That is the column `episode_cost`, which rollouts of fragments write. Without it, an episode is all rows of one
    label `episode`, or what a row holds since its previous end.
    """
    over = (experience.terminal | experience.truncated) & experience.mask
    cost, carried = channel_of(experience, channel), experience.extra.get("episode_cost")
    if carried is not None:
        return carried[..., channel][over]
    if experience.episode is not None:
        episodes = groups.episode_groups(experience)
        return groups.total(cost.sum(1), episodes)[groups.total(over.any(1).long(), episodes) > 0]
    row, column = over.nonzero(as_tuple=True)
    until = cost.cumsum(1)[row, column]
    before = torch.where(row[1:] == row[:-1], until[:-1], 0.0)
    return until - torch.nn.functional.pad(before, (1, 0))[: len(until)]


def episode_cost(experience: Experience, channel: int) -> float | None:
    """Returns J_C: the mean cost of the episodes that ended in this batch, None if none ended."""
    cost = ended_costs(experience, channel)
    return float(cost.double().mean()) if len(cost) else None


def centred(values_BT: Tensor, experience: Experience) -> Tensor:
    """Subtracts the mean over the batch's decisions; zero where masked."""
    return (
        values_BT - (values_BT * experience.weight).sum() / experience.num_decisions.clamp(min=1)
    ) * experience.weight


class CostCredit(Choice, Protocol):
    """Assigns costs to decisions: a setting of a constraint.

    Source: Ray et al. 2019. Assumes a cost channel. Degenerate: costs of 0 give credit 0.
    """

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Returns what it reads besides the record."""

    @property
    def writes(self) -> Collection[str]:
        """Returns the names of the columns it adds."""

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """Returns the columns to add, among them `cost_advantage`: centred, zero where masked."""

    def level(self, experience: Experience, channel: int) -> tuple[float | None, dict[str, float]]:
        """Returns the level that is held at the limit (by default the mean cost of an episode), and metrics; None if
        this batch does not show it.
        """
        cost = episode_cost(experience, channel)
        return cost, {} if cost is None else {"cost": cost}


@dataclass(frozen=True)
class CostToGo(CostCredit):
    """cost_advantage = discounted cost to go, centred over the batch; no critic.

    Degenerate: a batch of a single decision, or of none, has cost advantage 0. Source: Ray et al. 2019, without a
    critic. Assumes whole episodes.
    """

    discount: float = 0.99
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()
    writes: ClassVar[Mapping[str, str]] = {"cost_advantage": "BT: advantage of each decision in costs"}

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """Returns the cost advantage; a truncated episode counts the costs that were seen."""
        cost_BT = channel_of(experience, channel)
        to_go = returns.discounted_returns(
            cost_BT, experience.mask, experience.terminal, experience.truncated, self.discount
        )
        return {"cost_advantage": centred(to_go, experience)}


@dataclass(frozen=True)
class CostValues(Annotation):
    """V_C of every context by the critic `model`, also after the last decision, so that truncation bootstraps.

    Degenerate: rows without a decision have values too. Source: Ray et al. 2019. Assumes a critic of costs with that
    name.
    """

    column: str = "cost_value"
    means: ClassVar[str] = "BT: state value of costs"
    model: str = "cost_value"
    of_decisions: ClassVar[bool] = False

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        def values(critic: Any, rows: Experience) -> Tensor:
            value: Tensor = critic(rows.context)
            return value

        return over(experience, values)


@dataclass(frozen=True)
class CostCritic(CostCredit):
    """cost_advantage by GAE with a critic `cost_value`, centred; `cost_return` is the critic's target.

    Degenerate: gae_lambda 1 with V_C = 0 is `CostToGo`. Source: arXiv:1506.02438, on costs. Assumes that `CostValues`
    wrote the column.
    """

    discount: float = 0.99
    gae_lambda: float = 0.95
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({CostValues()})
    writes: ClassVar[Mapping[str, str]] = {
        "cost_advantage": "BT",
        "cost_return": "BT: regression target of the cost critic",
    }

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """Returns the columns. As for rewards, terminal steps do not bootstrap and truncated ones do."""
        value, ends = experience.column("cost_value"), (experience.terminal, experience.truncated)
        cost_BT = channel_of(experience, channel)
        advantage = returns.gae(cost_BT, value, experience.mask, *ends, self.discount, self.gae_lambda)
        learned = (advantage + value) * experience.mask
        return {"cost_advantage": centred(advantage, experience), "cost_return": learned}
