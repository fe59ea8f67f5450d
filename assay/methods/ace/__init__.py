"""ace: suppresses a wrong answer the more, the likelier training has made it.

    A_i <- A_i (1 + alpha softplus(c_i)) where A_i < 0,   c_i = sum_t log pi_old(y_t) - log pi_ref(y_t)

LinkedIn 2026 (arXiv:2602.21420). Group-relative advantages treat all wrong answers alike; an error that training
reinforced by accident needs a stronger push. At the start c = 0 and every wrong answer has the factor 1 + alpha log 2,
so a constant factor of that size (`constant`) is the rival that separates the mechanism from a larger step.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Copy, Recipe
from assay.core.slots import CreditWeight
from assay.methods.ace.credit import ConfidencePenalty
from assay.parts.credit.reweigh import BySign, Reweigh
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE, rule: CreditWeight = ConfidencePenalty()) -> Recipe:
    base = recipes.grpo(world)
    weighed = (*base.credit, Reweigh(rule))
    return replace(base, name="ace", credit=weighed, copies={"reference": Copy(of="actor")})


def constant(world: Defaults = LANGUAGE) -> Recipe:
    """The same factor 1 + log 2 for every wrong answer."""
    return replace(recipe(world, BySign(1.0, 1.0 + math.log(2.0))), copies={})


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


METHOD = Method(
    paper="arXiv:2602.21420",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"constant": constant},
    departures=(
        "the factor 1 + alpha softplus(c) and alpha = 1 are read from secondary texts; no code was released",
        "the log-ratio is of the whole answer and grows with its length; `per_decision` divides by it",
        "no claim on the probability of confident errors: 0.59 against grpo's 0.58 on many-ways (5 pilot seeds)",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand),
        Exact("the factor at c = 2", lambda: factor(2.0), equals=3.12693, tolerance=1e-5),
        Exact("the factor at c = -2", lambda: factor(-2.0), equals=1.12693, tolerance=1e-5),
        Exact("right answers keep their advantage", lambda: factor(2.0, advantage=1.0), equals=1.0),
        Measured("keeps more different right answers than a constant factor of the same size at the start", "many-ways",
                 recipe(BIGRAMS).set("actor.rank", 4), constant(BIGRAMS).set("actor.rank", 4), Final("distinct@8"),
                 seeds=10, minutes=6.0, steps=100, looks=2),
    ),
    mutants=(
        Edit("right answers too", ConfidencePenalty.__call__, "advantage_BT < 0", "advantage_BT != 0"),
        Edit("the less likely ones", ConfidencePenalty.__call__, "softplus(confidence)", "softplus(-confidence)"),
    ),
)  # fmt: skip
