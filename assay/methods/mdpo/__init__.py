"""mdpo: several gradient steps on the surrogate with a KL to the acting policy, instead of a clip or constraint.

    loss = mean_t [ -rho_t A_t + KL(pi || pi_old) / step ],   step = 1 - k/K at iteration k of K

Tomar et al. 2020. Mirror descent in policy space: the exact solution of each iteration is pi_old exp(step A) / Z.
trpo makes the KL a constraint, ppo a clip; with a uniform policy in place of pi_old the solution is sac's.
"""

from dataclasses import replace
from functools import partial

import torch

from assay import recipes
from assay.claims import Average, Edit, Exact, Measured, Method, by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Progress
from assay.core.schedules import Linear
from assay.methods.mdpo.claims import slope_at_solution
from assay.methods.mdpo.objectives import MirrorDescent
from assay.methods.mdpo.off_policy import gradient_gap, off_policy, schedule_gap
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.defaults import CONTROL, Defaults


def recipe(world: Defaults = CONTROL, step_size: float | Linear = Linear(1.0, 0.0)) -> Recipe:
    base = recipes.ppo(world)
    objective = PolicyGradient(trust=MirrorDescent(step_size))
    policy = replace(base.stages[0], objective=(objective,), regularizers=())
    return replace(base, name="mdpo", stages=(policy, *base.stages[1:]))


def losses_by_hand(seen: probes.Seen, step_size: float = 1.0) -> dict[str, torch.Tensor]:
    value = seen.value()
    return by_hand.ppo(seen.experience, seen.logp(), torch.zeros_like(value), value, 0.98, 0.9,
                       lambda ratio, ahead: ratio * ahead - (ratio * ratio.log() - ratio) / step_size)  # fmt: skip


def gap_after(share: float) -> float:
    """Returns the distance from the formula after this share of the run: the step size falls to 0."""
    now = recipe().at(Progress(step=round(100 * share), num_steps=100))
    return probes.formula_gap(now, probes.fragments(), partial(losses_by_hand, step_size=1.0 - share))


METHOD = Method(
    paper="arXiv:2005.09814",
    recipe=recipe,
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    variants={"off-policy": off_policy},
    departures=(
        "the KL is estimated from the recorded decisions, without bias; the authors' is in closed form",
        "minibatches, epochs and the value network's steps are ppo's here; the authors take m full-batch steps",
        "mdpo:off-policy has sac's twin critics in place of the authors' value network, and a constant step size of 1",
    ),
    claims=(
        Exact("off-policy its gradients are the formula's", lambda: gap_after(0.0), at_most=1e-9),
        Exact("so they are with a smaller step, late in a run", lambda: gap_after(0.75), at_most=1e-9),
        Exact("a step is three epochs of four minibatches",
              lambda: probes.source_gap(recipe(), probes.fragments(), batches=12, epochs=3), equals=0.0),
        Exact("mdpo:off-policy: its gradients are the formulas'", gradient_gap, at_most=1e-5),
        Exact("mdpo:off-policy: the old policy is copied every 100 updates", schedule_gap, at_most=1e-6),
        Exact("the loss is stationary at pi_old exp(step A) / Z", lambda: slope_at_solution(recipe(step_size=0.5)),
              equals=0.0),
        Measured("several steps an iteration score higher than one", "cartpole", recipe(),
                 replace(recipe(), source=FreshSequences()), seeds=5, minutes=3.0),
        Measured("on a random MDP its area is no lower than ppo's, by 0.02", "random-mdp", recipe().set("steps", 15),
                 recipes.ppo().set("steps", 15), metric=Average("evaluation"), margin=-0.02, seeds=5, looks=3),
    ),
    mutants=(
        Edit("one update a step", recipe, "base, name", "base, source=world.once, name"),
        Edit("a constant step size", recipe, "MirrorDescent(step_size)", "MirrorDescent(1.0)"),
        Edit("ppo's entropy bonus stays", recipe, "regularizers=()", "regularizers=base.stages[0].regularizers"),
        Edit("the other KL", MirrorDescent.__call__, "ratio * bounded - ratio + 1.0", "ratio - 1.0 - bounded"),
        Edit("advantages are not weighted", MirrorDescent.__call__, "-advantage * ratio", "-advantage * log_ratio"),
    ),
)  # fmt: skip
