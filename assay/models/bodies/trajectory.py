"""A causal transformer over an episode: tokens of return-to-go, state and action of each decision.

Axes: R rows, T decisions, L = 3 T - 1 tokens, W width, S numbers of a state, A of an action, k past decisions shown.

    R_0 s_0 a_0 R_1 s_1 a_1 ... R_t s_t        outputs are read where s_t stands, so a_t and all that follows is unseen

In training a row is a window of a log with the returns that it got (`assay.parts.Windows`). When acting, the returns
are what is left of a target: R_t = target - r_0 - ... - r_t-1, and the window is what the task remembers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body, History
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.models.action_units import ActionUnits
from assay.models.bodies.perceptron import feature_size, features, shaped
from assay.models.bodies.stacks import CausalStack, Embedding, LinearTokens, Stack

EPSILON = 1e-6


class TrajectoryOutputs(nn.Module):
    """Outputs of the decisions of windows, or of the latest decision of each row."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, settings: Trajectory, spec: Spec, ask: Ask) -> None:
        super().__init__()
        self.settings, self.spec, self.shape = settings, spec, ask.shape
        self.stack, embed = settings.stack.build(), settings.embed
        self.width: int = self.stack.width  # type: ignore[assignment]
        size, self.units = state_size(spec), ActionUnits(spec.action)
        mean, deviation = settings.moments or ((0.0,), (1.0 - EPSILON,))
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("deviation", torch.tensor(deviation) + EPSILON)
        self.of_return, self.of_state = embed.token(1, self.width), embed.token(size, self.width)
        self.of_action = embed.token(action_size(spec), self.width)
        self.of_time, self.norm = nn.Embedding(spec.horizon + 1, self.width), nn.LayerNorm(self.width)
        nn.init.normal_(self.of_time.weight, std=0.02)
        self.output = embed.output(self.width, ask.num)

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns [R, T, *shape] for windows, [..., *shape] for contexts that show their past."""
        if "return_to_go" in context:
            tokens = self.tokens(
                context["return_to_go"], self.states(context), context["previous_action"][:, 1:], context["time"]
            )
            return shaped(self.output(self.stack(tokens)[:, 1::3]), self.shape)
        states = self.states(context)
        axes = states.shape[:-1]
        flat = {name: value.flatten(0, len(axes) - 1) for name, value in context.items()}
        return shaped(self.output(self.latest(flat, states.flatten(0, -2))), self.shape).unflatten(0, axes)

    def latest(self, context: Context, state: Tensor) -> Tensor:
        """Returns the hidden state of each row's current decision, [R, W]; a context without past is a first step."""
        rows, k = len(state), self.settings.length - 1
        left = (self.settings.target or 0.0) - context.get("received", state.new_zeros(rows))
        time = context.get("time", torch.zeros(rows, dtype=torch.int64, device=state.device))
        if "past" not in context or not k:
            tokens = self.tokens(left[:, None], state[:, None], self.none(state), time[:, None])
            return self.stack(tokens)[:, 1]
        past, reward = context["past"][:, -k:], context["past_reward"][:, -k:]
        k = past.shape[1]
        before = {name: context[f"past_{name}"][:, -k:] for name in ("observation", "state") if name in context}
        goal = {name: context[name].unsqueeze(1).expand(-1, k, -1) for name in ("goal",) if name in context}
        returns = torch.cat((left[:, None] + reward.flip(1).cumsum(1).flip(1), left[:, None]), 1)
        seen = torch.cat((self.states({**before, **goal}), state[:, None]), 1)
        times = (time[:, None] - torch.arange(k, -1, -1, device=state.device)).clamp(min=0)
        # Rows begin where their episode does: what stands behind a row's latest decision is not seen from there.
        place = torch.arange(k + 1, device=state.device) + (~past).sum(1, keepdim=True)
        index = place.clamp(max=k)

        def moved(value: Tensor, at: Tensor) -> Tensor:
            return value.gather(1, at.view(*at.shape, *[1] * (value.dim() - 2)).expand(*at.shape, *value.shape[2:]))

        done = moved(context["past_action"][:, -k:], index[:, :k].clamp(max=k - 1))
        tokens = self.tokens(moved(returns, index), moved(seen, index), done, moved(times, index))
        return self.stack(tokens)[torch.arange(rows), 3 * past.sum(1) + 1]

    def tokens(self, returns: Tensor, states: Tensor, done: Tensor, time: Tensor) -> Tensor:
        """Returns tokens [R, L, W] of returns [R, T], states [R, T, S], the actions between them and times [R, T]."""
        wanted = (returns / (self.settings.scale or 1.0)).unsqueeze(-1).to(states.dtype)
        acts = self.of_action(functional.pad(self.actions(done, states), (0, 0, 0, 1)))
        tokens = torch.stack((self.of_return(wanted), self.of_state(states), acts), 2)
        times = self.of_time(time.clamp(max=self.spec.horizon)).unsqueeze(2)
        tokens = self.norm(tokens + times) if self.settings.embed.is_timed_first else self.norm(tokens) + times
        return tokens.flatten(1, 2)[:, :-1]

    def none(self, like: Tensor) -> Tensor:
        """Returns no actions, [R, 0, ...]."""
        if isinstance(self.spec.action, Box):
            return like.new_zeros(len(like), 0, self.spec.action.size)
        return torch.zeros(len(like), 0, dtype=torch.int64, device=like.device)

    def states(self, context: Context) -> Tensor:
        """Returns states as vectors [..., S]: standardised observations and goals, or which of the states it is."""
        if isinstance(self.spec.observation, Discrete):
            return functional.one_hot(context["state"], self.spec.observation.n).to(self.mean.dtype)
        return features({**context, "observation": (context["observation"] - self.mean) / self.deviation})

    def actions(self, done: Tensor, like: Tensor) -> Tensor:
        """Returns actions as vectors [..., A], continuous ones in half-ranges."""
        if isinstance(self.spec.action, Discrete):
            return functional.one_hot(done, self.spec.action.n).to(like.dtype)
        return self.units(done).to(like.dtype)


def state_size(spec: Spec) -> int:
    """Returns the numbers of a state; AssayError if it is neither a vector nor numbered."""
    return spec.observation.n if isinstance(spec.observation, Discrete) else feature_size(spec)


def action_size(spec: Spec) -> int:
    """Returns the numbers of an action; AssayError if it is neither a vector nor one choice."""
    if isinstance(spec.action, Box | Discrete):
        return spec.action.size if isinstance(spec.action, Box) else spec.action.n
    raise AssayError(f"a trajectory has continuous or discrete actions, the task has {spec.action}. Use another body")


@dataclass(frozen=True)
class Trajectory(Body):
    """A causal transformer over the last `length` decisions, conditioned on returns (arXiv:2106.01345).

    `target` is the return that it tries to get, by default the best of the dataset; `scale` divides returns, by default
    by the largest return-to-go of the dataset; `moments` are mean and deviation of the dataset's states. A plan fills
    them in. Degenerate: in a context without past it decides as in the first step of an episode. Assumes that returns
    of the log can be had again: where they were luck it asks for luck.
    """

    stack: Stack = CausalStack()
    embed: Embedding = LinearTokens()
    length: int = 20
    target: float | None = None
    scale: float | None = None
    moments: tuple[tuple[float, ...], ...] = ()
    scale_free: ClassVar[bool] = True

    @property
    def reads_history(self) -> History:
        """How much of the past it reads."""
        return History(self.length, actions=True, rewards=True)

    def needs_data(self, spec: Spec) -> bool:
        """Returns whether the moments are missing."""
        return isinstance(spec.observation, Box) and not self.moments

    def of_data(self, observation: Tensor, achieved: Tensor | None) -> Trajectory:
        """Returns the body with the moments of these states, [N, D]."""
        deviation, mean = torch.std_mean(observation.double(), 0, correction=0)
        return replace(self, moments=(tuple(mean.tolist()), tuple(deviation.tolist())))

    @property
    def needs_rewards(self) -> bool:
        """Whether the target or the scale of returns is missing."""
        return self.target is None or self.scale is None

    def of_rewards(self, reward: Tensor, is_last: Tensor) -> Trajectory:
        """Returns the body with the best return and the largest return-to-go of these episodes, in absolute value."""
        sums, last = reward.double().cumsum(0), is_last.nonzero().squeeze(1)
        ends = sums[last]
        onward = ends[is_last.long().cumsum(0) - is_last.long()] - sums + reward.double()
        best = float((ends - torch.cat((ends.new_zeros(1), ends[:-1]))).max())
        scale = float(onward.abs().max()) or 1.0
        return replace(
            self, target=best if self.target is None else self.target, scale=scale if self.scale is None else self.scale
        )

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        if ask.action or ask.members:
            raise AssayError("a trajectory has outputs of decisions, not of actions. Use Perceptron()")
        return TrajectoryOutputs(self, spec, ask)
