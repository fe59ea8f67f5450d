"""safe-rl-review: constraints as parts that merge costs into the credit of any objective, language or control.

    Lagrange:   multiplier <- max(0, multiplier + rate * (J_C - limit))
    PID:        multiplier <- max(0, P * e + I * sum e + D * growth),  e = J_C - limit
    both:       advantage <- (advantage - multiplier * cost_advantage) / (1 + multiplier)
    Projection: the nearest advantage along which the cost falls as required;  EndAtCost: a spent budget is an end

Gu et al. 2022 order safe RL by how reward and cost are merged; these are the entries that need a cost, a limit and a
cost critic, and nothing of the objective. Shown as ppo; `recipes.constrained.constrained` applies them to grpo.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Expect, Measured, Method
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import ALONE
from assay.methods.safe_rl_review.projection import projection
from assay.parts.constraints.multiplier import Ascent, Multiplier, Pid
from assay.recipes.constrained import constrained, safe_ppo
from assay.recipes.defaults import CONTROL, EVERY, Defaults

WATCHED = constrained(recipes.ppo(), Multiplier(1.0, Ascent(0.0)))
"""ppo with a multiplier that stays 0: it only reports the cost."""


def costly(costs: list[float]) -> Experience:
    """Returns a bandit's decisions with costs and the first arm's advantage."""
    record = probes.bandit_experience([0, 1] * (len(costs) // 2), [1.0, 0.0] * (len(costs) // 2), torch.zeros(2))
    columns = {"cost": torch.tensor(costs).view(-1, 1, 1).to(record.reward)}
    return record.with_columns(**columns).add({"advantage": 2.0 * record.reward - 1.0})


def pid_minus_lagrange() -> float:
    """Returns the largest distance of an integral-only controller from gradient ascent on the dual."""
    pid, ascent, apart = Multiplier(1.0, Pid(0.0, 0.3, 0.0)), Multiplier(1.0, Ascent(0.3)), 0.0
    states = pid.init(ALONE), ascent.init(ALONE)
    for cost in (3.0, 0.0, 0.0, 2.0, 5.0, 0.0, 0.0, 0.0, 0.0):
        batch = costly([cost, cost])
        pid(batch, ALONE, states[0])
        ascent(batch, ALONE, states[1])
        apart = max(apart, abs(states[0]["multiplier"] - states[1]["multiplier"]))
    return apart


def projected_cost() -> torch.Tensor:
    """Returns the first-order change of the cost along a projected advantage, plus the required decrease: at most 0."""
    part, batch = projection(limit=1.0, rate=0.1), costly([4.0, 0.0, 3.0, 1.0])
    state = part.init(ALONE)
    part(batch, ALONE, state)
    merged = part(batch, ALONE, state)
    return (merged.column("advantage") * merged.column("cost_advantage")).mean() + 0.1 * (2.0 - 1.0)


def lagrange(world: Defaults = CONTROL) -> Recipe:
    """Returns the recipe with gradient ascent on the dual in place of the PID controller."""
    return constrained(recipes.ppo(world), Multiplier())


def projected(world: Defaults = CONTROL) -> Recipe:
    """Returns the recipe with the nearest advantage along which the cost falls, in place of a multiplier."""
    return constrained(recipes.ppo(world), projection())


METHOD = Method(
    paper="arXiv:2205.10330",
    recipe=safe_ppo,
    worlds=EVERY,
    default_task="hazards",
    family="safe",
    base=recipes.ppo,
    aliases=("pid-lagrange", "safe-ppo"),
    variants={"lagrange": lagrange, "projection": projected},
    departures=(
        "a survey: of its map, Lagrangian, PID, projection and early termination; no shields, Lyapunov or models",
        "projection uses the plain metric on advantages, not the Fisher metric on parameters",
        "the task is a native point with hazards, not Safety-Gymnasium",
    ),
    claims=(
        Exact("an integral-only controller is gradient ascent on the dual", pid_minus_lagrange, equals=0.0),
        Exact("a projected step lowers the cost by what the limit asks", projected_cost, at_most=1e-6),
        Measured(
            "the constrained policy ends within a tenth of the limit",
            "hazards", safe_ppo(), 1.1, metric=Average("cost", share=0.2), expect=Expect.BELOW, seeds=5, minutes=3.0,
        ),
        Measured(
            "ppo without the constraint does not",
            "hazards", WATCHED, 1.1, metric=Average("cost", share=0.2), seeds=5, minutes=2.0,
        ),
    ),
)  # fmt: skip
