"""think-rm: the advantage of a group is the mean verdict of its pairwise matches; no score is fitted.

    A_i = mean_j d_ij / sqrt(sum_ij d_ij^2 / (2 G (G - 1)) + 1e-6),   d_ij = -d_ji: the judge's verdict on i and j
    then grpo's clipped loss, and 1e-4 k3 to the reference;   think-rm:judge trains the judge itself, by grpo

Hong et al. 2025. A judge that compares two answers gives no score of one; a score fitted to its verdicts holds for the
answers that it was fitted to. Where a score explains all verdicts, d_ij = r_i - r_j, the advantage is grpo's.
"""

from dataclasses import replace
from functools import partial

from assay import recipes
from assay.claims import Edit, Exact, Expect, Final, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.methods.think_rm import claims
from assay.methods.think_rm.parts import PairwiseCredit, Refitted
from assay.parts.aggregations import SequenceMean
from assay.parts.regularizers.divergence import KlToReference
from assay.parts.rewards.function import FromFunction
from assay.parts.rewards.judges import FunctionJudge, OutcomeJudge, PairwiseJudge, margins
from assay.parts.rewards.ranking import RightRanking
from assay.recipes.defaults import LANGUAGE, PLACES, Defaults
from assay.recipes.group import with_regularizers
from assay.tasks.testbeds.language.rivals import FittedFirst, Rivals

KL = KlToReference(1e-4, aggregate=SequenceMean())


def recipe(world: Defaults = LANGUAGE, judge: PairwiseJudge = OutcomeJudge(), graded: bool = False) -> Recipe:
    credit = PairwiseCredit(judge, graded)
    return with_regularizers(replace(recipes.grpo(world), name="think-rm", credit=(credit,)), KL)


def of_judge(world: Defaults = LANGUAGE) -> Recipe:
    """Trains the judge itself, by grpo: 1 if the best response is strictly first, else 0."""
    reward = FromFunction(RightRanking(wrong=0.0))
    return with_regularizers(replace(recipes.grpo(world), name="think-rm:judge", rewards=(reward,)), KL)


RIVALS = Rivals(lead=0.2)
JUDGED = recipe(PLACES, FunctionJudge(RIVALS))
SCORED = with_regularizers(replace(recipes.grpo(PLACES), rewards=(FromFunction(FittedFirst(RIVALS)),)), KL)
REFITTED = replace(SCORED, rewards=(Refitted(FunctionJudge(RIVALS)),))

METHOD = Method(
    paper="arXiv:2505.16265",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="judging",
    family="preference",
    base=recipes.grpo,
    variants={"graded": partial(recipe, graded=True), "judge": of_judge},
    mutants=(
        Edit("one order of a pair", FunctionJudge.scores, "two_numbers(self.function(b, a))", "forth[::-1]"),
        Edit("a match counts for one side", margins, "above - above.T", "above"),
        Edit("the mean of the others", PairwiseCredit.apply, "verdict.mean(1)", "verdict.sum(1) / (len(rows_G) - 1)"),
        Edit("-1 for a wrong judgement", of_judge, "wrong=0.0", "wrong=-1.0"),
    ),
    departures=(
        "both orders of a pair are asked and their scores averaged; the released code asks one order",
        "the judge is a program, a user's function or a model that scores; none thinks before it",
        "verdicts are signs or graded; the released binary path divides them by the length of what the judge wrote",
        "judgements are scores alone; there is no warm-up on long traces, and no half reward for a graded verdict",
        "groups and learning rates are the preset's, 8 and 3e-4 instead of 4 and 2e-6",
        "pilots of the measured claims on seeds 900 to 902; there the refitted score had 0.438, this method 0.443",
    ),
    claims=(
        same_gradient("its gradient is grpo's with signs of all matches, and 1e-4 k3", recipe, claims.loss_by_hand),
        same_gradient("graded, it is grpo's with rewards standardised in the group", partial(recipe, graded=True),
                      partial(claims.loss_by_hand, graded=True)),
        Exact("advantages are those by hand: orders, members exchanged, opposite verdicts, ties, cycles, a group of "
              "one; a judge that always says first gives 0", lambda: claims.gap_to_table(recipe), at_most=1e-4),
        Exact("a judge earns 1 if the best response is strictly first, else 0",
              lambda: probes.table_gap(of_judge(), claims.JUDGED, claims.RULE), equals=0.0),
        same_gradient("its gradient is grpo's with 1e-4 k3", lambda: replace(of_judge(), rewards=()),
                      lambda seen: by_hand.grpo_loss(seen) + claims.penalty_by_hand(seen)),
        Measured("where no score explains the judge, its win rate against the answer that beats it most often is 0.02 "
                 "above that of grpo on a Bradley-Terry score fitted first", "judge", JUDGED, SCORED,
                 claims.WinRate(RIVALS, worst=True), margin=0.02, seeds=6, minutes=4.0, steps=100),
        Measured("and that against the start, to which the score was fitted, is lower", "judge", JUDGED, SCORED,
                 claims.WinRate(RIVALS), expect=Expect.BELOW, seeds=6, minutes=4.0, steps=100),
        Measured("a Bradley-Terry score refitted to every group does as well against the worst rival, within 0.02",
                 "judge", JUDGED, REFITTED, claims.WinRate(RIVALS, worst=True), expect=Expect.WITHIN, margin=0.02,
                 seeds=6, minutes=5.0, steps=100),
        Measured("with a judge of noise 0.5 its true score with graded verdicts is above that with signs",
                 "judge:noise=0", recipe(PLACES, OutcomeJudge(0.5), True), recipe(PLACES, OutcomeJudge(0.5)),
                 Final("true_score"), seeds=8, minutes=2.0, steps=60),
    ),
)  # fmt: skip
