"""Claims of ace: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, recipes
from assay.methods.ace import ConfidencePenalty, constant, recipe


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    advantage = by_hand.standardised(data)
    moved = torch.where(data.mask, data.logp - seen.logp("reference").detach(), 0.0).sum(1)
    factor = torch.where(advantage < 0, 1.0 + torch.log1p(moved.exp()), 1.0)
    return by_hand.grpo_loss(seen, advantage * factor)


def factor(confidence: float, advantage: float = -1.0) -> float:
    """Returns the factor of an answer of one decision whose log-ratio to the reference is `confidence`."""
    data = probes.outcomes(0.0)
    return float(ConfidencePenalty()(data.reward + advantage, data.add({"logp_ref": data.logp - confidence})))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand),
        Measured("at an equal pass rate it finds more different right answers in eight samples than with a constant "
                 "factor of the same size at the start", "many-ways",
                 recipe(BIGRAMS).set("actor.rank", 4), constant(BIGRAMS).set("actor.rank", 4), AtEqual("distinct@8"),
                 seeds=10, minutes=6.0, steps=100, looks=2, about=About.COMPONENT),
        Measured("at an equal pass rate it finds more different right answers in eight samples than grpo", "many-ways",
                 recipe(BIGRAMS).set("actor.rank", 4), recipes.grpo(BIGRAMS).set("actor.rank", 4),
                 AtEqual("distinct@8"), seeds=10, minutes=6.0, steps=100, looks=2, about=About.MECHANISM),
        Measured("at an equal pass rate it is right within 64 tries more often than grpo", "many-ways",
                 recipe(BIGRAMS).set("actor.rank", 4), recipes.grpo(BIGRAMS).set("actor.rank", 4), AtEqual("pass@64"),
                 seeds=10, minutes=6.0, steps=100, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("right answers too", ConfidencePenalty.__call__, "advantage_BT < 0", "advantage_BT != 0"),
        Edit("the less likely ones", ConfidencePenalty.__call__, "softplus(confidence)", "softplus(-confidence)"),
    ),
)
