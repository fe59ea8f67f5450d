"""rlpr: grpo without a verifier, paid by how likely its reasoning makes the reference answer.

    r = 0.9 max(0, B - A0) + 0.1 format;   B = mean_t pi(y*_t | x, own reasoning),  A0 = mean_t pi_start(y*_t | x)
    a group is dropped if std(r) < 0.5 E, E a running mean of such deviations;   the rest is grpo with clip 0.2 / 0.27

Yu et al. 2025. Answers that no rule can verify still have a probability. The start's own probability is taken off, so
that answers it could guess pay nothing; as a constant of the prompt it acts through the floor at 0 alone.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Exact, Measured, Method, same_gradient
from assay.core.recipe import Copy, Recipe
from assay.methods.rlpr import claims
from assay.methods.rlpr.parts import AboveRunningDeviation, ReferenceProbability
from assay.parts.aggregations import SequenceMean
from assay.parts.credit.outcome import GroupDeviation, GroupMean, OutcomeCredit
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip
from assay.parts.rewards.combine import Weighted, WeightedSum
from assay.parts.rewards.likelihood import Reduce, likelihood, mean_probability
from assay.parts.rewards.text import Matches
from assay.recipes.defaults import LANGUAGE, Defaults
from assay.recipes.group import with_policy

FORMAT = "^[^>]*>[^>]+$"
"""Reasoning, the mark once, an answer."""


def recipe(world: Defaults = LANGUAGE, bare: str = "", reduce: Reduce = mean_probability) -> Recipe:
    paid = {
        "reference": Weighted(ReferenceProbability(bare=bare, reduce=reduce), 0.9),
        "format": Weighted(Matches(FORMAT), 0.1),
    }
    base = replace(
        recipes.grpo(world),
        rewards=(WeightedSum(paid),),
        select=AboveRunningDeviation(),
        credit=(OutcomeCredit(GroupMean(), GroupDeviation(1e-6)),),
        copies={"start": Copy("actor")},
    )
    return with_policy(base, "rlpr", PolicyGradient(trust=Clip(0.2, 0.27), aggregate=SequenceMean()))


METHOD = Method(
    paper="arXiv:2506.18254",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="scratch",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "reasoning ends with one mark instead of tags; no penalty of repetition; probabilities are not rounded",
        "A0 is computed from the frozen copy of the start whenever a prompt comes up, which gives the same number",
        "at most three rounds of sampling fill the batch; E moves at each round",
        "in the measured claim A0 is asked after the mark (bare='>'), because demonstrations never omit it",
    ),
    claims=(
        Exact("on networks the reward is 0.9 max(0, B - A0) + 0.1 format, with one softmax for each reference token",
              lambda: claims.reward_error(recipe()), equals=0.0),
        Exact("E starts as the mean of batches 6 to 10, none is dropped before; .30 and .10 pass E = .2, .04 does not",
              lambda: claims.filtered(recipe())[0] != [0, 1] * 11, equals=0.0),
        Exact("then E is .99 E + .01 mean", lambda: claims.filtered(recipe())[1], equals=0.1994667),
        same_gradient("on these rewards its gradient is grpo's with clip 0.2 / 0.27",
                      lambda: replace(recipe(), rewards=()), claims.loss_by_hand),
        Measured("the reward tells right rollouts from wrong ones better (AUC) than with the likelihood of the answer",
                 "", lambda seed: claims.auc_above_likelihood(seed, mean_probability, likelihood), 0.0,
                 seeds=5, minutes=2.0),
    ),
)  # fmt: skip
