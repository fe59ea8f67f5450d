"""Sequences that show what equal ones hide: unequal groups, answers of 5 and of 400 tokens, graded and signed outcomes,
an outcome exactly at its group's mean, prompts of unequal length in a chat template. Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from assay.claims.probes.formulas import LOGITS_SA, Data, sequences, verified
from assay.core.record import Experience, pad
from assay.rollouts import text
from assay.rollouts.text import ByteTokenizer

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


def off_policy(num: int = 16, spread: float = 1.0) -> tuple[Data, ...]:
    """Returns data with ratios away from one: `sequences` of that number and spread, then graded and signed answers."""
    return partial(sequences, num=num, spread=spread), graded, signed


def binary() -> Experience:
    """Returns `uneven` sequences with outcomes 0 and 1."""
    return uneven([float(quarter > 2) for quarter in QUARTERS])


BEFORE, AFTER = "<|user|>", "<|end|><|assistant|>"
"""What the chat template of `templated` writes around a prompt."""
TOLD = ("a", "which of these", "1+1=", "go on")
"""Prompts of a chat, of 1 to 14 characters."""
SAID = ("7", "it is 12", "no\n", "", "eleven", "7", "0", "I do not know", "yes", "2", "two", "2", "2 or 3", "no", "")
"""Answers, four to each prompt and three to the last; the fourth has no text, only its end."""


def templated() -> Experience:
    """Returns the answers of a chat model as a table task: bos, a template and prompts of unequal length before them,
    so that answers begin at different columns; each ends with eos, is cut (one of five), or has left training (the
    last). Outcomes are 0 and 1, log-probabilities those of another policy.
    """
    tokenizer, draw, num = ByteTokenizer(), torch.Generator().manual_seed(5), len(SAID)
    special, group = tokenizer.vocabulary, torch.arange(num) // 4
    prompts = [[special.bos, *tokenizer.encode(BEFORE + TOLD[label] + AFTER)] for label in group.tolist()]
    record = text.written(prompts, [[*tokenizer.encode(one), special.eos] for one in SAID], group, special.pad)
    record = pad(record, record.num_columns + 1)  # a cut answer bootstraps from the column after it
    states, actions = LOGITS_SA.shape
    state, action = record.context["tokens"] % states, record.action % actions
    row, mask = torch.arange(num).unsqueeze(1), record.mask & (torch.arange(num) < num - 1).unsqueeze(1)
    last, is_cut = record.terminal & mask, row % 5 == 1
    noise = torch.randn(mask.shape, generator=draw, dtype=torch.float64)
    distance = torch.tensor([0.5, 1e-4, 0.05, 0.2], dtype=torch.float64)[row % 4]
    logp = (LOGITS_SA.log_softmax(-1)[state, action] + distance * noise).clamp(max=-0.01)
    reward = last * (row * 7 % 3 == 0).double()
    return Experience(
        {"state": state}, action, mask, logp, reward, last & ~is_cut, last & is_cut, group=group,
        extra={"start": group, "sample": torch.arange(num) % 4, "score": reward.sum(1)},
    )  # fmt: skip


ANY_OUTCOME: tuple[Data, ...] = (sequences, graded, signed, templated)
"""For formulas of any rewards."""
UNIT_OUTCOME: tuple[Data, ...] = (verified, graded, binary, templated)
"""For formulas that read an outcome from 0 to 1 as right or wrong, or as a rate."""
RIGHT_OR_WRONG: tuple[Data, ...] = (verified, binary, templated)
"""For formulas that are defined for outcomes 0 and 1 alone."""
