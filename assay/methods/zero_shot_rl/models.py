"""Forward-backward representations: one model of all policies, indexed by a task vector z.

Axes: K forward heads, A actions, D numbers of a representation, leading axes as given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Ask, Body
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.methods.zero_shot_rl.waves import Waves, filled, is_finite, range_of
from assay.models.bodies.perceptron import Vectors, vectors
from assay.models.heads.spaces import register_bounds
from assay.ops import distributions

NUM_HEADS = 2
NOISE, NOISE_LIMIT = 0.2, 0.3
"""Deviation and bound of the noise on the actions whose future is predicted, in half ranges."""


class ForwardBackward(nn.Module):
    """F(s, a, z) . B(g) is the discounted frequency of g under pi_z after taking a in s, relative to the data's; pi_z
    takes the action with the largest F(s, a, z) . z. For a goal, z = B(g). |B| = sqrt(D). Inputs are Fourier
    features.
    """

    centre: Tensor
    half_range: Tensor

    def __init__(self, body: Vectors, spec: Spec, size: int, ranges: tuple[Box | None, Box | None]) -> None:
        super().__init__()
        assert isinstance(spec.observation, Box)
        assert spec.goal is not None
        self.size = size
        self.space = spec.action
        self.seen, self.places = (
            Waves(filled(space, own)) for space, own in zip((spec.observation, spec.goal), ranges, strict=True)
        )
        num_inputs = self.seen.size + size
        one, heads = Ask((size,), activation=nn.ReLU), Ask((size,), activation=nn.ReLU, members=NUM_HEADS)
        self.back = body.network(self.places.size, one)
        if isinstance(spec.action, Discrete):
            self.num_draws = 1
            self.ahead = body.network(num_inputs, replace(heads, shape=(spec.action.n, size)))
        else:
            assert isinstance(spec.action, Box)
            self.num_draws = spec.action.size
            self.ahead = body.network(num_inputs + spec.action.size, heads)
            self.policy = body.network(num_inputs, replace(one, shape=(spec.action.size,)))
            register_bounds(self, spec.action)

    # ------------------------------------------------------------------------------------------------ representations
    def backward_of(self, place: Tensor) -> Tensor:
        """Returns B of positions in goal space, [..., D]."""
        return self.size**0.5 * nn.functional.normalize(self.back(self.places(place)), dim=-1)

    def forwards(self, context: Context, actions: Tensor | None, z: Tensor) -> Tensor:
        """Returns F [K, ..., A, D]: of every discrete action if `actions` is None, else of continuous ones [..., A,
        size].
        """
        rows = torch.cat((self.seen(context["observation"]), z), -1)
        if actions is not None:
            rows = torch.cat((rows.unsqueeze(-2).expand(*actions.shape[:-1], rows.shape[-1]), actions), -1)
        found = self.ahead(rows.flatten(0, -2)).view(NUM_HEADS, *rows.shape[:-1], -1)
        return found if actions is not None else found.unflatten(-1, (-1, self.size))

    def forward_of(self, context: Context, action: Tensor, z: Tensor) -> Tensor:
        """Returns F(s, a, z) of recorded actions, [K, ..., D]."""
        if isinstance(self.space, Box):
            return self.forwards(context, action.unsqueeze(-2), z).squeeze(-2)
        every = self.forwards(context, None, z)
        index = action.expand(NUM_HEADS, *action.shape)[..., None, None].expand(*every.shape[:-2], 1, self.size)
        return every.gather(-2, index).squeeze(-2)

    @torch.no_grad()
    def tasks(self, goal: Tensor, uniform: Tensor) -> Tensor:
        """Returns training tasks z from uniform numbers [..., D + 1]: on the sphere, or B of goals in half of the
        rows.
        """
        normal = distributions.normal_sample(uniform[..., : self.size])
        sphere = self.size**0.5 * nn.functional.normalize(normal, dim=-1)
        return torch.where(uniform[..., self.size :] < 0.5, self.backward_of(goal), sphere)

    def infer(self, places: Tensor, reward: Tensor) -> Tensor:
        """Returns z of any task from positions [M, G] of the data and their rewards [M]: E[r B], scaled to sqrt(D)."""
        z = (reward.unsqueeze(-1) * self.backward_of(places)).mean(0)
        return self.size**0.5 * nn.functional.normalize(z, dim=-1)

    def solving(self, z: Tensor) -> TaskPolicy:
        """Returns pi_z."""
        return TaskPolicy(self, z)

    # ------------------------------------------------------------------------------------------------ acting
    def decide(self, context: Context, z: Tensor, uniform: Tensor | None = None) -> Tensor:
        """Returns pi_z(s): the best discrete action, or the policy's continuous one, with clipped noise given uniform
        numbers.
        """
        if isinstance(self.space, Discrete):
            return (self.forwards(context, None, z) * z.unsqueeze(-2)).sum(-1).amin(0).argmax(-1)
        action = self.policy(torch.cat((self.seen(context["observation"]), z), -1)).tanh()
        if uniform is not None:
            noise = NOISE * distributions.normal_sample(uniform)
            action = (action + noise.clamp(-NOISE_LIMIT, NOISE_LIMIT)).clamp(-1.0, 1.0)
        return self.centre + self.half_range * action

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions towards the context's goal; `uniform` is not used."""
        action = self.decide(context, self.backward_of(context["goal"]))
        return action, context["observation"].new_zeros(len(action))

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log softmax of F . z, or minus half the squared distance of continuous actions, so that it can be
        cloned.
        """
        z = self.backward_of(batch.context["goal"])
        if isinstance(self.space, Discrete):
            values = (self.forwards(batch.context, None, z) * z.unsqueeze(-2)).sum(-1).amin(0)
            logp = values.log_softmax(-1).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
        else:
            apart = (batch.action - self.decide(batch.context, z)) / self.half_range
            logp = -0.5 * apart.square().sum(-1)
        return Scored(logp * batch.mask)


class TaskPolicy:
    """pi_z of one z [D], whatever the context's goal."""

    num_draws = 1

    def __init__(self, model: ForwardBackward, z: Tensor) -> None:
        self.model, self.z = model, z

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns pi_z(s) and log-probability 0; `uniform` is not used."""
        seen = context["observation"]
        return self.model.decide(context, self.z.expand(*seen.shape[:-1], -1)), seen.new_zeros(len(seen))


@dataclass(frozen=True)
class ForwardBackwardActor(ActorHead):
    """F, B and pi_z of `size` numbers, for discrete and continuous actions (arXiv:2103.07945).

    `seen` and `places` are the ranges of the data's observations and positions; they scale the inputs that the task
    does not bound. A plan fills them in.
    """

    size: int = 32
    seen: Box | None = None
    places: Box | None = None
    breaks: ClassVar[dict[str, str]] = {
        "agree": "acts greedily with log-probability 0; `score` is for cloning",
        "frequencies": "acts greedily; `score` is for cloning",
        "normalised": "no density for continuous actions: `score` is a squared distance, so cloning is least squares",
    }

    def needs_data(self, spec: Spec) -> bool:
        """Returns whether some input has neither bounds nor a range of the data; False without goals (see `on`)."""
        spaces = ((spec.observation, self.seen), (spec.goal, self.places))
        return spec.goal is not None and any(
            isinstance(space, Box) and own is None and not is_finite(space) for space, own in spaces
        )

    def of_data(self, observation: Tensor, achieved: Tensor | None) -> ForwardBackwardActor:
        """Returns the actor with the ranges of these states."""
        places = None if achieved is None else range_of(achieved)
        return replace(self, seen=range_of(observation), places=places)

    def on(self, body: Body, spec: Spec) -> nn.Module:
        """Returns the actor for this task."""
        if spec.goal is None:
            raise AssayError("ForwardBackwardActor needs a task with goals; this one has none. Use four-rooms")
        return ForwardBackward(vectors(body, "ForwardBackwardActor"), spec, self.size, (self.seen, self.places))
