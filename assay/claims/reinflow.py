"""The losses of reinflow by hand, on paths of its own actor. Axes: B sequences, T columns, K = 4 steps, A actions."""

from math import log, pi
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Gain, Measured, built, by_hand, probes, reads_dataset, steps
from assay.method import Experience, Recipe
from assay.methods.reinflow import gaussian, recipe
from assay.models import Flow, Policy, walked
from assay.models.heads.flow import FlowPolicy


def deviation(actor: Any, seen: Tensor, time: Tensor) -> Tensor:
    """Returns sigma(s, t): 0.08^(1 - u) * 0.4^u, u in (0, 1)."""
    share = (actor.noise.net(torch.cat((seen, steps.times(time)), -1)).tanh() + 1) / 2
    return 0.08 ** (1 - share) * 0.4**share


def steps_in(actor: Any, seen: Tensor) -> steps.Chain:
    """Returns the Euler steps of a flow in these states, with noise."""

    def step(k: int, point: Tensor) -> torch.distributions.Normal:
        time = torch.full_like(seen[..., :1], k / 4)
        moved = point + steps.velocity(actor, seen, time, point) / 4
        return torch.distributions.Normal(moved, deviation(actor, seen, time))

    return step


def recorded(recipe: Recipe) -> Experience:
    """Returns fragments with random paths, whose recorded log-densities are near those of the actor."""
    data, actor = probes.box_fragments(), built(recipe, probes.BOX_SPEC).models["actor"]
    draw = torch.Generator().manual_seed(3)
    path = 0.5 * torch.randn(*data.mask.shape, 5, 2, generator=draw, dtype=torch.float64).cumsum(-2)
    logp = steps.path_logp(path, steps_in(actor, data.context["observation"]))
    return probes.recorded_near(data, logp, seed=4).add({"path": path})


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, observation = seen.experience, seen.experience.context["observation"]
    path, chain = data.column("path"), steps_in(seen.models["actor"], observation)
    entropy = 1 + log(2 * pi) + sum(chain(k, path[..., k, :]).entropy().sum(-1) for k in range(4))
    logp = steps.path_logp(path, chain)
    value = seen.models["value"].body({"observation": observation}).squeeze(-1).view(data.mask.shape)
    return by_hand.ppo(data, logp, entropy, value, discount=0.95, gae_lambda=0.95)


def walk_gap(recipe: Recipe) -> Tensor:
    """Returns the largest gap of sampled paths, actions and log-densities to Euler steps with noise, and without."""
    actor: Any = built(recipe, probes.BOX_SPEC).models["actor"]
    seen = probes.transitions(num=64).context["observation"][:, 0]
    uniform = torch.rand(64, 10, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    worst = []
    for given in (uniform, None):
        noise = torch.zeros(64, 5, 2, dtype=torch.float64) if given is None else steps.normal(given).view(64, 5, 2)
        path = steps.path_of(noise, steps_in(actor, seen))
        action, logp, found = actor.walk({"observation": seen}, given)
        executed = torch.minimum(torch.maximum(steps.CENTRE + steps.HALF * path[:, -1], steps.LOW), steps.HIGH)
        worst += [(found - path).abs().max(), (action - executed).abs().max()]
        worst.append((logp - steps.path_logp(path, steps_in(actor, seen))).abs().max())
    return torch.stack(worst).max()


def matching_gap() -> float:
    first = recipe().before[0].recipe
    return probes.formula_gap(first, probes.transitions(num=64), steps.matched_flow, probes.BOX_SPEC)


def cloning_by_hand(seen: probes.Seen) -> Tensor:
    """Returns minus the mean log-density of the recorded actions under the Gaussian policy."""
    data, actor = seen.experience, seen.models["actor"]
    scaled = (data.action - steps.CENTRE) / steps.HALF
    density = torch.distributions.Normal(actor.body(data.context), actor.log_std.exp()).log_prob(scaled)
    return -density.sum(-1)[data.mask].mean()


def gaussian_gap() -> float:
    """Returns how far the rival's cloning is from minus the mean log-density of the data's actions, and how many rows
    are not of the flow's dataset, or drawn by another number of batches.
    """
    ours, theirs = recipe().before[0], gaussian().before[0]
    gap = probes.formula_gap(theirs.recipe, probes.transitions(num=64), cloning_by_hand, probes.BOX_SPEC)
    return gap + (theirs.recipe.source != ours.recipe.source) + abs(theirs.steps - ours.steps)


CLAIMS = Claims(
    mutants=(
        Edit("the first point has no density", FlowPolicy.score, "path_logp(path,", "path_logp(0 * path,"),
        Edit("noise of equal size at all steps", FlowPolicy.log_std, "self.times)", "self.times[:1])"),
        Edit("noise depends on no state", FlowPolicy.log_std, "seen.unsqueeze(-2)", "0 * seen.unsqueeze(-2)"),
        Edit("the velocity of the end alone", FlowPolicy.misfit, "time_features(time)", "time_features(0 * time + 1)"),
        Edit("the noise is fixed", Flow.on, "self.noise)", "(0.08, 0.08))"),
        Edit("deterministic after the first point", walked, "std[:, k] * noise", "0.0 * noise"),
    ),
    claims=(
        Exact("its gradients are ppo's with the ratio of whole paths", lambda: probes.formula_gap(
              recipe(), recorded(recipe()), losses_by_hand, probes.BOX_SPEC), at_most=1e-6),
        Exact("sampled paths are Euler steps with noise, and recorded as scored",
              lambda: walk_gap(recipe()), at_most=1e-9),
        Exact("the flow is first matched to the data", matching_gap, at_most=1e-5),
        reads_dataset(lambda: recipe().before[0].recipe, name="the flow is first matched on rows of the dataset"),
        Exact("the Gaussian rival is cloned from the same rows by maximum likelihood", gaussian_gap, at_most=1e-6,
              of="variant gaussian"),
        Measured("it raises the return of the flow it starts from", "pendulum", recipe(), 0.0,
                 metric=Gain(), seeds=5, minutes=3.0, steps=40, about=About.HEADLINE),
        Measured("it ends above a Gaussian policy that is cloned from the same data and trained by the same ppo",
                 "pendulum", recipe(), gaussian(), seeds=5, minutes=6.0, steps=40, about=About.MECHANISM),
        Measured("learned noise ends above fixed small noise", "pendulum", recipe(),
                 recipe(actor=Policy(head=Flow(noise=(0.08, 0.08)))), seeds=5, minutes=6.0, steps=40,
                 about=About.COMPONENT),
    ),
)
