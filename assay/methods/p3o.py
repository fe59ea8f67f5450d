"""p3o: pairs of answers are compared by the difference of their rewards; ratios are clipped for each answer.

    maximise 1/2 sum_i min(c_i rho_i, c_i clip(rho_i, 0.8, 1.2)),   c_i = (R_i - R_other) stop_gradient(rho_other)
    R = r - beta log(pi_old(y) / pi_ref(y)),   rho = pi(y) / pi_old(y) of the whole answer

Wu et al. 2023. Rewards of a preference model are defined up to a constant of the prompt; differences are invariant to
it. `joint` clips the log-odds of the pair instead (the paper's V2).

Axes: B sequences, T decisions.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, Preset, Experience, Loss, Method, Need, Objective, Recipe, View, groups, recipes
from assay.method import with_kl_in_reward, with_policy
from assay.parts import Clip, ProductRatio, bounded_ratio, of_rows


@dataclass(frozen=True)
class PairGradient(Objective):
    """Minus half the clipped gain of both answers of a pair, as a mean over answers.

    `joint` clips log pi(y1) / pi(y2) around its old value instead of each ratio. A pair is a group of two
    answers; other groups are left out. Degenerate: equal rewards have no gradient.
    """

    clip: float = 0.2
    joint: bool = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    together: ClassVar[str | None] = "group"
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "compares rewards of a pair; the column `advantage` is not read"}

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of answers in a pair."""
        return (partner_of(batch) != torch.arange(len(batch), device=batch.mask.device)).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the sum over answers."""
        moved, partner = of_rows(ProductRatio()(view.scored.logp, batch), batch), partner_of(batch)
        outcome, other = groups.outcome(batch), moved[partner]
        ahead = (outcome - outcome[partner]).detach()
        if self.joint:
            both, odds = ahead * bounded_ratio((moved + other).detach()), moved - other
            loss = -torch.minimum(both * odds, both * odds.clamp(-self.clip, self.clip)) / 2
        else:
            loss, _ = Clip(self.clip, self.clip)(moved, ahead * bounded_ratio(other.detach()), moved)
        return Loss(loss.sum() / 2, self.count(batch), {})


def partner_of(batch: Experience) -> Tensor:
    """Returns the row of the other answer in groups of two answers; rows of other groups are their own."""
    by_group, there = groups.row_groups(batch), batch.mask.any(1)
    row = torch.arange(len(batch), device=batch.mask.device)
    of_both, num = (groups.total(one * there, by_group)[by_group.index] for one in (row, torch.ones_like(row)))
    return torch.where(there & (num == 2), of_both - row, row)


def recipe(preset: Preset = LANGUAGE, beta: float = 0.05, *, joint: bool = False) -> Recipe:
    pairs = replace(recipes.rloo(preset), credit=(), source=preset.minibatch_source).set("group_size", 2)
    return with_policy(with_kl_in_reward(pairs, "p3o", beta), "p3o", PairGradient(joint=joint))


JOINT = partial(recipe, joint=True)


METHOD = Method(
    paper="arXiv:2310.00212",
    recipe=recipe,
    family="preference",
    base=recipes.rloo,
    variants={"p3o-joint": JOINT},
    departures=(
        "the clip of `joint` is written from knowledge of the paper; inside its range the gradient is the other one's",
        "the KL coefficient is 0.05; the paper sweeps it",
    ),
)
