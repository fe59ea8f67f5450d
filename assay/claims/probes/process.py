"""Exact values of small Markov decision processes. Axes: S states, A actions."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.core.errors import AssayError


def evaluate_table(
    P_SAS: Tensor, R_SA: Tensor, policy_SA: Tensor, discount: float, terminal_S: Tensor | None = None
) -> Tensor:
    """Returns V [S] of a policy, the solution of V = R_pi + discount * P_pi V; 0 in terminal states. float64.

    R_pi(s) = sum_a pi(a|s) R(s, a);  P_pi(s, s') = sum_a pi(a|s) P(s, a, s'). A discount of 1 needs a policy that
    reaches a terminal state from everywhere.
    """
    policy = policy_SA.double()
    goes_on = torch.ones(len(policy), dtype=torch.float64) if terminal_S is None else (~terminal_S).double()
    reward_S = (policy * R_SA.double()).sum(-1) * goes_on
    moves_SS = torch.einsum("sa,sax->sx", policy, P_SAS.double()) * goes_on.unsqueeze(1)
    system = torch.eye(len(policy), dtype=torch.float64) - discount * moves_SS
    value, info = torch.linalg.solve_ex(system, reward_S)
    if int(info) != 0 or not bool(value.isfinite().all()):
        raise AssayError(f"values with discount={discount} are not finite; take less than 1, or name terminal states")
    return value
