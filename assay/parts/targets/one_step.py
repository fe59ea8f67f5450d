"""One-step targets r + discount * value of the next state. Axes: B sequences, T columns, N critics, A actions.

A transition is a sequence of two columns; longer sequences give one transition for each decision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.settings import model_name
from assay.core.slots import Target, View
from assay.ops.distributions import normal_sample


def one_step_target(now: Experience, value_next: Tensor, discount: float | Tensor) -> Tensor:
    """Returns r + discount * V(s'); terminal steps do not bootstrap, truncated ones do. No gradient.

    Where replay sums m rewards (`Replay.steps`), the discount is taken to the power of m, its column `steps_ahead`.
    """
    if "steps_ahead" in now.extra:
        discount = discount ** now.column("steps_ahead")
    return (now.reward + discount * value_next * (~now.terminal)).detach()


@dataclass(frozen=True)
class NextValue(Target):
    """y = r + discount * V(s'): the targets of IQL, XQL and f-DVL. Each head of a critic has its own target.

    Degenerate: y = r with discount 0, and after a terminal decision. Source: arXiv:2110.06169. Assumes a critic of
    states.
    """

    discount: float = 0.99
    value: str = model_name("value")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        return one_step_target(batch.now, view.model(self.value)(batch.after.context), self.discount)


@dataclass(frozen=True)
class DoubleQ(Target):
    """y = r + discount * Q_target(s', argmax Q(s', .)): double DQN (arXiv:1509.06461).

    Degenerate: if `target` names the actor itself, y = r + discount * max Q(s', .). Assumes discrete actions.
    """

    discount: float = 0.99
    actor: str = model_name("actor")
    target: str = model_name("target")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        after = batch.after
        best = view.model(self.actor).values(after.context).argmax(-1, keepdim=True)
        value_next = view.model(self.target).values(after.context).gather(-1, best).squeeze(-1)
        return one_step_target(batch.now, value_next, self.discount)


def smoothed_next(batch: Experience, view: View, actor: str, size: float, limit: float) -> Tensor:
    """Returns a deterministic actor's actions in the next states, with clipped normal noise in half-ranges."""
    model = view.model(actor)
    action = model.decide(batch.after.context)
    noise = size * normal_sample(view.uniform(action.shape, tag=2))
    found: Tensor = model.clamp(action + noise.clamp(-limit, limit) * model.half_range)
    return found


@dataclass(frozen=True)
class SmoothedTwin(Target):
    """y = r + discount * min_i Q'_i(s', mu'(s') + clipped noise): TD3 (arXiv:1802.09477).

    Degenerate: noise 0 takes mu'(s') itself. Assumes bounded actions and copies of actor and critics.
    """

    discount: float = 0.99
    noise: float = 0.2
    noise_limit: float = 0.5
    actor: str = model_name("actor_target")
    q: str = model_name("q_target")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        action = smoothed_next(batch, view, self.actor, self.noise, self.noise_limit)
        value_next = view.model(self.q)(batch.after.context, action).amin(0)
        return one_step_target(batch.now, value_next, self.discount)


def sampled_next(batch: Experience, view: View, actor: str) -> tuple[Tensor, Tensor]:
    """Samples the actor's actions in the next states; returns them with their log-probabilities."""
    model = view.model(actor)
    uniform = view.uniform((*batch.now.mask.shape, model.num_draws), tag=2)
    action, logp = model.sample(batch.after.context, uniform)
    return action, logp


@dataclass(frozen=True)
class SoftTwin(Target):
    """y = r + discount * (min_i Q'_i(s', a') - temperature * log pi(a'|s')), a' ~ pi(.|s'): SAC (arXiv:1812.05905).

    Degenerate: as the temperature goes to 0 it becomes OwnAction over all critics. Assumes an actor that can be sampled
    and a copy of the critics.
    """

    discount: float = 0.99
    actor: str = model_name("actor")
    q: str = model_name("q_target")
    temperature: str = model_name("temperature")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        action, logp = sampled_next(batch, view, self.actor)
        value_next = view.model(self.q)(batch.after.context, action).amin(0) - view.model(self.temperature)() * logp
        return one_step_target(batch.now, value_next, self.discount)


@dataclass(frozen=True)
class OwnAction(Target):
    """y = r + discount * min over k of Q'_k(s', a'),  a' ~ pi(.|s'), no entropy.

    k runs over `subset` critics drawn with replacement for each decision (WSRL, arXiv:2412.07762; in REDQ,
    arXiv:2101.05982, they are distinct and drawn once per update), over all critics if `subset` is 0 (CQL, SAC-N).
    Degenerate: with one critic, `subset` changes nothing. Assumes an actor that can be sampled.
    """

    discount: float = 0.99
    subset: int = 0
    actor: str = model_name("actor")
    q: str = model_name("q_target")

    def __post_init__(self) -> None:
        if self.subset < 0:
            raise AssayError(f"OwnAction.subset is {self.subset}. Use 0 for all critics, or how many of them")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        action, _ = sampled_next(batch, view, self.actor)
        values = view.model(self.q)(batch.after.context, action)
        if self.subset:
            values = chosen(values, view.uniform((*batch.now.mask.shape, self.subset), tag=3))
        return one_step_target(batch.now, values.amin(0), self.discount)


def chosen(values_NBT: Tensor, uniform_BTM: Tensor) -> Tensor:
    """Returns the values of M critics drawn with replacement for each decision, [M, B, T]."""
    num = len(values_NBT)
    index = (uniform_BTM * num).long().clamp(max=num - 1)
    return values_NBT.movedim(0, -1).gather(-1, index).movedim(-1, 0)
