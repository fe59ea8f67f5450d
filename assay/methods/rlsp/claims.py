"""rlsp's losses by hand, and its rewards on answers of given lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.slots import Reward, Scene
from assay.tasks.language.prompts import Item

PAID = {250: -3.0, 500: -1.0, 1000: 0.0, 2000: 0.5, 4096: 0.75586}
"""What a right answer of so many tokens gets, with c = 1000."""


def losses_by_hand(seen: probes.Seen) -> Mapping[str, Tensor]:
    data = seen.experience
    kl = torch.where(data.mask, data.logp - seen.logp("reference").detach(), 0.0)
    shaped = replace(seen, experience=replace(data, reward=data.reward - 0.05 * kl))
    return by_hand.ppo_losses(shaped, 1.0, 0.95, 0.003 * by_hand.entropy(seen))


def rewarded(ours: Recipe, said: Sequence[str], limit: int = 4096) -> list[float]:
    task = probes.listed(Item("q", "7", "7"), max_tokens=limit)
    return probes.rewarded(ours, task, probes.completed(task, said, [0] * len(said))).tolist()


def distance_by_length(ours: Recipe) -> float:
    """Returns how far rewards are from those by hand: right answers, a wrong and a blank one of full length."""
    said = [*("." * (length - 2) + "7" for length in PAID), "." * 4095, " " * 4095]
    expected = [*PAID.values(), -0.24414, -0.74414]
    return max(abs(one - other) for one, other in zip(rewarded(ours, said), expected, strict=True))


def first_that_wins(ours: Recipe) -> float:
    """Returns the shortest right answer among those of 800 to 807 tokens that beats a wrong one of full length."""
    lengths = range(800, 808)
    *right, wrong = rewarded(ours, [*("." * (length - 2) + "7" for length in lengths), "." * 4095])
    return float(next(length for length, value in zip(lengths, right, strict=True) if value > wrong))


def paid(effort: Reward, lengths: Sequence[int]) -> Tensor:
    """Returns what effort pays for answers of these lengths, at a limit of 64 tokens."""
    task = probes.listed(Item("q", "7", "7"), max_tokens=64)
    rows = probes.completed(task, ["." * (length - 1) for length in lengths], [0] * len(lengths))
    return effort(rows, Scene(task)).reward.sum(1)


def best_length(effort: Reward) -> float:
    """Returns the length that effort alone pays most; 0 unless a longer answer always gets more."""
    worth = paid(effort, range(1, 65))
    return float(worth.argmax() + 1) if bool((worth.diff() > 0).all()) else 0.0


def distance_by_steps(ours: Recipe) -> float:
    """Returns how far right answers with 0, 1 and 2 steps of search, and a wrong one with 1, are from 0.8 and what
    the steps are worth.
    """
    found = rewarded(ours, ("7", "8 wait 7", "8 wait 9 back 7", "8 wait 9"), 64)
    return max(abs(one - other) for one, other in zip(found, (0.8, 0.9, 0.95, 0.1), strict=True))
