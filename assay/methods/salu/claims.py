"""What salu's table makes the best policy, computed from the rewards of given completions."""

from collections.abc import Sequence

import torch

from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.slots import Scene
from assay.tasks.language.needle import ABSTAIN, ANSWERABLE, UNANSWERABLE, needle

TASK = needle(1)
LABELS = [str(item.facts["label"]) for item in TASK.items_of(torch.arange(40), 0)]
KNOWN, UNKNOWN = LABELS.index(ANSWERABLE), LABELS.index(UNANSWERABLE)
RIGHT = TASK.items_of(torch.tensor([KNOWN]), 0)[0].answer
WRONG = "7" if RIGHT != "7" else "8"
CELLS = ((RIGHT, KNOWN), (WRONG, KNOWN), (ABSTAIN, KNOWN), (ABSTAIN, UNKNOWN), ("7", UNKNOWN))
"""Right, wrong and abstained if an answer exists; abstained and made up if not."""


def rewards(
    ours: Recipe,
    rows: Sequence[tuple[str, int]],
    prob: Sequence[float],
    cut: Sequence[int] = (),
    faults: Sequence[int] = (),
) -> torch.Tensor:
    """The rewards of (completion, start) pairs whose tokens had these probabilities."""
    said, starts = zip(*rows, strict=True)
    record = probes.completed(TASK, said, starts, cut=cut, faults=faults, prob=prob)
    return ours.rewards[0](record, Scene(TASK)).reward.sum(1).double()


def values(ours: Recipe, belief: float, skill: float) -> tuple[float, float]:
    """Expected reward of answering and of abstaining, both certain of themselves."""
    right, wrong, over, due, made_up = rewards(ours, CELLS, [1.0] * 5).tolist()
    answer = belief * (skill * right + (1.0 - skill) * wrong) + (1.0 - belief) * made_up
    return answer, belief * over + (1.0 - belief) * due


def threshold(ours: Recipe, skill: float) -> float:
    """The belief at which answering and abstaining are worth the same: both are linear in it."""
    at_0, at_1 = (answer - abstain for answer, abstain in (values(ours, belief, skill) for belief in (0.0, 1.0)))
    return at_0 / (at_0 - at_1)


def distance_of_thresholds(one: Recipe, two: Recipe) -> float:
    found = [threshold(ours, skill) for ours in (one, two) for skill in (1.0, 0.8)]
    return max(abs(mine - sheet) for mine, sheet in zip(found, (0.5714, 0.6452, 0.6667, 0.7692), strict=True))


def distance_of_values(one: Recipe, two: Recipe) -> float:
    found = [*values(one, 0.6, 1.0), *values(two, 0.6, 1.0)]
    return max(abs(mine - sheet) for mine, sheet in zip(found, (0.2, 0.1, -0.2, 0.1), strict=True))


def distance_from_table(ours: Recipe) -> torch.Tensor:
    """The five cells with confidences; a wrong answer that was cut; a row that left training."""
    rows = [*CELLS, (WRONG + WRONG, KNOWN), (RIGHT, KNOWN)]
    found = rewards(ours, rows, [0.3, 0.9, 0.3, 0.3, 0.1, 0.5, 0.5], cut=[5], faults=[6])
    return (found - torch.tensor([1.0, -0.9, -0.5, 1.0, -0.1, -0.5, 0.0])).abs().max()


def distance_from_half_gradient(ours: Recipe) -> torch.Tensor:
    """Sum of pi(a) r(a) d log pi(a), r the recipe's, against half the slope of -sum pi^2; all answers are made up."""
    logits = torch.tensor([1.0, 0.2, -0.5, -1.3], dtype=torch.float64, requires_grad=True)
    prob = logits.softmax(-1)
    reward = rewards(ours, [(digit, UNKNOWN) for digit in "0123"], prob.tolist())
    (slope,) = torch.autograd.grad(-prob.square().sum(), logits, retain_graph=True)
    (ascent,) = torch.autograd.grad((prob.detach() * reward * prob.log()).sum(), logits)
    return (ascent - slope / 2.0).abs().max()


def worth_of_abstaining(ours: Recipe) -> torch.Tensor:
    """Rewards of all cells but the right answer, which gets 1."""
    found = rewards(ours, CELLS, [0.5] * 5)
    return found[1:].abs().max() + (found[0] - 1.0).abs()
