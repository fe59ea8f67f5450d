"""What interventions pay, and the expected step of a reward that knows nothing. Axes: A arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import torch
from torch import Tensor

from assay import recipes
from assay.claims import Expect, Gain, Measured, PassAt, by_hand, probes
from assay.core.recipe import Recipe
from assay.core.slots import Scene
from assay.playing.text import ByteTokenizer
from assay.tasks.language.prompts import Item, PromptTask
from assay.tasks.language.textfile import TextFile
from assay.tasks.testbeds.language.sparse import levels

OLD = torch.tensor([0.5, 0.25, 0.15, 0.1], dtype=torch.float64)
NEW = torch.tensor([0.35, 0.264, 0.186, 0.2], dtype=torch.float64)
"""Probabilities of four arms when they were sampled and now: ratios 0.7, 1.056, 1.24 and 2."""
NUMBERS = TextFile("", "", 0.0, 0, (Item("q", "7", "7"),), worked=True)
"""A file of worked numbers."""
SAID = ("7", "8", "7", "8", "", "7", "8")
TRUTH, MISTAKES = (1, 0, 1, 0, 0, 0, 0), (0, 1, 0, 1, 1, 0, 0)
"""Answers to the question whose answer is 7, and which are right and wrong: the third and the fourth are cut, the last
two have left training."""
VOTES = (
    ("7", 0, 0.0), ("8", 0, 1.0), ("so\n#### 8", 0, 1.0), ("9", 0, 0.0), ("", 0, 0.0), ("7", 0, 0.0), ("7", 0, 0.0),
    ("7", 1, 1.0), ("8", 1, 1.0), ("8", 1, 1.0), ("7", 1, 1.0), ("9", 1, 0.0),
)  # fmt: skip
"""Completions of two prompts with their reward; the last two of the first prompt have left training."""


def token_loss(seen: probes.Seen, low: float = 0.2, high: float = 0.28, most: float = inf) -> Tensor:
    """Returns the loss by hand: standardised outcomes, 0 where they are above `most`, as a mean over all decisions."""
    advantage = by_hand.standardised(seen.experience)
    return by_hand.token_loss(seen, torch.where(advantage > most, 0.0, advantage), low, high)


# ---------------------------------------------------------------------------------------------------- rewards
def paid(ours: Recipe, *said: str, cut: Sequence[int] = (2, 3), gone: int = 2) -> Tensor:
    """Returns what these answers are paid; the last `gone` ones have left training."""
    rows = probes.answered(said, cut=cut, faults=range(len(said) - gone, len(said)))
    return probes.rewarded(ours, *rows)


def blind_gap(ours: Recipe) -> Tensor:
    """Returns the largest difference in what a right and a wrong answer are paid as the same one of 100 samples, cut
    or not, and what rows are paid that left training.
    """
    right, wrong = paid(ours, *["7"] * 100, cut=range(30), gone=50), paid(ours, *["8"] * 100, cut=range(60), gone=40)
    return (right[:50] - wrong[:50]).abs().max() + right[50:].abs().max() + wrong[60:].abs().max()


def vote_gap(ours: Recipe) -> float:
    """Returns the distance from `VOTES`, and in a file of worked numbers from 1, 1 and 0 for 18 twice and 19."""
    task, file = probes.labelled("a", "b"), PromptTask("file", NUMBERS, ByteTokenizer(), 4, 64)
    told = (("She makes 18 dollars.", 0, 1.0), ("#### $18", 0, 1.0), ("19", 0, 0.0))
    return probes.worst(probes.table_gap(ours, task, VOTES, faults=(5, 6)), probes.table_gap(ours, file, told))


# ---------------------------------------------------------------------------------------------------- one example
def other_starts(ours: Recipe, start: int) -> float:
    """Returns how many of the starts of two batches are not this one."""
    assert ours.curriculum is not None
    scene = Scene(levels(), num_starts=5)
    state = ours.curriculum.init(scene)
    found = np.concatenate([ours.curriculum(scene, state) for _ in range(2)])
    return float((found != start).sum() + abs(len(found) - 10))


# ---------------------------------------------------------------------------------------------------- expected steps
def expected_step(ours: Recipe, new_A: Tensor, old_A: Tensor, chance: float = 0.5) -> Tensor:
    """Returns the expected step of the logits, [A], over all pairs of arms drawn from `old_A` and all their rewards, 1
    with probability `chance` whatever the arms.
    """
    found, ours = torch.zeros_like(new_A), replace(ours, rewards=())
    for arms in product(range(len(old_A)), repeat=2):
        for rewards in product((0.0, 1.0), repeat=2):
            odds = old_A[list(arms)].prod() * chance ** sum(rewards) * (1.0 - chance) ** (2.0 - sum(rewards))
            pulls = probes.bandit_experience(arms, rewards, old_A.log())
            found -= odds * probes.bandit_gradient_of(ours, pulls, new_A.log())
    return found


def clip_bias(new_A: Tensor, old_A: Tensor) -> Tensor:
    """Returns E[max(A, 0)] sum_a s_a new_a (1_a - new), [A]: s_a is +1 where the ratio is below 0.8, so that steps down
    are clipped, -1 where it is above 1.28, else 0. Two rewards of 0 and 1 have A = -+0.5 / (sqrt(1/2) + 1e-4), and
    half of the pairs differ.
    """
    ratio = new_A / old_A
    sign = (ratio < 0.8).double() - (ratio > 1.28).double()
    size = 0.25 * 0.5 / (0.5**0.5 + 1e-4)
    return size * (sign * new_A - new_A * (sign * new_A).sum())


# ---------------------------------------------------------------------------------------------------- two starts
WEAK, STRONG = 75, 200
"""Supervised steps on demonstrations that make the two starts."""


def aligned(name: str, warmup: int, level: float, expect: Expect) -> Measured:
    """Returns the claim on pass@8 of a start on held-out prompts, before any reinforcement."""
    start = small(recipes.sft())
    return Measured(name, "sorting-3", start, level, PassAt(8), expect, seeds=8, minutes=5.0, steps=warmup, warmup=0)


def small(ours: Recipe) -> Recipe:
    """Returns the recipe with a transformer of 0.1 million parameters."""
    return ours.set("actor.width", 64)


def gains(
    name: str, ours: Recipe, theirs: Recipe | float, warmup: int, expect: Expect = Expect.ABOVE, margin: float = 0.0
) -> Measured:
    """Returns the claim on what 60 steps add to the held-out score of a start."""
    rival = small(theirs) if isinstance(theirs, Recipe) else theirs
    return Measured(name, "sorting-3", small(ours), rival, Gain(), expect, margin, 8, 5.0, 60, warmup)
