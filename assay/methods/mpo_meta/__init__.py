"""mpo-meta: ppo against a rubric judge whose rubric a meta-judge rewrites every T steps.

    r = sum_i points_i(y; rubric_v) / attainable maximum of rubric_v,   rubric_(v+1) = meta(rubric_v, m rollouts)

Kim et al. 2025. A fixed rubric is exploited sooner or later: a policy collapsed to titles without an essay. The
meta-judge reads samples with their scores and closes what is exploited; it never sees a gold label.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, by_hand, same_gradient
from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe
from assay.methods.mpo_meta import claims
from assay.methods.mpo_meta.parts import LOOSE, EvolvingRubric, Rubric, limit_exploited, plain_sum, points
from assay.parts.credit.shaping import KlInReward
from assay.parts.rollouts.episodes import Episodes
from assay.recipes.defaults import LANGUAGE, Defaults

NEVER = 10**9


def recipe(world: Defaults = LANGUAGE, rubric: Rubric = LOOSE, every: int = 10) -> Recipe:
    base = recipes.ppo(world)
    return replace(
        base,
        name="mpo-meta",
        rewards=(EvolvingRubric(rubric, every=every),),
        credit=(KlInReward(0.02 / 5), *base.credit),
        copies={"reference": Copy("actor")},
    )


SMALL = replace(LANGUAGE, fragments=Episodes(8, 4), optimizer=Adam(learning_rate=1e-3, clip_norm=1.0))
FIXED = replace(recipe(SMALL, every=NEVER), name="ppo-fixed-rubric")

METHOD = Method(
    paper="arXiv:2504.20157",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="proxy-strings",
    family="preference",
    base=recipes.ppo,
    mutants=(
        Edit("matches beyond the limit are free", points, " - max(0, count - criterion.limit)", ""),
        Edit("loopholes stay open", limit_exploited, "replace(one, limit=1)", "one"),
        Edit("whatever differs with the prompt is closed", limit_exploited, "len(said) == 1", "len(said) >= 1"),
        Edit("the rubric is rewritten at every step", EvolvingRubric.apply, "scene.progress.step // self.every >",
             "scene.progress.step >"),
        Edit("rollouts of all intervals", EvolvingRubric.apply, ", rollouts=[])", ")"),
        Edit("the meta-judge sees faults", EvolvingRubric.keep, "if is_there", "if True"),
        Edit("KL is rewarded", recipe, "KlInReward(0.02 / 5)", "KlInReward(-0.02 / 5)"),
    ),
    departures=(
        "judge and meta-judge are programs, or a user's; the authors ask models of 32B to 72B and merge m rubrics",
        "scores are divided by the version's attainable maximum; scale=plain_sum is the authors' raw sum",
        "the KL coefficient is 0.02 / 5: the authors' first rubric gives 0 to 5 points, ours 0 to 1",
        "no penalty for a missing end token; no clipped value loss; 32 rollouts a rewrite instead of 16 to 20",
    ),
    claims=(
        same_gradient("its gradients are ppo's with 0.004 KL in the reward", lambda: replace(recipe(), rewards=()),
                      lambda seen: by_hand.ppo_of_tokens(by_hand.with_kl(seen, 0.004))),
        Exact("points on content, marks, beyond the limit, cut and faulty rows",
              lambda: claims.reward_error(recipe()), equals=0.0),
        Exact("with T = 3 rows of steps 1 to 7 carry versions 0 0 0 1 1 1 2, the second with a closed loophole",
              lambda: claims.version_errors(recipe(every=3)), equals=0.0),
        Exact("what differs with the prompt is not closed, nor anything if there is one prompt",
              lambda: claims.closed_wrongly(recipe()), equals=0.0),
        Exact("points (3, 4, unreadable) are 7", lambda: claims.unread_sum(recipe()), equals=7.0),
        Exact("ten times the points leave the reward", lambda: claims.tenfold(recipe()), equals=1.0),
        Exact("as a plain sum they make it ten times as large",
              lambda: claims.tenfold(recipe(), plain_sum), equals=10.0, tolerance=1e-4),
        Exact("T longer than the run is ppo with the fixed rubric, bitwise", lambda: claims.fixed_difference(
              recipe(replace(SMALL, fragments=Episodes(2, 2)), every=NEVER)), equals=0.0, tolerance=0.0),
        Exact("the meta-judge sees texts and the judge's scores, not the gold score, and no faulty row",
              lambda: claims.sees_gold(recipe()), equals=0.0),
        Measured("with two loopholes planted, gold at the end is above that of the fixed rubric", "proxy-strings",
                 recipe(SMALL), FIXED, seeds=5, minutes=4.0, steps=50, warmup=30),
    ),
)  # fmt: skip
