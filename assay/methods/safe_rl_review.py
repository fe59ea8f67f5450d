"""safe-rl-review: constraints as parts that merge costs into the credit of any objective, language or control.

    Lagrange:   multiplier <- max(0, multiplier + rate * (J_C - limit))
    PID:        multiplier <- max(0, P * e + I * sum e + D * growth),  e = J_C - limit
    both:       advantage <- (advantage - multiplier * cost_advantage) / (1 + multiplier)
    Projection: the nearest advantage along which the cost falls as required;  EndAtCost: a spent budget is an end

Gu et al. 2022 order safe RL by how reward and cost are merged; these are the entries that need a cost, a limit and a
cost critic, and nothing of the objective. Shown as ppo; `recipes.constrained.constrained` applies them to grpo.

Axes: B, T, K costs.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import CONTROL, Preset, Experience, Method, Recipe, State, constrained, recipes, safe_ppo
from assay.parts import CostCredit, CostToGo, LengthCost, Multiplier


@dataclass(frozen=True)
class Violation:
    """multiplier <- max(0, J_C - limit): no memory beyond the previous batch."""

    not_a_part: ClassVar[str] = "a setting of a constraint"

    def init(self, limit: float) -> State:
        """Returns the state for a cost of 0."""
        return {"multiplier": 0.0, "excess": -limit}

    def move(self, level: float, limit: float, state: State) -> None:
        """Stores the distance of the episodes' cost from the limit."""
        state["excess"] = level - limit
        state["multiplier"] = max(0.0, state["excess"])


@dataclass(frozen=True)
class Projected:
    """Projects to the nearest advantage along which the cost falls, to first order, as the limit requires.

        min |A' - A|^2  subject to  <A', C> / n <= -rate * (J_C - limit)
        A' = A - max(0, (<A, C> / n + rate * (J_C - limit)) / (<C, C> / n)) * C

    CPO and PCPO (arXiv:1705.10528, 2010.03152) with the Euclidean metric; C is the cost advantage, J_C that of the
    previous batch. Degenerate: enough slack, or C = 0, leaves A unchanged.
    """

    rate: float = 1.0
    not_a_part: ClassVar[str] = "a setting of a constraint"
    breaks: ClassVar[dict[str, str]] = {
        "lagged": "it has no price: it projects along this batch's costs, and the limit enters by the batch before"
    }

    def __call__(self, experience: Experience, cost_advantage: Tensor, state: State) -> Tensor:
        """Returns the projected advantage, [B, T]."""
        cost, advantage = cost_advantage, experience.column("advantage")
        excess = mean_product(advantage, cost, experience) + self.rate * state["excess"]
        share = excess.clamp(min=0.0) / mean_product(cost, cost, experience).clamp(min=1e-12)
        return advantage - share * cost


def mean_product(first: Tensor, second: Tensor, experience: Experience) -> Tensor:
    """Returns <first, second> over the decisions, divided by their number; 0 without any."""
    return torch.where(experience.mask, first * second, 0.0).sum() / experience.num_decisions.clamp(min=1)


def projection(limit: float = 1.0, rate: float = 1.0, credit: CostCredit = CostToGo()) -> Multiplier:
    """Returns the constraint with a projected advantage."""
    return Multiplier(limit, Violation(), credit, Projected(rate))


def lagrange(preset: Preset = CONTROL) -> Recipe:
    """Returns the recipe with gradient ascent on the dual in place of the PID controller."""
    return constrained(recipes.ppo(preset), Multiplier())


def projected(preset: Preset = CONTROL) -> Recipe:
    """Returns the recipe with the nearest advantage along which the cost falls, in place of a multiplier."""
    return constrained(recipes.ppo(preset), projection())


METHOD = Method(
    paper="arXiv:2205.10330",
    recipe=safe_ppo,
    default_task="hazards",
    family="safe",
    base=recipes.ppo,
    aliases=("pid-lagrange", "safe-ppo"),
    variants={"lagrange": lagrange, "projection": projected, "bounded-length": partial(safe_ppo, cost=LengthCost())},
    departures=(
        "a survey: of its map, Lagrangian, PID, projection and early termination; no shields, Lyapunov or models",
        "projection uses the plain metric on advantages, not the Fisher metric on parameters",
        "the tasks are a native point with hazards and a corridor with a known optimum, not Safety-Gymnasium",
    ),
)
