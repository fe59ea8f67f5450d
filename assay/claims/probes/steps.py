"""Pieces of losses by hand, for formulas of `formula_gap`: independent of `assay.parts` and of the models' heads.

Axes: B transitions, N critics, A action dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.claims.probes.formulas import BOX_SPEC, Seen
from assay.core.record import Experience

LOW, HIGH = (torch.tensor(side, dtype=torch.float64) for side in (BOX_SPEC.action.low, BOX_SPEC.action.high))  # type: ignore[union-attr]
CENTRE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2


@dataclass(frozen=True, eq=False)
class Step:
    """The transitions of `transitions`, each column [B, ...]; `here` marks rows that have a decision."""

    now: Tensor
    action: Tensor
    reward: Tensor
    goes_on: Tensor
    after: Tensor
    here: Tensor

    def target(self, discount: float, value_next: Tensor) -> Tensor:
        """Returns r + discount * V(s'), only r after a terminal decision; no gradient."""
        return (self.reward + discount * self.goes_on * value_next).detach()

    def mean(self, loss: Tensor) -> Tensor:
        """Returns the mean over rows with a decision, summed over leading axes (critics)."""
        return loss[..., self.here].sum() / self.here.sum()


def step_of(seen: Seen) -> Step:
    """Returns the transitions of an experience as plain columns."""
    data = seen.experience
    (seen_by_actor,) = data.context.values()
    goes_on = 1.0 - data.terminal[:, 0].double()
    return Step(
        seen_by_actor[:, 0], data.action[:, 0], data.reward[:, 0], goes_on, seen_by_actor[:, 1], data.mask[:, 0]
    )


def in_half_ranges(action: Tensor) -> Tensor:
    """Returns actions of BOX_SPEC in half-ranges around the middle; discrete ones as they are."""
    return (action - CENTRE) / HALF if action.is_floating_point() else action


def output(model: Any, observation: Tensor, action: Tensor | None = None) -> Tensor:
    """Returns a body's raw outputs, [B, ...] or [N, B, ...] with an action, which it sees in half-ranges."""
    seen = {"observation": observation.unsqueeze(1)}
    if action is None:
        alone: Tensor = model.body(seen)
        return alone.squeeze(1)
    found: Tensor = model.body(seen, in_half_ranges(action).unsqueeze(1), None)
    return found.squeeze(2)


def normal(uniform: Tensor) -> Tensor:
    """Returns normal numbers from uniform ones."""
    return math.sqrt(2.0) * torch.erfinv(2.0 * uniform.double() - 1.0)


def times(time: Tensor) -> Tensor:
    """Returns the features of a time in [0, 1], [..., 1] -> [..., 4], as exact as those of path actors: float32."""
    t, angle = time.float(), math.pi * time.float()
    return torch.cat((2 * t - 1, angle.sin(), (2 * angle).sin(), (2 * angle).cos()), -1).double()


def velocity(actor: Any, seen: Tensor, time: Tensor, point: Tensor) -> Tensor:
    """Returns a flow's velocity at a point of its path."""
    found: Tensor = actor.velocity.net(torch.cat((seen, times(time), point), -1))
    return found


def matched_flow(seen: Seen) -> Tensor:
    """Returns the error of a flow's velocity at a random time on the straight line from noise to the action."""
    data, uniform = seen.experience, seen.uniform(2, 3, tag=3)
    time, start = uniform[..., :1].double(), normal(uniform[..., 1:])
    goal = (data.action - CENTRE) / HALF
    point = (1 - time) * start + time * goal
    found = velocity(seen.models["actor"], data.context["observation"], time, point)
    return (found - (goal - start)).square().sum(-1)[data.mask].mean()


Chain = Callable[[int, Tensor], torch.distributions.Normal]
"""(number of the step, point) -> distribution of the next point of a path, [..., A]."""


def path_of(noise: Tensor, chain: Chain) -> Tensor:
    """Returns the path [..., K + 1, A] of these normal numbers, which begins with the first of them."""
    points = [noise[..., 0, :]]
    for k in range(noise.shape[-2] - 1):
        normal = chain(k, points[-1])
        points.append(normal.mean + normal.stddev * noise[..., k + 1, :])
    return torch.stack(points, -2)


def path_logp(path: Tensor, chain: Chain) -> Tensor:
    """Returns the log-density of paths [..., K + 1, A], one Gaussian after the other; the first is standard normal."""
    logp = torch.distributions.Normal(0.0, 1.0).log_prob(path[..., 0, :]).sum(-1)
    for k in range(path.shape[-2] - 1):
        logp = logp + chain(k, path[..., k, :]).log_prob(path[..., k + 1, :]).sum(-1)
    return logp


def bounded(model: Any, observation: Tensor) -> Tensor:
    """Returns the action of a deterministic actor of BOX_SPEC."""
    return CENTRE + HALF * output(model, observation).tanh()


def squashed(model: Any, observation: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a squashed Gaussian's action [..., A] of BOX_SPEC and its log-density per half-range [...]."""
    found = output(model, observation)
    mean, log_std = found[..., :2], found[..., 2:]
    log_std, noise = log_std.clamp(-20.0, 2.0), normal(uniform)
    latent = mean + log_std.exp() * noise
    log_cosh = torch.logaddexp(latent, -latent) - math.log(2.0)
    logp = -0.5 * noise.square() - 0.5 * math.log(2.0 * math.pi) - log_std + 2.0 * log_cosh
    return CENTRE + HALF * latent.tanh(), logp.sum(-1)


def decoded(logits: Tensor, low: float, high: float) -> Tensor:
    """Returns the mean of a distribution over equal bins between `low` and `high`, given its logits [..., M]."""
    width = (high - low) / logits.shape[-1]
    return logits.softmax(-1) @ torch.arange(low + width / 2, high, width, dtype=logits.dtype)


def gae_return(data: Experience, value: Tensor, discount: float, gae_lambda: float) -> Tensor:
    """Returns GAE's targets of a critic with these values [B, T]: advantage + value, 0 where masked."""
    advantage = torch.zeros(len(data), dtype=torch.float64)
    found, over = torch.zeros_like(value), data.terminal | data.truncated
    for t in reversed(range(value.shape[1] - 1)):
        delta = data.reward[:, t] + discount * value[:, t + 1] * ~data.terminal[:, t] - value[:, t]
        advantage = torch.where(data.mask[:, t], delta + discount * gae_lambda * advantage * ~over[:, t], 0.0)
        found[:, t] = (advantage + value[:, t]) * data.mask[:, t]
    return found.detach()


def smoothed(seen: Seen) -> Tensor:
    """Returns TD3's next action: the target actor's with clamped noise, inside the bounds, [B, A]."""
    noise = (0.2 * normal(seen.uniform(1, 2, tag=2)[:, 0])).clamp(-0.5, 0.5) * HALF
    return (bounded(seen.models["actor_target"], step_of(seen).after) + noise).clamp(LOW, HIGH)


def td3_bc(seen: Seen, discount: float = 0.99, weight: float = 2.5) -> dict[str, Tensor]:
    """Returns TD3+BC's losses: smoothed targets of twin critics, and Q over its mean size with cloning."""
    step, models = step_of(seen), seen.models
    next_value = output(models["q_target"], step.after, smoothed(seen))
    recorded, decided = output(models["q"], step.now, step.action), bounded(models["actor"], step.now)
    error = recorded - step.target(discount, next_value.amin(0))
    scaled = output(models["q"], step.now, decided)[0] / step.mean(recorded[0].abs()).detach()
    near = ((decided - step.action) / HALF).square().mean(-1)
    return {"critic": step.mean(error.square()) / 2, "actor": step.mean(near - weight * scaled)}


def double_q(seen: Seen, discount: float) -> tuple[Tensor, Tensor]:
    """Returns the values of all actions of discrete tasks, [B, A], and half the squared errors of double DQN, [B]."""
    step, actor, row = step_of(seen), seen.models["actor"], torch.arange(len(seen.experience))
    q, best = output(actor, step.now), output(actor, step.after).argmax(-1)
    error = q[row, step.action] - step.target(discount, output(seen.models["target"], step.after)[row, best])
    return q, error.square() / 2


def expectile(gap: Tensor, level: float) -> Tensor:
    """Returns the squares of gaps, weighted by `level` where they are positive and by 1 - level where not."""
    return torch.where(gap < 0, 1.0 - level, level) * gap.square()


def iql(seen: Seen, discount: float, level: float) -> dict[str, Tensor]:
    """Returns IQL's losses of V, an expectile of the target critics' lower value, and of Q with targets by V."""
    step, models = step_of(seen), seen.models
    gain = output(models["q_target"], step.now, step.action).amin(0).detach() - output(models["value"], step.now)
    error = output(models["q"], step.now, step.action) - step.target(discount, output(models["value"], step.after))
    return {"value": step.mean(expectile(gain, level)), "q": step.mean(error.square()) / 2}


def cloned_by_gain(seen: Seen, inverse_temperature: float = 3.0) -> Tensor:
    """Returns IQL's loss of the policy: likelihoods weighted by e^(3 * gain), at most 100; a Gaussian's but for a
    constant.
    """
    step, models = step_of(seen), seen.models
    actor = models["actor"]
    gain = output(models["q_target"], step.now, step.action).amin(0) - output(models["value"], step.now)
    if step.action.is_floating_point():
        error = (in_half_ranges(step.action) - output(actor, step.now)) / actor.log_std.exp()
        logp = -(error.square() / 2 + actor.log_std).sum(-1)
    else:
        logp = output(actor, step.now).log_softmax(-1)[torch.arange(len(step.reward)), step.action]
    return -step.mean((inverse_temperature * gain).exp().clamp(max=100.0).detach() * logp)


def iql_losses(seen: Seen) -> dict[str, Tensor]:
    """Returns IQL's losses of V, Q and the policy with its usual settings."""
    return {**iql(seen, 0.99, 0.7), "actor": cloned_by_gain(seen)}


def conservative(seen: Seen, discount: float, num: int, least: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns half the squared errors of SAC's critics, with targets without entropy, and CQL's penalty of each with
    `num` proposals of each kind, [N, B] both; if `least` [B] is given the policy's proposals are worth at least that.
    """
    step, (actor, q, target) = step_of(seen), (seen.models[name] for name in ("actor", "q", "q_target"))
    next_action, _ = squashed(actor, step.after, seen.uniform(1, 2, tag=2)[:, 0])
    recorded = output(q, step.now, step.action)
    error = recorded - step.target(discount, output(target, step.after, next_action).amin(0))
    values = []
    for k in range(num):
        for tag, place in ((4, step.now), (5, step.after)):
            action, logp = squashed(actor, place, seen.uniform(1, num, 2, tag=tag)[:, 0, k])
            value = output(q, step.now, action.detach())
            value = value if least is None else torch.where(value > least, value, least)
            values.append(value - logp.detach())
        anything = LOW + (HIGH - LOW) * seen.uniform(1, num, 2, tag=6)[:, 0, k]
        values.append(output(q, step.now, anything) + math.log(4.0))
    return error.square() / 2, torch.stack(values).logsumexp(0) - recorded


def rlpd_critics(seen: Seen, discount: float, reward: Tensor | None = None) -> Tensor:
    """Returns the loss of RLPD's ten critics, with targets of a random pair of them and without entropy; `reward` [B]
    replaces the recorded one.
    """
    step, models, row = step_of(seen), seen.models, torch.arange(len(seen.experience))
    step = step if reward is None else replace(step, reward=reward)
    action, _ = squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    onward, pair = output(models["q_target"], step.after, action), (10 * seen.uniform(1, 2, tag=3)[:, 0]).long()
    lower = torch.minimum(onward[pair[:, 0], row], onward[pair[:, 1], row])
    error = output(models["q"], step.now, step.action) - step.target(discount, lower)
    return step.mean(error.square()) / 2


def soft_target(seen: Seen, discount: float = 0.99, q: Callable[[Tensor, Tensor], Tensor] | None = None) -> Tensor:
    """Returns SAC's targets, r + discount * (q(s', a') - temperature * log pi(a'|s')) with a' ~ pi, [B]; `q` is the
    lowest of the target critics unless given.
    """
    step, models = step_of(seen), seen.models
    action, logp = squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    value = output(models["q_target"], step.after, action).amin(0) if q is None else q(step.after, action)
    return step.target(discount, value - models["temperature"].log_value.exp() * logp)


def sac_actor(seen: Seen, q: Callable[[Tensor, Tensor], Tensor] | None = None, least: float = 2.0) -> Tensor:
    """Returns SAC's loss of actor and temperature; `q(s, a)` is the value that the actor climbs, [B], the lowest of the
    critics unless given; `least` is minus the target entropy, one for each dimension unless given.

    temperature * log pi(a|s) - q(s, a) - log temperature * (log pi(a|s) - least), with the critics, the
    temperature in the first term and log pi in the last held fixed.
    """
    step, log_temperature = step_of(seen), seen.models["temperature"].log_value
    action, logp = squashed(seen.models["actor"], step.now, seen.uniform(1, 2, tag=1)[:, 0])
    value = output(seen.models["q"], step.now, action).amin(0) if q is None else q(step.now, action)
    actor = log_temperature.exp().detach() * logp - value
    return step.mean(actor - log_temperature * (logp.detach() - least))


def sac_report(seen: Seen, recorded: Tensor, error: Tensor, q: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Tensor]:
    """Returns what an update of SAC reports: means over rows with a decision, and over critics, of the values and
    errors [N, B] of recorded actions, of `q(s, a)` [B] that the actor climbs, and of its entropy.
    """
    step, num = step_of(seen), len(recorded)
    action, logp = squashed(seen.models["actor"], step.now, seen.uniform(1, 2, tag=1)[:, 0])
    of_critics = {"mean": recorded, "error": error.square()}
    return {
        **{f"q_{name}": step.mean(one) / num for name, one in of_critics.items()},
        "q": step.mean(q(step.now, action)),
        "entropy": -step.mean(logp),
        "temperature": seen.models["temperature"].log_value.exp(),
        "entropy_short": (step.mean(logp) - 2.0) / 2.0,
    }
