"""Siren's loss by hand. Axes: B rows, T decisions, S states, A actions."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, Experience, Phase, Recipe, nucleus_entropy, recipes
from assay.methods.siren import USUAL, AnchorEntropy, recipe
from assay.parts import MaskedEntropy
from assay.parts.regularizers.entropy import above_quantile

FIRST, second = (probes.sequences(seed=1, num=32),), partial(probes.sequences, num=128)
anchored = partial(same_gradient, data=second, earlier=FIRST)


def entropy_by_hand(logits_A: Tensor, mass: float, *, crossing: bool) -> Tensor:
    """Returns the entropy of the nucleus, action by action from the likeliest."""
    prob, kept, total = logits_A.softmax(-1), [], 0.0
    for action in logits_A.argsort(descending=True).tolist():
        if (total if crossing else total + float(prob[action].detach())) >= mass:
            break
        kept.append(action)
        total += float(prob[action].detach())
    q = prob[kept] / prob[kept].sum()
    return -(q * q.log()).sum()


def mean_by_hand(data: Experience, entropy_S: Tensor, peak: float) -> Tensor:
    """Returns Hbar of a table policy: rows one by one, decisions above the row's quantile."""
    means = []
    for row in data.mask.any(1).nonzero().flatten().tolist():
        found = entropy_S[data.context["state"][row][data.mask[row]]]
        above = found[found > found.detach().quantile(peak)] if peak > 0 else found
        means.append(above.mean() if len(above) else found.new_zeros(()))
    return torch.stack(means).mean()


def loss_by_hand(
    seen: probes.Seen, mass: float = 0.8, peak: float = 0.8, beta: float = 0.005, *, crossing: bool = False
) -> Tensor:
    entropy_S = torch.stack([entropy_by_hand(row, mass, crossing=crossing) for row in seen.models["actor"].body.table])
    anchor = mean_by_hand(FIRST[0], entropy_S, peak).detach()
    away = mean_by_hand(seen.experience, entropy_S, peak) - anchor
    return beta * away.square() + by_hand.dr_grpo_loss(seen, 0.28, 0.28)


def started(one: Recipe) -> Recipe:
    """Returns the recipe after 20 steps of dr-grpo: a uniform policy has no most uncertain decisions."""
    return replace(one, before=(Phase("start", recipes.dr_grpo(BIGRAMS), 20),))


CLAIMS = Claims(
    claims=(
        anchored("its gradient is the formula's, with an earlier batch's anchor", recipe, loss_by_hand),
        anchored("with the usual nucleus its gradient is the formula's", USUAL, partial(loss_by_hand, crossing=True)),
        anchored("with all tokens and positions its term is the square of the entropy",
                 partial(recipe, mass=2.0, peak=0.0), partial(loss_by_hand, mass=2.0, peak=0.0)),
        Measured("at an equal pass rate it finds more different right answers in eight samples than without the term",
                 "many-ways",
                 started(recipe(BIGRAMS)), started(recipe(BIGRAMS, beta=0.0)), AtEqual("distinct@8"), seeds=10,
                 minutes=10.0, steps=100, looks=2, about=About.MECHANISM),
        Measured("at an equal pass rate it is right within 64 tries more often than without the term", "many-ways",
                 started(recipe(BIGRAMS)), started(recipe(BIGRAMS, beta=0.0)), AtEqual("pass@64"), seeds=10,
                 minutes=10.0, steps=100, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("a token too many", nucleus_entropy, "(prob if crossing else 0.0)", "prob"),
        Edit("not renormalised", nucleus_entropy, "torch.where(kept.any(-1), prob.sum(-1), 1.0)", "torch.ones(())"),
        Edit("the certain decisions", above_quantile, "value_BT > torch", "value_BT < torch"),
        Edit("a bonus", AnchorEntropy.apply, "2.0 * (level - state[\"anchor\"])", "-1.0"),
        Edit("an anchor that follows", AnchorEntropy.apply, "level if state[\"anchor\"] is None else state[\"anchor\"]",
             "level"),
        Edit("empty answers left out", MaskedEntropy.count, "batch.mask.any(1).sum()", "batch.mask.sum()"),
    ),
)
