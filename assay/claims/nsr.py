"""Claims of nsr: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch

from assay.claims import About, AtEqual, Claims, Edit, Exact, Measured, by_hand, probes
from assay.method import BIGRAMS, Recipe
from assay.methods.nsr import negative, positive, recipe
from assay.parts import BySign, WithoutIdle


def loss_by_hand(seen: probes.Seen, right: float, wrong: float) -> torch.Tensor:
    is_right = by_hand.outcome(seen.experience) > 0.5
    advantage = torch.where(is_right, right, -wrong).double()
    return by_hand.token_loss(seen, advantage, kept=advantage != 0)


def gap(ours: Recipe, right: float, wrong: float) -> float:
    return probes.formula_gap(ours, probes.UNIT_OUTCOME, lambda seen: loss_by_hand(seen, right, wrong))


def unsampled(ours: Recipe, arm: int, reward: float) -> torch.Tensor:
    """Returns the steps of the logits of four arms after one sampled answer."""
    return -probes.bandit_grad(ours, torch.tensor([0.5, 0.3, 0.15, 0.05]).double().log(), arm, reward)


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's", lambda: gap(recipe(), 0.1, 1.0), at_most=1e-9),
        Exact("the gradient of wrong answers alone is the formula's, over their own decisions",
              lambda: gap(negative(), 0.0, 1.0), at_most=1e-9),
        Exact("the gradient of right answers alone is the formula's, over their own decisions",
              lambda: gap(positive(), 1.0, 0.0), at_most=1e-9, of="psr"),
        Exact("a wrong answer raises every other logit by its probability", lambda: (
              unsampled(negative(), 0, 0.0) - torch.tensor([-0.5, 0.3, 0.15, 0.05])).abs().max(), at_most=1e-6,
              illustrates=True),
        Exact("a right answer lowers every other logit", lambda: (
              unsampled(positive(), 1, 1.0) - torch.tensor([-0.5, 0.7, -0.15, -0.05])).abs().max(), at_most=1e-6,
              illustrates=True),
        Measured("where contexts share parameters, wrong answers alone have a higher pass@64 than right ones alone at "
                 "an equal pass rate",
                 "many-ways", negative(BIGRAMS).set("actor.rank", 4), positive(BIGRAMS).set("actor.rank", 4),
                 AtEqual("pass@64"), seeds=10, minutes=6.0, steps=100, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("graded rewards keep their size", recipe, "(RightOrWrong(), OutcomeCredit", "(OutcomeCredit"),
        Edit("0 and 1 instead of signs", recipe, "Constant(0.5), Constant(0.5)", "Constant(0.0), Constant(1.0)"),
        Edit("weights change places", BySign.__call__, "self.positive, self.negative", "self.negative, self.positive"),
        Edit("dropped rows count in the mean", WithoutIdle.apply, "experience.mask & teaches", "experience.mask"),
    ),
)
