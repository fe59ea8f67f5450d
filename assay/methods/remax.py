"""remax: REINFORCE with the reward of the greedy answer as baseline, one sample and one greedy answer a prompt.

    loss = -mean_t ret_t log pi(y_t),   ret_t = 0.99^(T - t) clip(R - R_greedy, -5, 5) - 0.05 log(pi(y_t) / pi_ref(y_t))

Li et al. 2023. No critic, no ratio, one update a batch. The baseline does not depend on the sample, so the gradient
stays unbiased, and a constant of the prompt in the rewards cancels. It is not always a gain: with rewards 0 and 1 a
wrong greedy answer leaves plain REINFORCE, and a right one can raise the variance (numbers in the claims). `to-go` has
the KL terms of all later decisions, without discount: their gradient is that of KL(pi || ref).

Axes: B rows, T decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from assay.method import LANGUAGE, Copy, Credit, Experience, Method, Need, Preset, Recipe, Scene, State, groups, recipes
from assay.method import returns, with_policy
from assay.parts import Constant, NoTrust, OutcomeCredit, PolicyGradient, WithGreedy


@dataclass(frozen=True)
class AgainstGreedy(Credit):
    """gamma^(T - t) clip(R - R_greedy, -limit, limit) - beta k_t of decision t = 0..T-1, k the log-ratio to the
    reference. With `to_go`: sum of gamma^(s - t) (r_s - beta k_s) over s >= t, minus R_greedy; nothing is clipped.

    ReMax (arXiv:2310.10505). The baseline does not depend on the row's decisions, so it changes no expected gradient.
    gamma is `discount`, beta `kl`. Degenerate: an answer as good as the greedy one has the KL term alone.
    """

    discount: float = 0.99
    kl: float = 0.05
    limit: float = 5.0
    to_go: bool = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})
    reads: ClassVar[Mapping[str, str]] = {"greedy_outcome": "B"}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)
    centred: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"episodes": "decisions are counted, and rewards added, to the end of the row"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`."""
        mask, greedy = experience.mask, experience.column("greedy_outcome")
        penalty = self.kl * (experience.logp - experience.column("logp_ref")) * mask
        if self.to_go:
            ends = experience.terminal, experience.truncated
            to_go = returns.discounted_returns(experience.reward - penalty, mask, *ends, self.discount)
            return experience.add({"advantage": (to_go - greedy.unsqueeze(1)) * mask})
        ahead = (groups.outcome(experience) - greedy).clamp(-self.limit, self.limit).unsqueeze(1)
        left = mask.flip(1).cumsum(1).flip(1).to(penalty.dtype)
        return experience.add({"advantage": (self.discount**left * ahead - penalty) * mask})


def single(preset: Preset = LANGUAGE, factor: int = 8) -> Recipe:
    """REINFORCE without a baseline: one answer to each of `factor` times as many prompts, a mean over decisions."""
    base = recipes.reinforce(preset)
    assert base.rollout is not None
    more = base.set("group_size", 1).set("num_starts", factor * base.rollout.num_starts)
    return with_policy(replace(more, credit=(OutcomeCredit(Constant()),)), "none", PolicyGradient(trust=NoTrust()))


def recipe(preset: Preset = LANGUAGE, credit: AgainstGreedy = AgainstGreedy()) -> Recipe:
    """Returns REINFORCE with the reward of the greedy answer as baseline."""
    base = single(preset, 4)
    assert base.rollout is not None
    copies = {"reference": Copy(of="actor")}
    return replace(base, name="remax", rollout=WithGreedy(base.rollout), credit=(credit,), copies=copies)


TO_GO = partial(recipe, credit=AgainstGreedy(discount=1.0, to_go=True))


METHOD = Method(
    paper="arXiv:2310.10505",
    recipe=recipe,
    family="policy gradient",
    base=recipes.reinforce,
    variants={"remax-to-go": TO_GO, "none": single},
    departures=(
        "half as many sampled answers as the base, so that as many are generated; the paper has one batch of prompts",
        "no cosine schedule and no weight decay; the learning rate is the preset's",
        "not measured: variance of the gradient per generated answer; the area under the true score stands for it",
    ),
    results=(
        "one design was tried; there rloo with two samples is ahead of it: 0.69 against 0.64 (3 pilot seeds)",
    ),
)
