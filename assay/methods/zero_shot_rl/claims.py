"""Forward-backward representations of a known finite process. Axes: S states, A actions, D = S.

The data are all (s, a, s') equally often; rho is how often each state is entered. B is an invertible matrix, so that
F = M B^-T exists: F . B is exactly the successor measure M of the greedy policy for z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.spaces import Context, Discrete


@dataclass(frozen=True)
class KnownProcess:
    """Successors [S, A, 2], equally likely, and a discount."""

    successors: Tensor
    discount: float

    @property
    def num_states(self) -> int:
        """Returns S."""
        return len(self.successors)

    @cached_property
    def P(self) -> Tensor:
        """Returns the transition probabilities [S, A, S]."""
        return torch.nn.functional.one_hot(self.successors, self.num_states).double().mean(2)

    @cached_property
    def rho(self) -> Tensor:
        """Returns how often the data enter each state."""
        return self.P.mean((0, 1))

    @cached_property
    def basis(self) -> Tensor:
        """Returns B [S, D]: invertible, and not orthogonal."""
        places = torch.arange(self.num_states).double()
        return torch.cos(places.unsqueeze(1) * (places + 0.7)) + torch.eye(self.num_states).double()

    def measure(self, policy: Tensor) -> Tensor:
        """Returns M [S, A, S]: density of the discounted states after (s, a) under a policy [S], relative to rho."""
        under = self.P[torch.arange(self.num_states), policy]
        visits = torch.linalg.inv(torch.eye(self.num_states).double() - self.discount * under)
        return self.P @ visits / self.rho

    def solved(self, reward: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (F [S, A, D], z [D]) where F is that of the greedy policy for F . z, z = E_rho[r B]."""
        z = (self.rho * reward) @ self.basis
        policy = torch.zeros(self.num_states, dtype=torch.long)
        for _ in range(50):
            forward = self.measure(policy) @ torch.linalg.inv(self.basis).T
            policy = (forward @ z).round(decimals=9).argmax(-1)
        return forward, z

    def best_values(self, reward: Tensor) -> Tensor:
        """Returns Q [S, A] of the optimal policy if entering s' gives r(s'), by value iteration."""
        values = torch.zeros(self.P.shape[:2], dtype=torch.float64)
        for _ in range(2000):
            values = self.P @ (reward + self.discount * values.amax(-1))
        return values

    def rows(self) -> Experience:
        """Returns all (s, a, s') as transitions."""
        places = torch.cartesian_prod(*map(torch.arange, self.successors.shape))
        state, action, which = places.unbind(1)
        seen = torch.stack([state, self.successors[state, action, which]], 1).unsqueeze(-1)
        first = torch.tensor([True, False]).expand(len(state), 2)
        zero, none = torch.zeros(len(state), 2, dtype=torch.float64), torch.zeros_like(first)
        context = {"observation": seen, "achieved": seen, "goal": seen}
        both = torch.stack([action, action], 1)
        return Experience(context, both, first, zero, zero, none, none, source=torch.zeros_like(state))


class Tables:
    """F and B as tables, one head, one task: the model interface of the losses."""

    num_draws = 1

    def __init__(self, forward: Tensor, backward: Tensor, z: Tensor) -> None:
        self.forward, self.backward, self.z = forward, backward, z
        self.size, self.space = len(z), Discrete(forward.shape[1])

    def backward_of(self, place: Tensor) -> Tensor:
        """Returns B of numbered states."""
        return self.backward[place[..., 0]]

    def forwards(self, context: Context, actions: None, z: Tensor) -> Tensor:
        """Returns F of every action."""
        return self.forward[context["observation"][..., 0]].unsqueeze(0)

    def forward_of(self, context: Context, action: Tensor, z: Tensor) -> Tensor:
        """Returns F of given actions."""
        return self.forward[context["observation"][..., 0], action].unsqueeze(0)

    def tasks(self, goal: Tensor, uniform: Tensor) -> Tensor:
        """Returns the only task."""
        return self.z.expand(*goal.shape[:-1], self.size)

    def decide(self, context: Context, z: Tensor, uniform: Tensor | None = None) -> Tensor:
        """Returns the greedy action."""
        return (self.forward @ self.z).detach().round(decimals=9).argmax(-1)[context["observation"][..., 0]]


class TablesView:
    """A view in which `target` is the model without gradient."""

    def __init__(self, model: Tables) -> None:
        self.live = model
        self.copy = Tables(model.forward.detach(), model.backward.detach(), model.z)

    def model(self, name: str) -> Tables:
        """Returns the tables."""
        return self.copy if name == "target" else self.live

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Returns arbitrary numbers; the result does not depend on them."""
        return torch.full(tuple(shape), 0.5, dtype=torch.float64)


def expected_slopes(process: KnownProcess, term: Any, reward: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradients of a term's expectation in F and B at the true measure, over all pairs of independent
    rows.
    """
    forward, z = process.solved(reward)
    model = Tables(forward.requires_grad_(), process.basis.clone().requires_grad_(), z)
    rows, view = process.rows(), TablesView(model)
    total = torch.zeros((), dtype=torch.float64)
    for first in range(len(rows)):
        for second in range(len(rows)):
            batch = rows.rows(torch.tensor([first, second]))
            loss = term(batch, view)
            total = total + loss.sum / loss.count / len(rows) ** 2
    found = torch.autograd.grad(total, (model.forward, model.backward))
    return found[0], found[1]
