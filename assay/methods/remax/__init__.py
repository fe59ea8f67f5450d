"""remax: REINFORCE with the reward of the greedy answer as baseline, one sample and one greedy answer a prompt.

    loss = -mean_t ret_t log pi(y_t),   ret_t = 0.99^(T - t) clip(R - R_greedy, -5, 5) - 0.05 log(pi(y_t) / pi_ref(y_t))

Li et al. 2023. No critic, no ratio, one update a batch. The baseline does not depend on the sample, so the gradient
stays unbiased, and a constant of the prompt in the rewards cancels. It is not always a gain: with rewards 0 and 1 a
wrong greedy answer leaves plain REINFORCE, and a right one can raise the variance (numbers in the claims). `to-go` has
the KL terms of all later decisions, without discount: their gradient is that of KL(pi || ref).
"""

from dataclasses import replace
from functools import partial

from assay import recipes
from assay.claims import Area, Edit, Exact, Measured, Method, probes, same_gradient
from assay.core.recipe import Copy, Recipe
from assay.methods.remax import claims
from assay.methods.remax.claims import FLAT, FLAT_WRONG, PEAKED, mean, variance
from assay.methods.remax.credit import AgainstGreedy
from assay.parts.credit.outcome import Constant, OutcomeCredit
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import NoTrust
from assay.parts.rollouts.greedy import WithGreedy
from assay.recipes.defaults import LANGUAGE, PLACES, Defaults
from assay.recipes.group import with_policy


def single(world: Defaults = LANGUAGE, factor: int = 8) -> Recipe:
    """REINFORCE without a baseline: one answer to each of `factor` times as many prompts, a mean over decisions."""
    base = recipes.reinforce(world)
    assert base.rollout is not None
    more = base.set("group_size", 1).set("num_starts", factor * base.rollout.num_starts)
    return with_policy(replace(more, credit=(OutcomeCredit(Constant()),)), "none", PolicyGradient(trust=NoTrust()))


def recipe(world: Defaults = LANGUAGE, credit: AgainstGreedy = AgainstGreedy()) -> Recipe:
    base = single(world, 4)
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
        "one design was tried; there rloo with two samples is ahead of it: 0.69 against 0.64 (3 pilot seeds)",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, claims.loss_by_hand, claims.greedy_sequences),
        same_gradient("that of the sums over later decisions is theirs", TO_GO,
                      partial(claims.loss_by_hand, to_go=True), claims.greedy_sequences),
        Exact("greedy answers do not learn, and their tokens are counted",
              lambda: probes.greedy_gap(recipe(), (1.0, 0.0, 0.5), (0, 1, 2)), equals=0.0),
        Exact("unbiased: the expected step is that without a baseline", lambda: max(
              probes.distance(mean(TO_GO(), one), mean(single(), one)) for one in (PEAKED, FLAT_WRONG)), at_most=1e-12),
        Exact("and equals pi (R - mean R)", lambda: mean(TO_GO(), PEAKED)[0], equals=0.081),
        Exact("peaked, greedy right: variance, 0.00704 without a baseline", lambda: variance(TO_GO(), PEAKED),
              equals=0.13074, tolerance=1e-5),
        Exact("flat, greedy right: variance, 0.15310 without", lambda: variance(TO_GO(), FLAT), equals=0.29230,
              tolerance=1e-5),
        Exact("flat, greedy wrong: variance, the same without", lambda: variance(TO_GO(), FLAT_WRONG), equals=0.17098,
              tolerance=1e-5),
        Exact("a constant in the rewards changes nothing",
              lambda: abs(variance(TO_GO(), FLAT, 2.0) - variance(TO_GO(), FLAT)), at_most=1e-12),
        Measured("where rewards have an offset of the prompt it learns faster than without a baseline, at equally many "
                 "generated answers: mean true score", "judge", recipe(PLACES, AgainstGreedy(1.0, kl=0.0)),
                 single(PLACES), Area("true_score"), seeds=10, minutes=6.0, steps=60, looks=2),
    ),
    mutants=(
        Edit("the last decision is not discounted", AgainstGreedy.apply, "self.discount**left",
             "self.discount**(left - 1)"),
        Edit("samples instead of the greedy answer", WithGreedy.__call__, "greedy=True", "greedy=False"),
        Edit("greedy tokens are free", WithGreedy.__call__, "scene.log(DISCARDED, float(greedy.mask.sum()))", "pass"),
    ),
)  # fmt: skip
