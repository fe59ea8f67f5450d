"""Visitation distributions of small MDPs: the primal of dual RL, its dual, and searches over policies.

Axes: S states, A actions. P [S, A, S], reward [S, A], initial [S]; every d sums to 1, discounted by gamma:

    sum_a d(s, a) = (1 - discount) initial(s) + discount * sum_s'a' P(s | s', a') d(s', a')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.methods.dual_rl.conjugates import Conjugate


@dataclass(frozen=True, eq=False)
class Process:
    """An MDP given by its arrays, float64."""

    P: Tensor
    reward: Tensor
    initial: Tensor
    discount: float

    def visits(self, policy_SA: Tensor) -> Tensor:
        """Returns d of a policy, [..., S, A]; leading axes are several policies."""
        flow_SS = torch.einsum("...sa,sat->...ts", policy_SA, self.P)
        eye = torch.eye(len(self.initial), dtype=self.P.dtype)
        start = ((1.0 - self.discount) * self.initial).expand(*policy_SA.shape[:-1])
        state = torch.linalg.solve(eye - self.discount * flow_SS, start.unsqueeze(-1)).squeeze(-1)
        return state.unsqueeze(-1) * policy_SA

    def primal(self, visits_SA: Tensor, data_SA: Tensor, f: Conjugate, weight: float) -> Tensor:
        """Returns <d, r> - weight * sum data * f(d / data)."""
        divergence = (data_SA * f.generator(visits_SA / data_SA)).sum((-2, -1))
        return (visits_SA * self.reward).sum((-2, -1)) - weight * divergence

    def dual(self, value_S: Tensor, data_SA: Tensor, f: Conjugate, weight: float) -> Tensor:
        """Returns (1 - discount) <initial, V> + weight * sum data * f*_p((r + discount P V - V) / weight): dual-V."""
        gain = self.reward + self.discount * self.P @ value_S - value_S.unsqueeze(-1)
        start = (1.0 - self.discount) * (self.initial * value_S).sum()
        return start + weight * (data_SA * f.conjugate(gain / weight)).sum()


def minimised(function: Callable[[Tensor], Tensor], start: Tensor, num_steps: int = 200) -> Tensor:
    """Returns the minimum of a smooth convex function of a tensor, by L-BFGS in float64."""
    point = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([point], max_iter=num_steps, tolerance_grad=1e-12, tolerance_change=1e-15,
                                  line_search_fn="strong_wolfe")  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = function(point)
        value.backward()
        return value

    optimizer.step(closure)
    return closure().detach()


def policies_of_two_states(num: int) -> Tensor:
    """Returns every policy of two states and two actions on a grid, [num * num, 2, 2]."""
    share = torch.linspace(0.0, 1.0, num, dtype=torch.float64)
    first = torch.cartesian_prod(share, share)
    return torch.stack([first, 1.0 - first], -1)
