"""ota: chooses subgoals by a value that counts options of n steps instead of steps.

    V(s, g) <- -1 + discount * V(s_t+1, g)          low:  a by exp(3 (V(s_t+1, w) - V(s, w))), w = phi(s, s_t+10)
    V_h(s, g) <- -1 + discount * V_h(s_t+n, g)      high: w by exp(3 (V_h(s_t+10, g) - V_h(s, g)))

Ahn et al. 2025 on HIQL (Park et al. 2023): both values by expectile regression (0.7) on play data with hindsight
goals, 0 where s is the goal. Over long distances a one-step value is flat and noise decides the sign of its
advantages; an option discounts once for n steps. Its rivals: n = 1, and one step with discount^(1/n), the same
horizon.
"""

from functools import partial

from assay.claims import Average, Edit, Exact, Measured, Method, probes
from assay.methods.ota import claims
from assay.methods.ota.base import ota
from assay.methods.ota.fits import ExpectileByTarget
from assay.methods.ota.objectives import ProposeSubgoal, TowardsSubgoal, gains
from assay.recipes.defaults import CONTINUOUS, CONTROL

HIQL = partial(ota, option=1)
"""One step per option: HIQL (arXiv:2307.11949)."""


METHOD = Method(
    paper="arXiv:2505.12737",
    recipe=ota,
    worlds=(CONTROL, CONTINUOUS),
    default_task="pointmaze-medium",
    family="goal-conditioned",
    base=HIQL,
    variants={"hiql": HIQL},
    mutants=(
        Edit("values of both times change places", gains, "batch.after.context).mean(0) - value(batch.now.context)",
             "batch.now.context).mean(0) - value(batch.after.context)"),
        Edit("one head decides", gains, "value(batch.after.context).mean(0)", "value(batch.after.context)[0]"),
        Edit("the live value decides the expectile", ExpectileByTarget.__call__, "self.copy", "of.model"),
        Edit("subgoals by the low level's value", ProposeSubgoal.__call__, "self.critic)", '"value")'),
        Edit("the goal in place of the state reached", ProposeSubgoal.__call__, 'batch.after.context["achieved"]',
             'now.context["goal"]'),
        Edit("the low level sees the goal", TowardsSubgoal.__call__, "now, subgoal",
             "now, now.context['goal'].repeat(1, 1, 5)"),
        Edit("the low level learns without subgoals", ota, "goals=Ahead(10)", "goals=Mixed()"),
    ),
    departures=(
        "an option costs 1 unless it starts at the goal, so that n = 1 is HIQL; in the authors' code the arriving one "
        "costs 0: V = -1 + discount * theirs, the same order",
        "V_h has a representation of its own; the authors' two values, their targets and the low level share one",
        "no layer norm, learned deviation of actions, Polyak 0.02, 64 units: the budget is a few thousand updates",
        "goals are positions; without --data, native mazes are explored by a scripted expert with noise",
    ),
    claims=(
        Exact("its gradients are those of the formulas", lambda: probes.formula_gap(
              ota(), probes.goal_transitions(), claims.losses_by_hand, probes.GOAL_CHOICE), at_most=1e-9),
        Exact("acts towards the proposed subgoal, scaled", lambda: claims.acting_gap(ota()), at_most=1e-9),
        Exact("jumps of 1, 5, 1 and 10 steps; subgoals 10 ahead, goals ahead, mixed goals for the values",
              lambda: claims.source_errors(ota(), 5), equals=0.0),
        Exact("targets follow at rate 0.02", lambda: claims.schedule_gap(ota()), at_most=1e-7),
        Exact("its value counts options of five steps", lambda: claims.option_gap(ota()), equals=0.0, tolerance=1e-9),
        Exact("n steps an option are one step with discount^(1/n)", lambda: claims.horizon_gap(
              ota(), ota(option=1, high_discount=0.95**0.2)), equals=0.0, tolerance=1e-9),
        Measured(
            "goals 40 and more steps away: the advantage's sign is right more often than with n = 1",
            "corridor", ota(far=40.0), ota(option=1, far=40.0), Average("right_signs", 0.25),
            seeds=5, minutes=2.5, steps=80,
        ),
        Measured(
            "and not less often than with one step and the same horizon, discount^(1/n)",
            "corridor", ota(far=40.0), ota(option=1, high_discount=0.95**0.2, far=40.0), Average("right_signs", 0.25),
            margin=-0.05, seeds=5, minutes=2.5, steps=80,
        ),
        Measured(
            "the policy reaches more held-out goals than with n = 1",
            "pointmaze-large", ota(), ota(option=1), seeds=5, minutes=15.0, steps=100, looks=4,
        ),
    ),
)  # fmt: skip
