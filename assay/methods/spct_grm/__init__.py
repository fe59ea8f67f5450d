"""spct-grm: a judge that is a grpo policy; it scores responses, and several of its judgements are summed.

    reward = +1 if the score of the best response > every other score, else -1;   A = (r - mean) / std, groups of 4
    vote: S*_i = sum_k S_ik over k judgements, the order of the responses shuffled for each;   the rest is grpo

Liu et al. 2025 (DeepSeek-GRM). A judge that writes before it scores can be sampled several times, a scalar reward model
cannot. A tie loses in training; in a vote it is broken by the shuffled order.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, probes, same_gradient
from assay.core.recipe import Recipe
from assay.core.record import Draw
from assay.methods.spct_grm import claims
from assay.parts.aggregations import SequenceMean
from assay.parts.regularizers.divergence import KlToReference
from assay.parts.rewards.function import FromFunction
from assay.parts.rewards.ranking import RightRanking, is_right
from assay.parts.rollouts.episodes import Episodes
from assay.recipes.defaults import LANGUAGE, Defaults
from assay.recipes.group import with_regularizers
from assay.tasks.language.judging import judging
from assay.tasks.language.votes import Vote, mapped_back


def recipe(world: Defaults = LANGUAGE, kl: float = 0.08) -> Recipe:
    rollout, reward = Episodes(num_starts=32, group_size=4), FromFunction(RightRanking())
    judge = replace(recipes.grpo(world), name="spct-grm", rollout=rollout, rewards=(reward,))
    return with_regularizers(judge, KlToReference(kl, aggregate=SequenceMean()))


METHOD = Method(
    paper="arXiv:2504.02495",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="judging",
    family="preference",
    base=recipes.grpo,
    mutants=(
        Edit("a tie wins", is_right, "scores[answer - 1] > score", "scores[answer - 1] >= score"),
        Edit("the first response is best", is_right, "place != answer - 1", "place != 0"),
        Edit("0 for a wrong ranking", RightRanking.__call__, "else self.wrong", "else 0.0"),
        Edit("orders are not mapped back", mapped_back, "order.index(response)", "response"),
        Edit("the smallest meta scores are kept", Vote.total, "-meta[k]", "meta[k]"),
        Edit("one order for all judgements", Vote.orders, "np.arange(self.samples)[:, None]",
             "0 * np.arange(self.samples)[:, None]"),
        Edit("another weight of the KL", recipe, "KlToReference(kl,", "KlToReference(0.001,"),
    ),
    departures=(
        "judgements are scores alone: a small policy writes no principles and no critique",
        "the cold start is supervised warm-up on demonstrations, without rejection and hinted samples",
        "a vote samples at temperature 1 instead of 0.5; its meta scores are given, no meta scorer is trained",
        "easy items are not removed beforehand; clip 0.2 and the k3 estimator of KL are assumed",
    ),
    claims=(
        Exact("a strictly higher score for the best wins; ties, unreadable and too many scores lose; a single response "
              "must be scored as labelled",
              lambda: probes.table_gap(recipe(), claims.TASK, claims.RULE, cut=[0], faults=[8]), equals=0.0),
        same_gradient("its gradient is grpo's with 0.08 k3 to the reference in each sequence",
                      lambda: replace(recipe(), rewards=()), claims.loss_by_hand),
        Exact("groups are four judgements of a prompt", lambda: claims.group_size(recipe()), equals=4.0),
        Exact("figure 3 sums to (17, 25), filtered to (5, 13); a loud judgement outvotes two",
              claims.vote_errors, equals=0.0),
        Exact("with a bias for the first place larger than the margin, in orders of their own 256 judgements are right",
              lambda: float(Vote(256).right(judging(), claims.biased, range(16), Draw(3)).mean()), at_least=0.9),
        Measured("pair accuracy of 32 summed judgements is at least 0.03 above that of one", "",
                 lambda seed: claims.gain_of_vote(recipe(), seed), 0.03, seeds=5, minutes=3.0),
    ),
)  # fmt: skip
