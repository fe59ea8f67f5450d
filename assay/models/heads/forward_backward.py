"""Forward-backward representations: one model of all policies, indexed by a task vector z.

Axes: K forward heads, A actions, D numbers of a representation, leading axes as given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Ask, Body
from assay.core.spaces import Box, Context, Discrete, Space, Spec
from assay.models.bodies.perceptron import Vectors, vectors
from assay.models.heads.bounded import scored_distance
from assay.models.heads.goals import need_goal, of_length_root
from assay.models.heads.spaces import is_finite, register_bounds
from assay.models.heads.value import scored_softmax
from assay.models.heads.waves import Waves
from assay.ops import distributions

NUM_HEADS = 2


NOISE, NOISE_LIMIT = 0.2, 0.3
"""Deviation and bound of the noise on the actions whose future is predicted, in half ranges."""


class ForwardBackward(nn.Module):
    """F(s, a, z) . B(g) is the discounted frequency of g under pi_z after taking a in s, relative to the data's; pi_z
    takes the action with the largest F(s, a, z) . z. For a goal, z = B(g). |B| = sqrt(D). Inputs are `Waves`.
    """

    centre: Tensor
    half_range: Tensor

    def __init__(self, body: Vectors, action: Space, seen: Waves, places: Waves, size: int) -> None:
        super().__init__()
        self.size, self.space, self.seen, self.places = size, action, seen, places
        num_inputs = self.seen.size + size
        one, heads = Ask((size,), activation=nn.ReLU), Ask((size,), activation=nn.ReLU, members=NUM_HEADS)
        self.back = body.network(self.places.size, one)
        if isinstance(action, Discrete):
            self.num_draws = 1
            self.ahead = body.network(num_inputs, replace(heads, shape=(action.n, size)))
        else:
            assert isinstance(action, Box)
            self.num_draws = action.size
            self.ahead = body.network(num_inputs + action.size, heads)
            self.policy = self.acting(body, num_inputs, action)
            register_bounds(self, action)
        self.num_next_draws = self.num_draws  # of the actions whose future is predicted

    def acting(self, body: Vectors, num_inputs: int, space: Box) -> nn.Module:
        """Returns the network of pi_z for continuous actions."""
        return body.network(num_inputs, Ask((space.size,), activation=nn.ReLU))

    def backward_of(self, place: Tensor) -> Tensor:
        """Returns B of positions in goal space, [..., D]."""
        return of_length_root(self.back(self.places(place)))

    def forwards(self, context: Context, actions: Tensor | None, z: Tensor) -> Tensor:
        """Returns F [K, ..., A, D]: of every discrete action if `actions` is None, else of these [..., A, size]."""
        rows = torch.cat((self.seen(context["observation"]), z), -1)
        if actions is not None:
            scaled = (actions - self.centre) / self.half_range
            rows = torch.cat((rows.unsqueeze(-2).expand(*actions.shape[:-1], rows.shape[-1]), scaled), -1)
        found = self.ahead(rows.flatten(0, -2)).view(NUM_HEADS, *rows.shape[:-1], -1)
        return found if actions is not None else found.unflatten(-1, (-1, self.size))

    def forward_of(self, context: Context, action: Tensor, z: Tensor) -> Tensor:
        """Returns F(s, a, z) of recorded actions, [K, ..., D]."""
        if isinstance(self.space, Box):
            return self.forwards(context, action.unsqueeze(-2), z).squeeze(-2)
        return self.forwards(context, None, z).take_along_dim(action[None, ..., None, None], -2).squeeze(-2)

    def values(self, context: Context, z: Tensor) -> Tensor:
        """Returns min_k F_k . z of every discrete action, [..., A]."""
        return (self.forwards(context, None, z) * z.unsqueeze(-2)).sum(-1).amin(0)

    @torch.no_grad()
    def tasks(self, goal: Tensor, uniform: Tensor) -> Tensor:
        """Returns tasks z from uniform numbers [..., D + 1]: on the sphere, or B of goals in half of the rows."""
        sphere = of_length_root(distributions.normal_sample(uniform[..., : self.size]))
        return torch.where(uniform[..., self.size :] < 0.5, self.backward_of(goal), sphere)

    def infer(self, places: Tensor, reward: Tensor) -> Tensor:
        """Returns z of any task from positions [M, G] of the data and their rewards [M]: E[r B], scaled to sqrt(D)."""
        return of_length_root((reward.unsqueeze(-1) * self.backward_of(places)).mean(0))

    def solving(self, z: Tensor) -> TaskPolicy:
        """Returns pi_z."""
        return TaskPolicy(self, z)

    def decide(self, context: Context, z: Tensor, uniform: Tensor | None = None) -> Tensor:
        """Returns pi_z(s): the best discrete action, or the policy's continuous one, with noise by `uniform`."""
        if isinstance(self.space, Discrete):
            return self.values(context, z).argmax(-1)
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
        """Returns log softmax of F . z, or minus half the squared distance of continuous actions: for cloning."""
        z = self.backward_of(batch.context["goal"])
        if isinstance(self.space, Discrete):
            return scored_softmax(self.values(batch.context, z), batch)
        return scored_distance(self.decide(batch.context, z), self.half_range, batch)


class TaskPolicy:
    """pi_z of one z [D], whatever the context's goal."""

    num_draws = 1

    def __init__(self, model: ForwardBackward, z: Tensor) -> None:
        self.model, self.z = model, z

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns pi_z(s) and log-probability 0; `uniform` is not used."""
        seen = context["observation"]
        return self.model.decide(context, self.z.expand(*seen.shape[:-1], -1)), seen.new_zeros(len(seen))


def range_of(values: Tensor) -> Box:
    """Returns the smallest and largest of each number [N, D]; a constant one has a range of 1 around it."""
    low, high = values.double().amin(0), values.double().amax(0)
    room = torch.where(high > low, 0.0, 0.5)
    return Box(tuple((low - room).tolist()), tuple((high + room).tolist()))


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
        "masked": "trained on recorded data, and data of tasks with masks are refused",
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
        goal, networks = need_goal(spec, "ForwardBackwardActor"), vectors(body, "ForwardBackwardActor")
        assert isinstance(spec.observation, Box)
        seen, places = Waves(spec.observation, self.seen), Waves(goal, self.places)
        return self.module(networks, spec.action, seen, places)

    def module(self, networks: Vectors, action: Space, seen: Waves, places: Waves) -> ForwardBackward:
        """Returns the networks on these inputs."""
        return ForwardBackward(networks, action, seen, places, self.size)
