"""Returns and advantages along time. Axes: B sequences, T decisions.

Each decision links to the next decision of its sequence; masked columns between them (tool output, other players) are
skipped. After a terminal decision nothing follows; after a truncated one, or after the last decision of a sequence
that did not end, the value of the following column is the bootstrap.
"""

from __future__ import annotations

import torch
from torch import Tensor


def following_value(
    value_BT: Tensor, mask_BT: Tensor, terminal_BT: Tensor, truncated_BT: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns (value after each decision, whether the trace continues to the next decision), both [B, T].

    Terminal: 0, stops. Truncated: value of the next column, stops. Otherwise the value at the next decision,
    continues; without a next decision, the value of the next column (0 past the end), stops.
    """
    num_columns = mask_BT.shape[1]
    column = torch.arange(num_columns, device=mask_BT.device)
    here = torch.where(mask_BT, column, num_columns)
    next_or_later = here.flip(1).cummin(1).values.flip(1)
    next_decision = torch.nn.functional.pad(next_or_later[:, 1:], (0, 1), value=num_columns)
    is_last = next_decision == num_columns
    goes_on = mask_BT & ~terminal_BT & ~truncated_BT & ~is_last
    adjacent = torch.nn.functional.pad(value_BT[:, 1:], (0, 1))
    at_next = value_BT.gather(1, next_decision.clamp(max=num_columns - 1))
    after = torch.where(goes_on, at_next, adjacent)
    return torch.where(terminal_BT | ~mask_BT, torch.zeros_like(after), after), goes_on


def accumulate(delta_BT: Tensor, decay: float, mask_BT: Tensor, goes_on_BT: Tensor) -> Tensor:
    """Returns x_t = delta_t + decay * goes_on_t * x_(next decision), zero where masked, [B, T]."""
    result = torch.zeros_like(delta_BT)
    carry = torch.zeros_like(delta_BT[:, 0])
    weights = decay * goes_on_BT.to(delta_BT.dtype)
    for t in range(delta_BT.shape[1] - 1, -1, -1):
        here = delta_BT[:, t] + weights[:, t] * carry
        carry = torch.where(mask_BT[:, t], here, carry)
        result[:, t] = here
    return torch.where(mask_BT, result, 0.0)


def gae(
    reward_BT: Tensor,
    value_BT: Tensor,
    mask_BT: Tensor,
    terminal_BT: Tensor,
    truncated_BT: Tensor,
    discount: float,
    decay: float,
) -> Tensor:
    """Computes generalised advantage estimates, Schulman et al. 2016 (arXiv:1506.02438).

        delta_t = r_t + discount * V_after(t) - V_t;  A_t = delta_t + discount * decay * A_(next decision)

    decay 0 is the one-step TD error, decay 1 the Monte-Carlo return minus the value.
    """
    after, goes_on = following_value(value_BT, mask_BT, terminal_BT, truncated_BT)
    delta = reward_BT + discount * after - value_BT
    return accumulate(delta, discount * decay, mask_BT, goes_on)


def discounted_returns(
    reward_BT: Tensor, mask_BT: Tensor, terminal_BT: Tensor, truncated_BT: Tensor, discount: float
) -> Tensor:
    """Computes G_t = r_t + discount * G_(next decision), without bootstrap, zero where masked."""
    _, goes_on = following_value(torch.zeros_like(reward_BT), mask_BT, terminal_BT, truncated_BT)
    return accumulate(reward_BT, discount, mask_BT, goes_on)
