"""The three phases of uni-o4 by hand. Axes: N = 4 members, B transitions or sequences, A actions."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import log, pi
from typing import Any

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.claims.probes import steps
from assay.claims.probes.formulas import built
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience
from assay.core.slots import Scene
from assay.methods.uni_o4.rollout import OnStates
from assay.parts.sources.logged import Logged
from assay.tasks.control.peg import peg
from assay.tasks.control.pendulum import pendulum


def normals(actor: Any, seen: Tensor) -> Any:
    """Returns every member's distribution in the states [..., 3]: N first."""
    mean = steps.CENTRE + steps.HALF * actor.body({"observation": seen}).tanh()
    spread = (steps.HALF * actor.log_std.exp()).view(4, *[1] * (mean.dim() - 2), 2)
    return torch.distributions.Normal(mean, spread.expand_as(mean))


def inside(action: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(action, steps.LOW), steps.HIGH)


def of(model: Any, seen: Tensor, action: Tensor) -> Tensor:
    """Returns what a critic or the dynamics say of the executed action, [members, ...]."""
    found: Tensor = model.inner.body({"observation": seen}, inside(action), None)
    return found


def cloning_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    step, models = steps.step_of(seen), seen.models
    logp = normals(models["actor"], step.now).log_prob(step.action).sum(-1)
    gain = of(models["q_target"], step.now, step.action).amin(0).detach() - steps.output(models["value"], step.now)
    error = of(models["q"], step.now, step.action) - step.target(0.95, steps.output(models["value"], step.after))
    change = torch.cat((step.after - step.now, step.reward.unsqueeze(-1)), -1)
    missed = (of(models["dynamics"], step.now, step.action) - change).square().sum(-1)
    return {
        "clone": -1.1 * step.mean(logp),
        "value": step.mean((0.3 + 0.4 * (gain >= 0).double()) * gain.square()),
        "q": step.mean(error.square()) / 2,
        "dynamics": step.mean(missed) / 2,
    }


# ---------------------------------------------------------------------------------------------------- offline ppo
def offline_rows(recipe: Recipe) -> Experience:
    """Returns transitions with a member each, actions that may exceed the bounds and log-densities near the actor's."""
    data, draw = probes.transitions(num=64), torch.Generator().manual_seed(6)
    member = (torch.arange(64) % 4).unsqueeze(1).expand(64, 2).contiguous()
    data = replace(data, action=1.5 * data.action, context={**data.context, "member": member})
    actor = built(recipe, probes.BOX_SPEC).models["actor"]
    every = normals(actor, data.context["observation"]).log_prob(data.action).sum(-1).detach()
    own = every.gather(0, member.unsqueeze(0))[0]
    return replace(data, logp=own + 0.3 * torch.randn(64, 2, generator=draw, dtype=torch.float64))


def improving_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, models = seen.experience, seen.models
    now, action, here = data.context["observation"][:, 0], data.action[:, 0], data.mask[:, 0]
    every = normals(models["actor"], now)
    logp = torch.stack([every.log_prob(action).sum(-1)[row % 4, row] for row in range(64)])
    advantage = (of(models["q"], now, action).amin(0) - steps.output(models["value"], now)).detach()[here]
    advantage = (advantage - advantage.mean()) / advantage.std()
    gain = by_hand.clipped((logp - data.logp[:, 0])[here].exp(), advantage, low=0.25, high=0.25)
    total = torch.zeros(4, 64, dtype=torch.float64)
    place = now.expand(4, 64, 3)
    for _ in range(10):
        chosen = torch.stack([normals(models["actor"], place[one]).mean[one] for one in range(4)])
        total = total + of(models["q"], place, chosen).amin(0) / 10
        place = place + of(models["dynamics"], place, chosen).mean(0)[..., :3]
    gap = models["actor"].standing.unsqueeze(1) - total.detach()
    return {"policy": -gain.mean(), "score": gap[:, here].square().sum() / 2 / here.sum()}


def accepted(recipe: Recipe) -> float:
    """Returns how many of five scores the gate of the old policy accepts, on average over all orders."""
    gate, passed = recipe.copies["old"].gate, 0
    assert gate is not None
    for order in permutations(range(5)):
        state = gate.init()
        for score in order:
            model = torch.nn.Module()
            model.standing = torch.nn.Parameter(torch.tensor([float(score)]))
            passed += int(gate({"actor": model}, state).sum())
    return passed / 120


def gathered_errors(recipe: Recipe) -> float:
    """Returns rows of the offline rollout that are not one of four members in a recorded state, and the largest gap of
    their log-density to the member's; infinite if the old policy does not act, or actions do not differ.
    """
    task, rollout = pendulum(), recipe.rollout
    assert isinstance(rollout, OnStates)
    assert isinstance(rollout.source, Logged)
    actor: Any = built(recipe, task.spec).models[recipe.behaviour].float()
    scene = Scene(task, actor=actor, draw=Draw(2))
    rows = rollout(scene, rollout.init(scene))
    recorded = rollout.source.logs[0].columns(task)["context.observation"][:, 0]
    states = {tuple(row) for row in recorded.tolist()}
    seen, member = rows.context["observation"][:, 0], rows.context["member"][:, 0]
    strange = sum(tuple(row) not in states for row in seen.tolist())
    strange += int((member != torch.arange(512) % 4).sum()) + int((seen[::4] != seen[3::4]).any(1).sum())
    mean, spread = 2.0 * actor.body({"observation": seen}).tanh(), 2.0 * actor.log_std.exp()
    row = torch.arange(512)
    mean, spread = mean[member, row], spread[member]
    noise = (rows.action[:, 0] - mean) / spread
    logp = (-noise.square() / 2 - spread.log() - log(2 * pi) / 2).sum(-1)
    gap = float((logp - rows.logp[:, 0]).abs().max().detach())
    is_normal = abs(float(noise.mean().detach())) < 0.15 and abs(float(noise.std().detach()) - 1) < 0.1
    unchanged = int(rows.reward.abs().sum() + rows.logp[:, 1].abs().sum() + rows.terminal.sum() > 0)
    unchanged += int(rows.mask[:, 1].sum())  # the second column is no decision
    return strange + gap + unchanged + (0.0 if is_normal and recipe.behaviour == "old" else float("inf"))


def is_refused(recipe: Recipe) -> bool:
    """Returns whether data with terminal decisions are an error before training."""
    try:
        recipe.source.init(Scene(peg()))
    except AssayError:
        return True
    return False


# ---------------------------------------------------------------------------------------------------- online ppo
def online_rows(recipe: Recipe) -> Experience:
    """Returns fragments with log-densities near those of the member with the best standing."""
    data, actor = probes.box_fragments(), built(recipe, probes.BOX_SPEC).models["actor"]
    draw = torch.Generator().manual_seed(7)
    best: Any = actor.standing
    own = normals(actor, data.context["observation"]).log_prob(data.action).sum(-1)[int(best.argmax())].detach()
    return replace(data, logp=own + 0.3 * torch.randn(data.mask.shape, generator=draw, dtype=torch.float64))


def online_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, actor = seen.experience, seen.models["actor"]
    best, observation = int(actor.standing.argmax()), seen.experience.context["observation"]
    member = normals(actor, observation)
    logp, entropy = member.log_prob(data.action).sum(-1)[best], member.entropy().sum(-1)[best]
    value = seen.models["value"].body({"observation": observation}).view(data.mask.shape)
    return by_hand.ppo(data, logp, entropy, value, discount=0.95, gae_lambda=0.95)


def online_gap(recipe: Recipe) -> float:
    return probes.formula_gap(recipe, online_rows(recipe), online_by_hand, probes.BOX_SPEC)


def offline_gap(recipe: Recipe) -> float:
    return probes.formula_gap(recipe, offline_rows(recipe), improving_by_hand, probes.BOX_SPEC)


def cloning_gap(recipe: Recipe) -> float:
    data = probes.transitions(num=64)
    return probes.formula_gap(recipe, replace(data, action=1.5 * data.action), cloning_by_hand, probes.BOX_SPEC)
