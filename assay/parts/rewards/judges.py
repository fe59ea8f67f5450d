"""Pairwise judges: a program, a user's function, a chat model. Axes: B, T, M matches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.slots import Chat, Choice, Task, TextTask
from assay.ops import distributions, groups, random
from assay.rollouts.judgements import PAIR, filled_pair, won

Scores = Callable[[Tensor, Tensor], Tensor]
"""scores(first_M, second_M): [M, 2], of the rows `first_M` and `second_M`; the larger one wins."""


class PairwiseJudge(Choice, Protocol):
    """Compares two sequences of one group. Law: scores depend on the rows' contents, not on their positions: those of
    (b, a) are those of (a, b) exchanged.

    Source: arXiv:2306.05685. Degenerate: equal rows get equal scores.
    """

    def scores(self, experience: Experience, task: Task) -> Scores:
        """Returns a function that scores pairs of these rows; work shared by all pairs is done once."""

    def __call__(self, experience: Experience, task: Task, first_M: Tensor, second_M: Tensor) -> Tensor:
        """Returns the scores [M, 2] of pairs of rows."""
        return self.scores(experience, task)(first_M, second_M)


def margins(scores: Scores, rows_G: Tensor) -> Tensor:
    """Returns by how much each member of a group is scored above each other one, [G, G]: every pair meets once.

    d_ij = score of i - score of j;   d_ji = -d_ij, d_ii = 0
    """
    first, second = torch.triu_indices(len(rows_G), len(rows_G), 1)
    given = scores(rows_G[first], rows_G[second]).double()
    above = given.new_zeros(len(rows_G), len(rows_G))
    above[first, second] = given[:, 0] - given[:, 1]
    return above - above.T


# ---------------------------------------------------------------------------------------------------- a program
@dataclass(frozen=True)
class OutcomeJudge(PairwiseJudge):
    """A judge by program: each side's total reward plus noise of standard deviation `noise`.

    The noise is a function of (group, own sample, other sample): a repeated match gives the same scores, and both
    orders of a pair are one match, so there is no position bias. Source: by definition. Assumes that rewards order
    answers. Degenerate: noise 0 compares rewards.
    """

    noise: float = 0.0
    seed: int = 0

    def with_judge(self, ask: Chat) -> PairwiseJudge:
        """Returns a chat model in place of the program."""
        return ChatJudge(ask)

    def scores(self, experience: Experience, task: Task) -> Scores:
        outcome = groups.outcome(experience).double().cpu()
        label, sample = groups.sample_labels(experience)

        def scores(first_M: Tensor, second_M: Tensor) -> Tensor:
            sides = []
            for own, other in ((first_M.numpy(), second_M.numpy()), (second_M.numpy(), first_M.numpy())):
                uniform = random.uniform(Draw(self.seed, (8,)), label[own], sample[own], sample[other])
                sides.append(outcome[own] + self.noise * distributions.normal_sample(torch.from_numpy(uniform)))
            return torch.stack(sides, 1)

        return scores


# ---------------------------------------------------------------------------------------------------- a function
@dataclass(frozen=True)
class FunctionJudge(PairwiseJudge):
    """A user's judge: `function(a, b)` gets two descriptions (a dict with prompt, completion, ...) and returns two
    numbers.

    It is called in both orders and the scores are averaged, against position bias. Source: arXiv:2306.05685 for both
    orders. Assumes a function without side effects. Degenerate: equal numbers are a tie.
    """

    function: Callable[[dict[str, Any], dict[str, Any]], tuple[float, float]]

    def scores(self, experience: Experience, task: Task) -> Scores:
        described = cache(lambda row: task.describe(experience, row))

        def scores(first_M: Tensor, second_M: Tensor) -> Tensor:
            found = []
            for one, other in zip(first_M.tolist(), second_M.tolist(), strict=True):
                a, b = described(one), described(other)
                forth, back = two_numbers(self.function(a, b)), two_numbers(self.function(b, a))
                found.append(((forth[0] + back[1]) / 2, (forth[1] + back[0]) / 2))
            return torch.tensor(found, dtype=torch.float64).view(-1, 2)

        return scores


@dataclass(frozen=True)
class ChatJudge(PairwiseJudge):
    """A chat model that is asked which of two answers is better: 1 for the better one, 0 for the other, 1/2 for a tie,
    as the mean of both orders, so that a preference for a place cancels out.

    `prompt` has {prompt}, {first} and {second}. AssayError if an answer prefers neither. Source: arXiv:2306.05685.
    Assumes that the model follows the form. Degenerate: opposite answers of both orders are a tie.
    """

    ask: Chat
    prompt: str = PAIR

    def scores(self, experience: Experience, task: Task) -> Scores:
        if not isinstance(task, TextTask):
            raise AssayError(f"a chat model judges texts; task '{task.name}' has none. Use a language task")
        rows = task.texts(experience, 0)

        def asked(one: int, other: int) -> str:
            first, second = rows[one]["completion"], rows[other]["completion"]
            return filled_pair(self.prompt, str(rows[one]["prompt"]), first, second)

        def scores(first_M: Tensor, second_M: Tensor) -> Tensor:
            pairs = list(zip(first_M.tolist(), second_M.tolist(), strict=True))
            said = self.ask([asked(*pair) for pair in pairs] + [asked(*pair[::-1]) for pair in pairs])
            forth, back = (torch.tensor([won(one) for one in some], dtype=torch.float64) for some in (
                said[: len(pairs)], said[len(pairs) :]))  # fmt: skip
            share = (forth + 1.0 - back) / 2
            return torch.stack((share, 1.0 - share), 1)

        return scores


def two_numbers(given: Any) -> tuple[float, float]:
    """Returns what a user's judge returned; AssayError unless it is two finite numbers."""
    if not isinstance(given, tuple | list) or len(given) != 2 or not all(map(is_finite, given)):
        raise AssayError(f"a judge's function returned {given!r}. It must return two finite numbers, one for each side")
    return float(given[0]), float(given[1])


def is_finite(value: Any) -> bool:
    """Whether a value is a finite number, of Python, numpy or torch."""
    return isinstance(value, int | float | np.number | Tensor) and math.isfinite(value)
