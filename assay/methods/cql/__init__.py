"""cql: lowers the values of actions outside the data, so that the policy is not drawn to them.

    critic loss = weight * (log sum over a of exp Q(s, a) - Q(s, a_recorded)) + (Q - y)^2 / 2

Kumar et al. 2020, CQL(H). For continuous actions the sum is an integral, estimated from the policy's and uniform
proposals, on top of SAC; for discrete actions it is exact, on top of double DQN.
"""

import math

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Edit, Exact, Measured, Method
from assay.claims.probes import steps
from assay.core.recipe import Recipe
from assay.methods.cql.parts import HeldGap, cql_lagrange
from assay.parts.critics.conservative import Conservative
from assay.parts.sources.logged import Log
from assay.recipes.conservative import conservative_sac, cql
from assay.recipes.defaults import CONTINUOUS, CONTROL, Defaults
from assay.tasks.control.cartpole import cartpole

NARROW = Log(20, noise=0.1)


def discrete_by_hand(seen: probes.Seen) -> torch.Tensor:
    step, out = steps.step_of(seen), steps.output
    row, q = torch.arange(len(step.reward)), out(seen.models["actor"], step.now)
    best = out(seen.models["actor"], step.after).argmax(-1)
    error = q[row, step.action] - step.target(0.99, out(seen.models["target"], step.after)[row, best])
    return step.mean(error.square() / 2 + q.exp().sum(-1).log() - q[row, step.action])


def continuous_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    step, models, out = steps.step_of(seen), seen.models, steps.output
    next_action, _ = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    recorded = out(models["q"], step.now, step.action)
    error = recorded - step.target(0.99, out(models["q_target"], step.after, next_action).amin(0))
    proposals = []
    for k in range(10):
        for tag, place in ((4, step.now), (5, step.after)):
            proposals.append(steps.squashed(models["actor"], place, seen.uniform(1, 10, 2, tag=tag)[:, 0, k]))
        anything = steps.LOW + (steps.HIGH - steps.LOW) * seen.uniform(1, 10, 2, tag=6)[:, 0, k]
        proposals.append((anything, torch.tensor(-math.log(4.0 * 1.5))))
    values = [out(models["q"], step.now, action.detach()) - logp.detach() for action, logp in proposals]
    penalty = torch.stack(values).logsumexp(0) - recorded
    critic = step.mean(error.square() / 2 + penalty)
    if "multiplier" in models:  # weight 1 becomes a number m > 0 that climbs m * (mean gap - 5)
        weight, constant = models["multiplier"].log_value.exp(), math.log(30.0)
        mean_gap = step.mean(penalty.mean(0) - constant).detach()
        critic = step.mean(error.square() / 2 + weight.detach() * penalty) - weight * (mean_gap - 5.0)
    return {"critic": critic, "actor": steps.sac_actor(seen, lambda s, a: out(models["q"], s, a).amin(0))}


def schedule_gap(world: Defaults) -> float:
    spec = probes.CHOICE_SPEC if world.discrete else probes.BOX_SPEC
    trained = {"actor": 1} if world.discrete else {"actor": 1, "q": 1, "temperature": 1}
    targets = {"target": ("actor", 1.0, 128)} if world.discrete else {"q_target": ("q", 0.005, 1)}
    num = 130 if world.discrete else 6
    return probes.schedule_gap(cql(world), probes.transitions(spec, dtype=torch.float32), spec, trained, targets, num)


def without_penalty(world: Defaults = CONTROL) -> Recipe:
    """Returns the recipe without the penalty: double DQN for discrete actions, SAC for continuous ones."""
    return recipes.dqn(world) if world.discrete else recipes.sac(world)


METHOD = Method(
    paper="arXiv:2006.04779",
    recipe=cql,
    worlds=(CONTROL, CONTINUOUS),
    default_task="cartpole",
    family="offline",
    base=without_penalty,
    variants={"cql-lagrange": cql_lagrange},
    mutants=(
        Edit("lagrange: the multiplier falls where the gap is large", HeldGap.__call__, "- multiplier * (gap",
             "+ multiplier * (gap"),
        Edit("lagrange: no threshold", HeldGap.__call__, "gap - self.threshold * count", "gap"),
        Edit("lagrange: the penalty keeps weight 1", HeldGap.__call__, "multiplier.detach() * found.sum", "found.sum"),
        Edit("continuous: the penalty's sign turned", Conservative.__call__, "top - q(", "-top + q("),
        Edit("continuous: values not over their density", Conservative.__call__, " - log_density", ""),
        Edit("continuous: no penalty", Conservative.__call__, "self.weight * gap.sum()", "0.0 * gap.sum()"),
        Edit("continuous: proposals of the next state valued there", Conservative.__call__, "repeated(now.context",
             "repeated(batch.after.context"),
        Edit("continuous: all proposals with uniform density", Conservative.proposals, "here[1], later[1], density",
             "density, density, density"),
        Edit("continuous: another weight", conservative_sac, "Conservative(weight)", "Conservative(5.0 * weight)"),
    ),
    departures=(
        "the weight is fixed at 1; cql-lagrange has the multiplier that holds the gap at 5",
        "the log of the mean over proposals, not of their sum: a constant",
        "networks of 64, batches of 128, Adam 1e-3 for all (256 three times, 256, 1e-4 and 3e-4)",
        "data are generated by scripted experts with noise, not D4RL or Atari",
    ),
    claims=(
        Exact("discrete: its gradient is that of the formula", lambda: probes.formula_gap(
              cql(CONTROL), probes.transitions(probes.CHOICE_SPEC, num=64), discrete_by_hand, probes.CHOICE_SPEC),
              at_most=1e-9),
        Exact("continuous: its gradients are those of the formulas", lambda: probes.formula_gap(
              cql(CONTINUOUS), probes.transitions(num=32), continuous_by_hand, probes.BOX_SPEC), at_most=1e-6),
        Exact("lagrange: its gradients are those of the formulas", lambda: probes.formula_gap(
              cql_lagrange(CONTINUOUS), probes.transitions(num=32), continuous_by_hand, probes.BOX_SPEC),
              at_most=1e-6),
        Exact("discrete: the target network is a copy made every 128 updates", lambda: schedule_gap(CONTROL),
              equals=0.0),
        Exact("continuous: target critics follow at rate 0.005", lambda: schedule_gap(CONTINUOUS), at_most=1e-7),
        Exact("a step's batches are rows of the dataset",
              lambda: probes.foreign_rows(cql(CONTROL, Log(20)), cartpole()), equals=0.0),
        Measured("on an expert's log it works where double DQN does not", "cartpole", cql(CONTROL, NARROW),
                 cql(CONTROL, NARROW, weight=0.0), seeds=5, minutes=2.0, steps=150),
    ),
)  # fmt: skip
