"""The functions behind spct-grm's claims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay import recipes
from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Draw
from assay.methods.spct_grm.parts import Vote, is_right
from assay.tasks.language.judging import ERRORS, judging
from assay.tasks.language.prompts import PromptTask

FIGURE = [(1, 5), (5, 6), (4, 8), (7, 6)]
"""Four judgements of two responses, from the paper's figure 3."""
PROBS = (0.15, 0.17, 0.20, 0.26, 0.22)
"""Of the score of the better response minus that of the other being -2, -1, 0, 1, 2."""


def rewards(recipe: Recipe, said: Sequence[str], best: int, faults: Sequence[int] = ()) -> Tensor:
    """Total reward [B] of judgements of a pair whose best response is `best`, by the recipe's own rewards."""
    task = judging()
    start = next(start for start in range(99) if task.items.item(start, 0).answer == str(best))
    batch = probes.completed(task, said, [start] * len(said), faults=faults, cut=(0,))
    return probes.rewarded(recipe, task, batch)


def rule_errors(recipe: Recipe) -> float:
    """Against the table for the second being best, with a cut row (the first), a faulty one, and an order reversed."""
    said = ["2,7", "7,7", "7,6", "5,6", "no", "5", "1,2,3", "well:7:3,4", "2,7"]
    expected = torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 0.0])
    other = (rewards(recipe, ["2,7", "7,2"], best=1) - torch.tensor([-1.0, 1.0])).abs().sum()
    return float((rewards(recipe, said, best=2, faults=(8,)) - expected).abs().sum() + other)


def single_errors() -> int:
    """Of one response with label 1 or 0: wrong decisions of the rule."""
    return sum(is_right([score], label, 1) != (score == label) for score in (0, 1) for label in (0, 1))


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


def enumerated(vote: Vote, meta: Sequence[float] = ()) -> float:
    """P(the second response wins, ties a half) over all judgements whose scores differ by -2 .. 2 with PROBS."""
    right = 0.0
    for some in product(range(-2, 3), repeat=vote.samples):
        first, second = vote.total([(3, 3 + difference) for difference in some], 2, meta)
        chance = prod(PROBS[difference + 2] for difference in some)
        right += chance * (0.5 * (second > first) + 0.5 * (second >= first))
    return right


def biased(prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray) -> list[str]:
    """A judge that gives a good response 1 point more than a bad one, and the first place 3 points more."""
    found = []
    for prompt in prompts:
        errors = [sum(step in ERRORS for step in one) for one in prompt.rstrip("=").split("|")]
        found.append(",".join(str(1 + (count == min(errors)) + 3 * (k == 0)) for k, count in enumerate(errors)))
    return found


def accuracy(task: PromptTask, vote: Vote, write: Any, num: int, draw: Draw) -> float:
    """Share of held-out pairs whose better response the vote puts first."""
    starts = list(range(num))
    right = [int(item.answer) for item in task.items_of(np.asarray(starts), 1)]
    found = vote.choices(task, write, starts, draw)
    return float(np.mean([one == other for one, other in zip(found, right, strict=True)]))


def accuracy_of_biased(is_shuffled: bool, samples: int) -> float:
    """On sixteen pairs, the better response first in half of them."""
    task = judging()
    by_answer = {
        answer: [start for start in range(99) if task.items.item(start, 1).answer == answer] for answer in "12"
    }
    starts = [*by_answer["1"][:8], *by_answer["2"][:8]]
    found = Vote(samples, is_shuffled=is_shuffled).choices(task, biased, starts, Draw(3))
    return float(np.mean([one == 1 + (place >= 8) for place, one in enumerate(found)]))


# ---------------------------------------------------------------------------------------------------- measured
def written(task: PromptTask, actor: Any, draw: Draw, prompts: Sequence[str], starts: Any, samples: Any) -> list[str]:
    """Judgements sampled from a policy."""
    return task.completions(task.play_prompts(actor, prompts, starts, samples, draw, split=1))


def gain_of_vote(recipe: Recipe, seed: int, warm: int = 100, steps: int = 10, num: int = 128) -> float:
    """Pair accuracy of 32 sampled judgements minus that of one, both with shuffled responses, of a judge after `warm`
    supervised steps and `steps` of the recipe.
    """
    task = judging()
    actor = probes.trained(recipe, task, seed, steps, probes.trained(recipes.sft(), task, seed, warm).actor).actor
    write = partial(written, task, actor, Draw(seed, (3,)))
    many, one = (accuracy(task, Vote(samples), write, num, Draw(seed, (4,))) for samples in (32, 1))
    return many - one
