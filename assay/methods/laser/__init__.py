"""laser: grpo plus a squared loss that makes the log-probability of one spare token after the answer its reward.

    r_s = 0.1 (log pi(z | x, y) + 23);   loss = grpo + 0.1 mean_i w_i (r_s,i - r_i)^2,  w balances right and wrong
    in the second half A <- 0.9 A + 0.1 A_s,  A_s of clamp(r_s, 0, 1), where that differs in the group

Yang et al. 2025. The reward that a policy would have to be optimal for is, up to a constant, the log-ratio of a fixed
token to a reference; so the policy can learn to say by one more token how good its answer is. The token is in no text
and is never sampled.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.core.schedules import Delayed
from assay.core.slots import Schedule
from assay.methods.laser import claims
from assay.methods.laser.score import Balanced, Blend, SelfReward, SpareToken, balance, blended
from assay.methods.laser.silent import SilentDecoder, WithoutToken
from assay.recipes.defaults import LANGUAGE, Defaults

SMALL = SpareToken(-1, 0.25, -8.0)
"""For a small network, whose log pi(z) is about -8 at the start: 0 there, 1 at -4."""


def recipe(
    world: Defaults = LANGUAGE, spare: SpareToken = SpareToken(), share: float | Schedule = Delayed(0.1, 0.5)
) -> Recipe:
    base = recipes.grpo(world)
    stage = replace(base.stages[0], regularizers=(SelfReward(spare),))
    assert base.rollout is not None
    return replace(
        base,
        name="laser",
        rollout=WithoutToken(base.rollout, spare.token),
        credit=(*base.credit, Blend(spare, share), Balanced()),
        stages=(stage,),
    )


METHOD = Method(
    paper="arXiv:2510.14943",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="sorting-3",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "the advantage is blended after half of the run instead of after 200 steps",
        "weights of the classes are those of the whole batch, and so is the mean",
        "on a GPU answers are decoded token by token, since the sampler cannot leave out a token",
        "in the measured claim r_s = (log pi + 8) / 4: a small network starts with log pi(z) about -8",
        "one design was tried: AUC 0.65 after 30 steps on one pilot seed, 0.98 of the mean log-probability; "
        "whether r_s needs more than the claim's 60 steps was not tried",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: probes.formula_gap(
              recipe(spare=SpareToken(3), share=0.1), probes.verified(), claims.loss_by_hand), at_most=1e-9),
        Exact("before the second half advantages are grpo's", lambda: probes.formula_gap(
              recipe(spare=SpareToken(3)), probes.verified(), lambda seen: claims.loss_by_hand(seen, share=0.0)),
              at_most=1e-9),
        Exact("the blend of scores .9, .3, .1, 0", lambda: (claims.mixed([0.9, 0.3, 0.1, 0.0]) - torch.tensor(
              [1.49264, -0.45620, -0.50581, -0.53062])).abs().max(), at_most=1e-5),
        Exact("scores that hardly differ change nothing", lambda: (claims.mixed([0.1, 0.0, 0.0, 0.1]) - torch.tensor(
              [1.5, -0.5, -0.5, -0.5])).abs().max(), equals=0.0),
        Exact("r_s is read one token after the end", lambda: claims.score_error(SpareToken()), at_most=1e-5),
        Exact("the token is never written, log-probabilities are the policy's", lambda: claims.times_written(recipe()),
              at_most=1e-5),
        Measured("its own score tells right answers from wrong ones better (AUC) than their mean log-probability",
                 "sorting-3", recipe(spare=SMALL).set("actor.width", 32).set("actor.layers", 1), 0.0,
                 metric=claims.Separation(SMALL), seeds=10, minutes=6.0, steps=60, warmup=300),
    ),
    mutants=(
        Edit("cut answers too", SpareToken.of, "ends = finished(rows)", "ends = rows.terminal & rows.mask"),
        Edit("not balanced", balance, "ended.sum() / (2.0 * many.double())", "1.0"),
        Edit("blended where scores are equal", blended, "deviation > 0.1", "deviation > 0.0"),
        Edit("the token can be written", SilentDecoder.logits, "changed[:, self.token] = -torch.inf", "pass"),
    ),
)  # fmt: skip
