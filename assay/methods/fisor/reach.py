"""Safe sets of a small deterministic process, by enumeration and by a critic's own targets.

Axes: S states, A actions. Action a leads from s to `successor` [S, A]; `unsafe` [S, A] marks violations.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log

import torch
from torch import Tensor

from assay.claims import probes
from assay.core.record import Experience

Target = Callable[[Experience, Tensor], Tensor]
"""(decisions, next values) -> the critic's targets, both [B, 1]."""


def worst_values(target: Target, successor_SA: Tensor, unsafe_SA: Tensor, sweeps: int = 400) -> Tensor:
    """Returns V [S] = min over a of target(s, a), iterated to convergence: the fixed point where expectiles are
    minima.
    """
    cost, value = unsafe_SA.double().view(-1, 1, 1), torch.zeros(len(unsafe_SA), dtype=torch.float64)
    record = probes.outcomes(*[0.0] * len(cost)).with_columns(cost=cost, terminal=torch.zeros_like(cost[..., 0]) > 0)
    for _ in range(sweeps):
        value = target(record, value[successor_SA].view(-1, 1)).view(unsafe_SA.shape).amin(1)
    return value


def safe_set(successor_SA: Tensor, unsafe_SA: Tensor) -> Tensor:
    """Returns the largest set in which some decision neither violates nor leaves it, by backward elimination; bool
    [S].
    """
    safe = torch.ones(len(unsafe_SA), dtype=torch.bool)
    for _ in range(len(safe)):
        safe = safe & (~unsafe_SA & safe[successor_SA]).any(1)
    return safe


def random_process(seed: int, num_states: int = 12, num_actions: int = 2) -> tuple[Tensor, Tensor]:
    """Returns (successor, unsafe) [S, A] in which entering one of a quarter of the states violates."""
    draw = torch.Generator().manual_seed(seed)
    successor = torch.randint(num_states, (num_states, num_actions), generator=draw)
    bad = torch.rand(num_states, generator=draw) < 0.25
    return successor, bad[successor]


def overlap(mine: Tensor, other: Tensor) -> float:
    """Returns intersection over union; 1 if both are empty."""
    union = int((mine | other).sum())
    return int((mine & other).sum()) / union if union else 1.0


def least_overlap(target: Target) -> float:
    """Returns the smallest overlap of learned and enumerated safe sets over 10 random processes of 12 states."""
    drawn = [random_process(seed) for seed in range(10)]
    return min(overlap(worst_values(target, *one) <= 0, safe_set(*one)) for one in drawn)


def horizon_error(target: Target) -> Tensor:
    """Returns the error of V k forced decisions before a violation against g^k (harm + 1) - 1, in a chain to a bad
    loop.
    """
    num = 90
    successor = (torch.arange(num) + 1).clamp(max=num - 1).unsqueeze(1)
    value = worst_values(target, successor, successor == num - 1)
    ahead = (num - 2 - torch.arange(num)).clamp(min=0).double()
    seen = int((value > 0).sum()) - (1 + ceil(log(6.0) / -log(0.9)))
    return (value - (0.9**ahead * 6.0 - 1.0)).abs().max() + abs(seen)
