"""safe-rl-review: constraints as parts that merge costs into the credit of any objective, language or control.

    Lagrange:   multiplier <- max(0, multiplier + rate * (J_C - limit))
    PID:        multiplier <- max(0, P * e + I * sum e + D * growth),  e = J_C - limit
    both:       advantage <- (advantage - multiplier * cost_advantage) / (1 + multiplier)
    Projection: the nearest advantage along which the cost falls as required;  EndAtCost: a spent budget is an end

Gu et al. 2022 order safe RL by how reward and cost are merged; these are the entries that need a cost, a limit and a
cost critic, and nothing of the objective. Shown as ppo; `recipes.constrained.constrained` applies them to grpo.
"""

from functools import partial

from assay import recipes
from assay.claims import Edit, Exact, Expect, Final, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.methods.safe_rl_review import claims
from assay.methods.safe_rl_review.projection import projection
from assay.parts.constraints.cost import ended_costs
from assay.parts.constraints.multiplier import Multiplier
from assay.parts.rewards.cost import LengthCost
from assay.recipes.constrained import constrained, safe_ppo
from assay.recipes.defaults import CONTROL, Defaults
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.hazards import hazards
from assay.tasks.testbeds.control.cost_corridor import within_budget


def lagrange(world: Defaults = CONTROL) -> Recipe:
    """Returns the recipe with gradient ascent on the dual in place of the PID controller."""
    return constrained(recipes.ppo(world), Multiplier())


def projected(world: Defaults = CONTROL) -> Recipe:
    """Returns the recipe with the nearest advantage along which the cost falls, in place of a multiplier."""
    return constrained(recipes.ppo(world), projection())


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
    claims=(
        Exact("its gradients are those of ppo with a PID-priced cost",
              lambda: claims.gap(safe_ppo(), claims.pid_losses), at_most=1e-9),
        Exact("also where most advantages are negative",
              lambda: claims.gap(safe_ppo(), claims.pid_losses, lower=1.0), at_most=1e-9),
        Exact("with gradient ascent on the dual, too", lambda: claims.gap(lagrange(), claims.lagrange_losses),
              at_most=1e-9),
        Exact("with the nearest advantage along which the cost falls as required, too",
              lambda: claims.gap(projected(), claims.projected_losses), at_most=1e-9),
        Exact("an episode costs the same in fragments of any length", lambda: claims.carried_wrongly(safe_ppo()),
              equals=0.0),
        Exact("the cost of an episode in one row or several is the sum by hand", claims.ended_wrongly, equals=0.0),
        Exact("a task without costs is refused", lambda: not probes.is_refused(safe_ppo(), hazards())
              and probes.is_refused(safe_ppo(), cartpole()), equals=1.0),
        Measured(
            "cost-corridor: held-out return less what is beyond the budget is above ppo's, by 1",
            "cost-corridor", safe_ppo().set("Multiplier.limit", 10.0), recipes.ppo(), metric=within_budget(10.0),
            margin=1.0, seeds=5, looks=3, steps=20,
        ),
        Measured(
            "and its held-out cost ends within a tenth of the budget of 10",
            "cost-corridor", safe_ppo().set("Multiplier.limit", 10.0), 10.0, metric=Final("evaluation_cost"),
            expect=Expect.WITHIN, margin=1.0, seeds=5, looks=3, steps=20,
        ),
    ),
    mutants=(
        Edit("all cost of the batch over its ends", ended_costs, "carried is not None", "False"),
    ),
)  # fmt: skip
