"""Episode costs and cost advantages, shared by the constraints. Axes: B, T, K costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Need
from assay.core.slots import Annotation, Choice, Over
from assay.ops import returns


def channel_of(experience: Experience, channel: int) -> Tensor:
    """Returns one cost channel of each decision, [B, T], zero where masked."""
    if experience.cost is None:
        raise AssayError(
            "this constraint needs costs, and the task gives none. Use a task with costs or drop the constraint"
        )
    return experience.cost[..., channel] * experience.mask


def episode_cost(experience: Experience, channel: int) -> float:
    """Returns J_C: the mean cost of the episodes that ended in this batch, or of its rows if none ended."""
    ended = (experience.terminal | experience.truncated) & experience.mask
    episodes = max(1, int(ended.sum()), len(experience) if not bool(ended.any()) else 0)
    return float(channel_of(experience, channel).sum()) / episodes


def centred(values_BT: Tensor, experience: Experience) -> Tensor:
    """Subtracts the mean over the batch's decisions; zero where masked."""
    return (
        values_BT - (values_BT * experience.weight).sum() / experience.num_decisions.clamp(min=1)
    ) * experience.weight


class CostCredit(Choice, Protocol):
    """Assigns costs to decisions: a setting of a constraint."""

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Returns what it reads besides the record."""

    @property
    def writes(self) -> tuple[str, ...]:
        """Returns the names of the columns it adds."""

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """Returns the columns to add, among them `cost_advantage`: centred, zero where masked."""

    def level(self, experience: Experience, channel: int) -> tuple[float, dict[str, float]]:
        """Returns the level that is held at the limit (by default the mean cost of an episode), and metrics."""
        cost = episode_cost(experience, channel)
        return cost, {"cost": cost}


@dataclass(frozen=True)
class CostToGo(CostCredit):
    """cost_advantage = discounted cost to go, centred over the batch; no critic."""

    discount: float = 0.99
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()
    writes: ClassVar[tuple[str, ...]] = ("cost_advantage",)

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """Returns the cost advantage; a truncated episode counts the costs that were seen."""
        cost_BT = channel_of(experience, channel)
        to_go = returns.discounted_returns(
            cost_BT, experience.mask, experience.terminal, experience.truncated, self.discount
        )
        return {"cost_advantage": centred(to_go, experience)}


@dataclass(frozen=True)
class CostValues(Annotation):
    """V_C of every context by the critic `model`, also after the last decision, so that truncation bootstraps."""

    column: str = "cost_value"
    model: str = "cost_value"
    of_decisions: ClassVar[bool] = False

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Evaluates the critic on the contexts."""

        def values(critic: Any, rows: Experience) -> Tensor:
            value: Tensor = critic(rows.context)
            return value

        return over(experience, values)


@dataclass(frozen=True)
class CostCritic(CostCredit):
    """cost_advantage by GAE with a critic `cost_value`, centred; `cost_return` is the critic's target."""

    discount: float = 0.99
    gae_lambda: float = 0.95
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({CostValues()})
    writes: ClassVar[tuple[str, ...]] = ("cost_advantage", "cost_return")

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """Returns the columns. As for rewards, terminal steps do not bootstrap and truncated ones do."""
        value, ends = experience.column("cost_value"), (experience.terminal, experience.truncated)
        cost_BT = channel_of(experience, channel)
        advantage = returns.gae(cost_BT, value, experience.mask, *ends, self.discount, self.gae_lambda)
        learned = (advantage + value) * experience.mask
        return {"cost_advantage": centred(advantage, experience), "cost_return": learned}
