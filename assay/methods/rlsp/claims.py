"""rlsp's losses by hand, and its rewards on answers of given lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch import Tensor

from assay import recipes
from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.slots import Reward


def right(length: int) -> str:
    """Returns a right answer of so many tokens, the end token included."""
    return "." * (length - 2) + "7"


PAID = {250: -3.0, 500: -1.0, 1000: 0.0, 2000: 0.5, 4096: 0.75586}
"""What a right answer of so many tokens gets, with c = 1000."""
BY_LENGTH = {right(length): paid for length, paid in PAID.items()} | {"." * 4095: -0.24414, " " * 4095: -0.74414}
"""The same with a wrong and a blank answer of full length."""
BY_STEPS = {"7": 0.8, "8 wait 7": 0.9, "8 wait 9 back 7": 0.95, "8 wait 9": 0.1}
"""What right answers with 0, 1 and 2 steps of search, and a wrong one with 1, get."""


def losses_by_hand(seen: probes.Seen) -> Mapping[str, Tensor]:
    return by_hand.ppo_of_tokens(by_hand.with_kl(seen, 0.05))


def first_that_wins(ours: Recipe) -> float:
    """Returns the shortest right answer among those of 800 to 807 tokens that beats a wrong one of full length."""
    said = [*map(right, range(800, 808)), "." * 4095]
    *paid, wrong = probes.rewarded(ours, *probes.answered(said, 4096)).tolist()
    return float(next(800 + place for place, value in enumerate(paid) if value > wrong))


def paid(effort: Reward, lengths: Iterable[int]) -> Tensor:
    """Returns what effort alone pays for answers of these lengths, at a limit of 64 tokens."""
    said = ["." * (length - 1) for length in lengths]
    return probes.rewarded(replace(recipes.ppo(), rewards=(effort,)), *probes.answered(said))


def best_length(effort: Reward) -> float:
    """Returns the length that effort alone pays most; 0 unless a longer answer always gets more."""
    worth = paid(effort, range(1, 65))
    return float(worth.argmax() + 1) if bool((worth.diff() > 0).all()) else 0.0
