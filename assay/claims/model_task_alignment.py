"""What interventions pay, and the expected step of a reward that knows nothing. Axes: A arms."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Expect, Gain, Item, Measured, PassAt, PromptTask, by_hand, probes
from assay.claims import same_gradient
from assay.claims.testbeds.language.sparse import levels
from assay.method import Recipe, Scene, recipes
from assay.methods.model_task_alignment import Majority, OneStart, answers_of, incorrect, majority, negatives
from assay.methods.model_task_alignment import one_example, random, recipe, rewarded, true, unclipped
from assay.rollouts.text import ByteTokenizer
from assay.tasks.language.textfile import TextFile

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
)
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
    return Measured(name, "sorting-3", start, level, PassAt(8), expect, seeds=8, minutes=5.0, steps=warmup, warmup=0,
                    about=About.COMPONENT)


def small(ours: Recipe) -> Recipe:
    """Returns the recipe with a transformer of 0.1 million parameters."""
    return ours.set("actor.width", 64)


def gains(
    name: str, ours: Recipe, theirs: Recipe | float, warmup: int, expect: Expect = Expect.ABOVE, margin: float = 0.0
) -> Measured:
    """Returns the claim on what 60 steps add to the held-out score of a start."""
    rival = small(theirs) if isinstance(theirs, Recipe) else theirs
    return Measured(name, "sorting-3", small(ours), rival, Gain(), expect, margin, 8, 5.0, 60, warmup,
                    about=About.HEADLINE)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient has standardised outcomes, ratios clipped to [0.8, 1.28] and a mean over decisions",
                      lambda: replace(recipe(), rewards=()), token_loss),
        same_gradient("the gradient of unclipped has ratios without bounds", lambda: replace(unclipped(), rewards=()),
                      partial(token_loss, low=1.0, high=inf), of="unclipped"),
        same_gradient("in negatives, advantages above 0 are 0 and count in the mean", negatives,
                      partial(token_loss, most=0.0)),
        Exact("random pays right and wrong answers, cut or not, alike; rows that left training get nothing",
              lambda: blind_gap(recipe()), equals=0.0),
        Exact("random pays as many answers as the chance says",
              lambda: paid(recipe(chance=0.3), *["7"] * 1000).mean(), equals=0.3, tolerance=0.02),
        Exact("true pays right answers", lambda: probes.distance(paid(true(), *SAID), TRUTH), equals=0.0, of="true"),
        Exact("incorrect pays all answers that are not right",
              lambda: probes.distance(paid(incorrect(), *SAID), MISTAKES), equals=0.0),
        Exact("majority pays the commonest final answer of each prompt, right or wrong, and all that tie",
              lambda: vote_gap(majority()), equals=0.0),
        Exact("with one example all starts of all batches are the same",
              lambda: other_starts(one_example(start=3), 3), equals=0.0),
        Exact("each visit of the one example has samples of its own and is a group",
              lambda: probes.wrong_visits(one_example(), levels()), equals=0.0, of="one-example"),
        Exact("unclipped, a random reward moves nothing in expectation, also off the policy that sampled",
              lambda: expected_step(unclipped(), NEW, OLD, 0.3).abs().max(), at_most=1e-12, of="unclipped"),
        Exact("off the policy that sampled, the clip moves the policy back, by the formula",
              lambda: probes.distance(expected_step(recipe(), NEW, OLD), clip_bias(NEW, OLD)), at_most=1e-9),
        aligned("pass@8 of the strong start is above 0.9", STRONG, 0.9, Expect.ABOVE),
        aligned("pass@8 of the weak start is below 0.4", WEAK, 0.4, Expect.BELOW),
        gains("from the strong start the true reward gains 0.05", true(), 0.0, STRONG, margin=0.05),
        gains("from the weak start the true reward gains 0.1", true(), 0.0, WEAK, margin=0.1),
        gains("from the strong start negatives gain as much as the true reward, within 0.05",
              negatives(), true(), STRONG, margin=-0.05),
        gains("from the weak start negatives gain less than 0.05", negatives(), 0.05, WEAK, Expect.BELOW),
        gains("from the strong start majority gains as much as the true reward, within 0.05",
              majority(), true(), STRONG, margin=-0.05),
        gains("from the weak start majority gains less than 0.05", majority(), 0.05, WEAK, Expect.BELOW),
        gains("from the strong start the random reward gains", recipe(), 0.0, STRONG),
        gains("from the strong start one example gains", one_example(), 0.0, STRONG),
        gains("from the strong start a random reward without the clip loses", unclipped(), 0.0, STRONG, Expect.BELOW),
    ),
    mutants=(
        Edit("right answers alone are accepted", random, "(chance, 1.0", "(0.0, 1.0"),
        Edit("the usual upper clip", rewarded, "0.28", "0.2"),
        Edit("right answers instead", negatives, "BySign(0.0, 1.0)", "BySign(1.0, 0.0)"),
        Edit("whole texts vote", answers_of, "final_answer(said) or None", "said"),
        Edit("one vote for all prompts", Majority.apply, "in winners[own]", "in winners[0]"),
        Edit("all starts", OneStart.__call__, "np.full(scene.num_starts, self.start, dtype=np.int64)",
             "self.start + np.arange(scene.num_starts)"),
    ),
)
