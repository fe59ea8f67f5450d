"""Claims of progrpo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, recipes
from assay.methods.progrpo import LessWhereConfident, confidence_of, recipe


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    confidence = torch.zeros(len(data), dtype=torch.float64)
    for row in data.mask.any(1).nonzero().flatten().tolist():
        logp = data.logp[row][data.mask[row]].sort().values
        confidence[row] = logp[: max(1, len(logp) // 5)].mean().exp()
    above = by_hand.in_groups(confidence, data, lambda one: one - one.mean())
    solved = by_hand.in_groups(by_hand.outcome(data), data, lambda one: (one > 0).any().double().expand_as(one))
    return by_hand.token_loss(seen, by_hand.standardised(data) - above * solved, high=0.28)


def long_answer() -> Tensor:
    """Returns the confidence in ten tokens of which the lowest two have 0.2 and 0.3."""
    chances = torch.tensor([[0.9, 0.95, 0.2, 0.99, 0.8, 0.5, 0.97, 0.9, 0.3, 0.85]]).double()
    return confidence_of(replace(probes.one_sequence(*[0.0] * 10), logp=chances.log()), 0.2)[0]


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.UNIT_OUTCOME),
        Exact("confidence is the geometric mean of the lowest fifth", long_answer, equals=0.244949, tolerance=1e-5),
        Measured("at an equal pass rate it finds more different right answers in eight samples than grpo", "many-ways",
                 recipe(BIGRAMS), recipes.grpo(BIGRAMS), AtEqual("distinct@8"), seeds=10, minutes=6.0, steps=100,
                 looks=2, about=About.MECHANISM),
        Measured("at an equal pass rate it is right within 64 tries more often than grpo", "many-ways",
                 recipe(BIGRAMS), recipes.grpo(BIGRAMS), AtEqual("pass@64"), seeds=10, minutes=6.0, steps=100,
                 looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("unsolved groups too", LessWhereConfident.apply, "torch.where(solved,", "torch.where(solved | True,"),
        Edit("the mean of all decisions", confidence_of, "(share * mask.sum(1) + 1e-9)", "mask.sum(1)"),
    ),
)
