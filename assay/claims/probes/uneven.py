"""Sequences that show what equal ones hide: unequal groups, answers of 5 and of 400 tokens, graded and signed outcomes,
an outcome exactly at its group's mean. Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from assay.claims.probes.formulas import LOGITS_SA, Data, sequences, verified
from assay.core.record import Experience

SIZES = (4, 7, 2, 5, 3)
"""Answers to each prompt; the last of all is an infrastructure fault, without a decision."""
LONG, SHORT = 400, 5
LONG_ROWS = (1, 8, 16)
"""Answers of 400 tokens: one right, one wrong and one between the two."""
QUARTERS = (0, 2, 4, 2, 4, 1, 0, 3, 0, 4, 1, 3, 3, 1, 0, 0, 2, 4, 4, 0, 4)
"""Outcomes in quarters: the first group has two exactly at its mean, the third is tied."""


def uneven(outcomes: Sequence[float], dtype: torch.dtype = torch.float64) -> Experience:
    """Returns groups of 4, 7, 2, 5 and 3 answers of 5 and 400 decisions with these outcomes at their ends; the rest is
    as in `sequences`.
    """
    draw, num = torch.Generator().manual_seed(3), sum(SIZES)
    assert len(outcomes) == num, "one outcome for each answer"
    row, column = torch.arange(num), torch.arange(LONG + 2)
    length = torch.where(torch.isin(row, torch.tensor(LONG_ROWS)), LONG, SHORT - row % 3 * (row % 2))
    mask = (column >= 1) & (column <= length.unsqueeze(1))
    mask[num - 1] = False
    last = mask & (column == length.unsqueeze(1))
    is_cut = (row % 4 == 1).unsqueeze(1)
    state, action = (torch.randint(0, top, mask.shape, generator=draw) for top in LOGITS_SA.shape)
    noise = torch.randn(mask.shape, generator=draw, dtype=dtype)
    distance = torch.tensor([0.5, 1e-4, 0.05, 0.2], dtype=dtype)[row % 4].unsqueeze(1)
    logp = (LOGITS_SA.to(dtype).log_softmax(-1)[state, action] + distance * noise).clamp(max=-0.01)
    reward = last * torch.tensor(outcomes, dtype=dtype).unsqueeze(1)
    group = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    first = torch.cat([torch.arange(size) for size in SIZES])
    return Experience(
        {"state": state}, action, mask, logp, reward, last & ~is_cut, last & is_cut, group=group,
        extra={"start": group, "sample": first, "score": reward.sum(1)},
    )  # fmt: skip


def graded() -> Experience:
    """Returns `uneven` sequences with outcomes 0, 1/4, 1/2, 3/4 and 1."""
    return uneven([quarter / 4 for quarter in QUARTERS])


def signed() -> Experience:
    """Returns `uneven` sequences with outcomes -1 and 1."""
    return uneven([1.0 if quarter > 2 else -1.0 for quarter in QUARTERS])


def binary() -> Experience:
    """Returns `uneven` sequences with outcomes 0 and 1."""
    return uneven([float(quarter > 2) for quarter in QUARTERS])


ANY_OUTCOME: tuple[Data, ...] = (sequences, graded, signed)
"""For formulas of any rewards."""
UNIT_OUTCOME: tuple[Data, ...] = (verified, graded, binary)
"""For formulas that read an outcome from 0 to 1 as right or wrong, or as a rate."""
RIGHT_OR_WRONG: tuple[Data, ...] = (verified, binary)
"""For formulas that are defined for outcomes 0 and 1 alone."""
