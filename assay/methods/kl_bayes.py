"""kl-bayes: treats reward minus KL as inference; its only optimum is a posterior, which can be matched directly.

    pi*(y) = pi_ref(y) exp(R(y) / beta) / Z,   E[R] - beta KL(pi || pi_ref) = beta log Z - beta KL(pi || pi*)

Korbak et al. 2022. Reward alone collapses onto the best answers. The recipe is rloo with the KL in its reward, which
is variational inference; `matching` reaches the same pi* by KL(pi* || pi): the posterior's weight is the credit.

Axes: B sequences, T decisions, G groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import EVERY, LANGUAGE, Credit, Experience, Method, Need, Preset, Recipe, Scene, State, groups
from assay.method import recipes, with_kl_in_reward


@dataclass(frozen=True)
class PosteriorWeight(Credit):
    """advantage_b = w_b - 1,  w_b = P(y_b) / q(y_b) over its mean in the group,  P(y) = pi_ref(y) exp(R(y) / beta).

    With it -A log pi has the gradient of KL(pi* || pi), pi* = P / Z: distribution matching (DPG, GDC;
    arXiv:2012.11635, 2205.11275). q is the behaviour policy; Z is estimated within the group, with a bias of about 1
    / members. The 1 is a baseline: exact on-policy; off-policy, `centre` false leaves it out. Degenerate: a group of
    one has weight 1 and advantage 0; equal rewards at the reference give 0.
    """

    beta: float = 0.1
    centre: bool = True
    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})
    writes: ClassVar[Mapping[str, str]] = {
        "advantage": "BT",
        "posterior_weight": "BT: weight of a sample of the posterior",
    }
    breaks: ClassVar[dict[str, str]] = {"tied": "at equal rewards the answers that the reference prefers gain"}

    @property
    def centred(self) -> bool:
        """Returns whether advantages sum to zero in each group."""
        return self.centre

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage` and `posterior_weight` [B]."""
        row = ((experience.column("logp_ref") - experience.logp) * experience.mask).sum(1)
        log_weight = groups.over_episode(row, experience) + groups.outcome(experience) / self.beta
        weight = over_group_mean(log_weight, groups.row_groups(experience))
        advantage = (weight - float(self.centre)).unsqueeze(1) * experience.mask
        return experience.add({"advantage": advantage, "posterior_weight": weight})


def over_group_mean(log_weight_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Returns exp(log weight) divided by its mean over the group's episodes, without overflow; 0 for masked rows."""
    there = by_group.share > 0
    held = torch.where(there, log_weight_B, -torch.inf)
    top = held.new_full((by_group.num,), -torch.inf).scatter_reduce(0, by_group.index, held, "amax")
    weight = torch.where(there, (held - top[by_group.index]).exp(), 0.0)
    mean = groups.mean(weight, by_group)
    return weight / torch.where(mean > 0, mean, 1.0)


def recipe(preset: Preset = LANGUAGE, beta: float = 0.1) -> Recipe:
    """Returns rloo with the KL in its reward."""
    return with_kl_in_reward(recipes.rloo(preset), "kl-bayes", beta)


def matching(preset: Preset = LANGUAGE, beta: float = 0.1, centre: bool = True) -> Recipe:
    """Returns likelihood of samples weighed by their posterior; `centre` subtracts the mean of the weights."""
    return replace(recipe(preset), name="kl-bayes-matching", credit=(PosteriorWeight(beta, centre),))


METHOD = Method(
    paper="arXiv:2205.11275",
    recipe=recipe,
    presets=EVERY,
    default_task="sorting-5",
    family="policy gradient",
    base=recipes.rloo,
    variants={"posterior-matching": matching},
    departures=("the paper is theory: rloo is our choice of estimator; Z of `matching` is estimated in each group",),
)
