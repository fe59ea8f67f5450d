"""real: right answers and wrong answers of a group are two softmaxes of their mean log-ratios against an anchor.

    loss = mean over groups of log(1 + sum_right e^(-s_i / tau)) + log(1 + sum_wrong e^(s_j / tau)),  tau = 0.5
    s_i = mean_t (log pi(y_t) - log pi_old(y_t));   groups of one class have no loss

2026 (arXiv:2602.05630). Weights of grpo grow with the ratio, so the answers that need it least move most; here the
unlikely right and the likely wrong answers get more, and the pull of a class is below 1 / tau.
"""

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Area, Edit, Exact, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.core.slots import LabelLoss
from assay.methods.real.objectives import AgainstAnchor
from assay.parts.objectives.labelled import CrossEntropy, OutcomeAsLabel
from assay.parts.objectives.ratio import SequenceRatio
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_policy


def recipe(world: Defaults = LANGUAGE, tau: float = 0.5, loss: LabelLoss = AgainstAnchor()) -> Recipe:
    objective = OutcomeAsLabel(SequenceRatio(), 1.0 / tau, loss=loss)
    return with_policy(replace(recipes.grpo(world), credit=()), "real", objective)


def cross_entropy(world: Defaults = LANGUAGE) -> Recipe:
    """A cross-entropy of each answer instead of a softmax of each class."""
    return recipe(world, loss=CrossEntropy())


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    moved = by_hand.moved(seen) / data.mask.sum(1).clamp(min=1)
    right, losses = by_hand.outcome(data) > 0.5, []
    for rows in by_hand.rows_of_groups(data):
        good, bad = (moved[[row for row in rows if right[row] == kind]] for kind in (True, False))
        both = torch.log(1 + (-good / 0.5).exp().sum()) + torch.log(1 + (bad / 0.5).exp().sum())
        losses.append(both if len(good) and len(bad) else both * 0.0)
    return torch.stack(losses).mean()


def pull(*moved: float) -> Tensor:
    """Returns the derivative of the loss by the log-ratios of four answers of one decision, two right, two wrong."""
    data = probes.groups_with_right(2, size=4)
    return probes.slopes(recipe(), data, data.logp + torch.tensor([moved], dtype=torch.float64).T).squeeze(1)


METHOD = Method(
    paper="arXiv:2602.05630",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"real-bce": cross_entropy},
    departures=(
        "an outcome above 1/2 is right; in the authors' code values other than 0 and 1 drop out",
        "no claim on the largest gradient: it is above grpo's by the factor 1 / tau (0.104 and 0.027, 3 pilot seeds)",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.verified),
        Exact("unlikely right and likely wrong answers are pulled more", lambda: (pull(0.2, -0.3, 0.1, -0.4)
              - torch.tensor([-0.383869, -1.043465, 0.914658, 0.336484])).abs().max(), at_most=1e-5),
        Measured("learns faster than grpo when every batch is used eight times: mean pass rate", "levels",
                 recipe(BIGRAMS).set("source.epochs", 8), recipes.grpo(BIGRAMS).set("source.epochs", 8),
                 Area("pass_rate"), seeds=10, minutes=10.0, steps=50, looks=2),
    ),
    mutants=(
        Edit("groups of one class learn", AgainstAnchor.__call__, "(sizes[0] > 0) & (sizes[1] > 0)", "sizes[0] >= 0"),
        Edit("the likely right answers", AgainstAnchor.__call__, "zip((-1.0, 1.0)", "zip((1.0, -1.0)"),
        Edit("no anchor", AgainstAnchor.__call__, "torch.log1p(", "torch.log(1e-9 + "),
    ),
)  # fmt: skip
