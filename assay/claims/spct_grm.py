"""The functions behind spct-grm's claims. Axes: B sequences, T decisions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Gain, Item, Measured, by_hand, probes, same_gradient
from assay.method import Draw, Recipe, recipes
from assay.methods.spct_grm import recipe
from assay.parts import RightRanking
from assay.parts.rewards.ranking import is_right
from assay.tasks.language.judging import ERRORS, judging
from assay.tasks.language.votes import Vote, mapped_back, sampled

FIGURE = [(1, 5), (5, 6), (4, 8), (7, 6)]
"""Four judgements of two responses, from the paper's figure 3."""


TASK = probes.listed(
    Item("p", "2", "1,2", {"responses": ("a", "b")}), Item("q", "1", "2,1", {"responses": 2}),
    Item("r", "1", "1", {"responses": 1}),
    Item("s", "0", "0", {"responses": ("a",)}), Item("t", "1", "3,2,1", {"responses": ("a", "b", "c")}),
)
"""The second of two is best, the first is, a single response is good, one is bad, the first of three is best."""


RULE = (
    ("2,7", 0, 1.0), ("7,7", 0, -1.0), ("7,6", 0, -1.0), ("5,6", 0, 1.0), ("no", 0, -1.0), ("5", 0, -1.0),
    ("1,2,3", 0, -1.0), ("well:7:3,4", 0, 1.0), ("2,7", 0, 0.0), ("2,7", 1, -1.0), ("7,2", 1, 1.0), ("1", 1, -1.0),
    ("1", 2, 1.0), ("0", 2, -1.0), ("1", 3, -1.0), ("0", 3, 1.0),
    ("3,2,1", 4, 1.0), ("2,1,3", 4, -1.0), ("3,1,3", 4, -1.0), ("3,2", 4, -1.0),
)
"""Completion, start, reward; the first row is cut, the ninth has left training."""


def group_size(recipe: Recipe) -> float:
    """Returns how many rows of the rollout belong to one prompt."""
    (rows,), _, _ = probes.gathered(recipe, judging())
    assert rows.group is not None
    return float(torch.bincount(rows.group).float().mean())


def loss_by_hand(seen: probes.Seen) -> Tensor:
    return by_hand.grpo_loss(seen) + 0.08 * by_hand.mean_of_sequences(by_hand.k3(seen), seen.experience)


# ---------------------------------------------------------------------------------------------------- the vote
def vote_errors() -> int:
    """Sums of the figure, of its two judgements with the largest meta scores, and of one loud judgement."""
    plain, kept = Vote().total(FIGURE, 2), Vote(keep=2).total(FIGURE, 2, (0.9, 0.1, 0.8, 0.2))
    loud = Vote().total([(9, 1), (5, 6), (5, 6), None, (1,)], 2)
    return (plain != [17, 25]) + (kept != [5, 13]) + (loud != [19, 13])


def biased(prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray) -> list[str]:
    """A judge that gives a good response 1 point more than a bad one, and the first place 3 points more."""
    found = []
    for prompt in prompts:
        errors = [sum(step in ERRORS for step in one) for one in prompt.rstrip("=").split("|")]
        found.append(",".join(str(1 + (count == min(errors)) + 3 * (k == 0)) for k, count in enumerate(errors)))
    return found


def accuracy(recipe: Recipe, seed: int, samples: int, warm: int = 100, steps: int = 10, num: int = 128) -> float:
    """Pair accuracy of `samples` summed judgements with shuffled responses, of a judge after `warm` supervised steps
    and `steps` of the recipe.
    """
    judge = probes.trained(recipes.sft(), judging(), seed, warm).actor
    judge = probes.trained(recipe, judging(), seed, steps, judge).actor
    write = sampled(judging(), judge, Draw(seed, (3,)))
    return float(Vote(samples).right(judging(), write, range(num), Draw(seed, (4,))).mean())


def gain_of_vote(seed: int, warm: int = 100, steps: int = 10, num: int = 128) -> float:
    """Pair accuracy of 32 judgements minus that of one."""
    many, one = (accuracy(recipe(), seed, samples, warm, steps, num) for samples in (32, 1))
    return many - one


def small_vote(seed: int) -> float:
    """Returns the size of a judge's weights after a supervised step and one of the recipe, and what a vote ranks."""
    first = probes.trained(recipes.sft(), judging(), seed, 1).actor
    judge = probes.trained(recipe(), judging(), seed, 1, first).actor
    right = Vote(4).right(judging(), sampled(judging(), judge, Draw(seed, (3,))), range(4), Draw(seed, (4,)))
    return float(right.mean()) + sum(float(weight.detach().abs().mean()) for weight in judge.parameters())


CLAIMS = Claims(
    mutants=(
        Edit("a tie wins", is_right, "scores[answer - 1] > score", "scores[answer - 1] >= score"),
        Edit("the first response is best", is_right, "place != answer - 1", "place != 0"),
        Edit("0 for a wrong ranking", RightRanking.__call__, "else self.wrong", "else 0.0"),
        Edit("orders are not mapped back", mapped_back, "order.index(response)", "response"),
        Edit("the smallest meta scores are kept", Vote.total, "-meta[k]", "meta[k]"),
        Edit("one order for all judgements", Vote.orders, "np.arange(self.samples)[:, None]",
             "0 * np.arange(self.samples)[:, None]"),
        Edit("another weight of the KL", recipe, "KlToReference(kl,", "KlToReference(0.001,"),
    ),
    claims=(
        Exact("a strictly higher score for the best wins; ties, unreadable and too many scores lose; a single response "
              "must be scored as labelled",
              lambda: probes.table_gap(recipe(), TASK, RULE, cut=[0], faults=[8]), equals=0.0),
        same_gradient("its gradient is grpo's with 0.08 k3 to the reference in each sequence",
                      lambda: replace(recipe(), rewards=()), loss_by_hand),
        Exact("groups are four judgements of a prompt", lambda: group_size(recipe()), equals=4.0, of="rollouts"),
        Exact("figure 3 sums to (17, 25), filtered to (5, 13); a loud judgement outvotes two",
              vote_errors, equals=0.0),
        Exact("with a bias for the first place larger than the margin, in orders of their own 256 judgements are right",
              lambda: float(Vote(256).right(judging(), biased, range(16), Draw(3)).mean()), at_least=0.9),
        Measured("pair accuracy of 32 summed judgements is at least 0.03 above that of one", "",
                 Computed(gain_of_vote, small=small_vote), 0.03, seeds=5,
                 minutes=3.0, about=About.MECHANISM),
        Measured("training raises the share of held-out pairs that a single judgement ranks right", "judging",
                 recipe(), 0.0, Gain(), seeds=5, minutes=12.0, steps=60, warmup=100, looks=2, about=About.HEADLINE),
    ),
)
