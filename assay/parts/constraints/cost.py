"""What constraints share: the cost of an episode, and which decision caused it. Axes: B, T, K costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Need
from assay.core.slots import Annotation, Choice, Over
from assay.ops import returns


def channel_of(experience: Experience, channel: int) -> Tensor:
    """One cost of each decision [B, T], zero where masked."""
    if experience.cost is None:
        raise AssayError(
            "this constraint needs costs, and the task gives none; choose a task with costs or drop the constraint"
        )
    return experience.cost[..., channel] * experience.mask


def episode_cost(experience: Experience, channel: int) -> float:
    """J_C: the mean cost of an episode that ended in this batch (of a row where none ended)."""
    ended = (experience.terminal | experience.truncated) & experience.mask
    episodes = max(1, int(ended.sum()), len(experience) if not bool(ended.any()) else 0)
    return float(channel_of(experience, channel).sum()) / episodes


def centred(values_BT: Tensor, experience: Experience) -> Tensor:
    """Minus the mean over the batch's decisions, zero where masked."""
    return (
        values_BT - (values_BT * experience.weight).sum() / experience.num_decisions.clamp(min=1)
    ) * experience.weight


class CostCredit(Choice, Protocol):
    """Which decision caused the costs: a setting of a constraint."""

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """What it reads besides the record."""

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns it adds."""

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """Returns the columns to add, `cost_advantage` among them: centred, zero where masked."""

    def level(self, experience: Experience, channel: int) -> tuple[float, dict[str, float]]:
        """Returns what is held at the limit, and metrics: the mean cost of an episode, unless it says otherwise."""
        cost = episode_cost(experience, channel)
        return cost, {"cost": cost}


@dataclass(frozen=True)
class CostToGo(CostCredit):
    """cost_advantage = discounted cost to go, centred over the batch; no critic."""

    discount: float = 0.99
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()
    writes: ClassVar[tuple[str, ...]] = ("cost_advantage",)

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """A cut episode counts what was seen."""
        cost_BT = channel_of(experience, channel)
        to_go = returns.discounted_returns(
            cost_BT, experience.mask, experience.terminal, experience.truncated, self.discount
        )
        return {"cost_advantage": centred(to_go, experience)}


@dataclass(frozen=True)
class CostValues(Annotation):
    """V_C of every context by the critic `model`, also of the one after the last decision: truncation bootstraps."""

    column: str = "cost_value"
    model: str = "cost_value"
    of_decisions: ClassVar[bool] = False

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """The critic on the contexts."""

        def values(critic: Any, rows: Experience) -> Tensor:
            value: Tensor = critic(rows.context)
            return value

        return over(experience, values)


@dataclass(frozen=True)
class CostCritic(CostCredit):
    """cost_advantage by generalised advantages of a critic `cost_value`, centred; `cost_return` is what it learns."""

    discount: float = 0.99
    gae_lambda: float = 0.95
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({CostValues()})
    writes: ClassVar[tuple[str, ...]] = ("cost_advantage", "cost_return")

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """As for rewards: terminal steps do not bootstrap, truncated ones do."""
        value, ends = experience.column("cost_value"), (experience.terminal, experience.truncated)
        cost_BT = channel_of(experience, channel)
        advantage = returns.gae(cost_BT, value, experience.mask, *ends, self.discount, self.gae_lambda)
        learned = (advantage + value) * experience.mask
        return {"cost_advantage": centred(advantage, experience), "cost_return": learned}
