"""How far the optimal policy moves when the reward does, on tables. Axes: S states, A actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError

TIE = 1e-10
"""Largest difference of two values that count as equal."""
SWEEPS = 400
"""Iterations of the values; with a discount of 0.95 the last changes them by 1e-9."""


def optimal_policy(
    reward: ArrayLike, alpha: float = 0.0, following: ArrayLike | None = None, discount: float = 0.0
) -> NDArray[np.float64]:
    """Computes the policy that maximises reward + alpha * entropy, [S, A], from a reward [A] or [S, A].

        pi = softmax(Q / alpha),   Q = R + discount V(following),   V = alpha log sum_a exp(Q / alpha)

    `following` [S, A] is the state that each action leads to; without a discount it is not needed. With the KL to a
    reference in place of the entropy, add alpha log pi_ref to the reward. Degenerate: at alpha 0 it is uniform over the
    best actions.
    """
    reward_SA, lead_SA = checked(reward, alpha, following, discount)
    value_SA = reward_SA
    for _ in range(SWEEPS if discount else 0):
        value_SA = reward_SA + discount * state_values(value_SA, alpha)[lead_SA]
    ahead = value_SA - value_SA.max(1, keepdims=True)
    weight = np.exp(ahead / alpha) if alpha else (ahead > -TIE).astype(np.float64)
    share: NDArray[np.float64] = weight / weight.sum(1, keepdims=True)
    return share


def state_values(value_SA: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Computes alpha log sum_a exp(Q / alpha), [S]; the largest Q at alpha 0."""
    most: NDArray[np.float64] = value_SA.max(1)
    if not alpha:
        return most
    return most + alpha * np.log(np.exp((value_SA - most[:, None]) / alpha).sum(1))


def policy_shift(
    reward: ArrayLike, change: ArrayLike, alpha: float = 0.0, following: ArrayLike | None = None, discount: float = 0.0
) -> float:
    """Computes the largest total variation over states between the optimal policies of a reward and of reward + change
    (arXiv:2507.20150): 0 if the change moves nothing, 1 if it moves all of a state's policy.

    It is at most max |change| / (2 alpha (1 - discount)) (see `optimal_policy` for the arguments). Degenerate: at alpha
    0 no bound exists; where two actions tie the smallest change moves half.
    """
    more = np.asarray(reward, dtype=np.float64) + np.asarray(change, dtype=np.float64)
    before, after = (optimal_policy(one, alpha, following, discount) for one in (reward, more))
    return float(np.abs(before - after).sum(1).max() / 2)


def largest_shift(reward: ArrayLike, size: float, alpha: float = 0.0) -> float:
    """Computes the largest `policy_shift` of a reward [A] when one action's reward rises by `size` and all others'
    fall by it: what an error of that size in a judge, a rounding or a length bonus may do to the policy.
    """
    reward_A = np.asarray(reward, dtype=np.float64)
    if reward_A.ndim != 1 or size < 0:
        raise AssayError(f"largest_shift: reward has {reward_A.ndim} axes, size is {size}. Give [actions], 0 or more")
    changes = size * (2.0 * np.eye(len(reward_A)) - 1.0)
    return max(policy_shift(reward_A, change, alpha) for change in changes)


def checked(
    reward: ArrayLike, alpha: float, following: ArrayLike | None, discount: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns reward and following states as tables [S, A]; raises AssayError for what has no optimal policy."""
    reward_SA = np.atleast_2d(np.asarray(reward, dtype=np.float64))
    lead_SA = np.zeros(reward_SA.shape, dtype=np.int64) if following is None else np.asarray(following, dtype=np.int64)
    if alpha < 0 or not 0 <= discount < 1:
        raise AssayError(f"alpha is {alpha}, discount {discount}. Use alpha 0 or more and a discount below 1")
    if not np.isfinite(reward_SA).all() or lead_SA.shape != reward_SA.shape:
        shapes = f"{reward_SA.shape} and {lead_SA.shape}"
        raise AssayError(f"reward and following states are tables {shapes}. Give finite rewards, of the same shape")
    return reward_SA, lead_SA
