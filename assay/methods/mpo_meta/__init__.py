"""mpo-meta: ppo against a rubric judge whose rubric a meta-judge rewrites every T steps.

    r = sum_i points_i(y; rubric_v) / attainable maximum of rubric_v,   rubric_(v+1) = meta(rubric_v, m rollouts)

Kim et al. 2025. A fixed rubric is exploited sooner or later: a policy collapsed to titles without an essay. The
meta-judge reads samples with their scores and closes what is exploited; it never sees a gold label.
"""

from dataclasses import replace

from assay import recipes
from assay.claims.claim import Exact, Expect, Measured, Method
from assay.core.recipe import Copy, Recipe
from assay.methods.mpo_meta import claims
from assay.methods.mpo_meta.parts import LOOSE, EvolvingRubric, PlainSum, Rubric
from assay.parts.credit.shaping import KlInReward
from assay.recipes.worlds import LANGUAGE, World

NEVER = 10**9


def recipe(world: World = LANGUAGE, rubric: Rubric = LOOSE, every: int = 10) -> Recipe:
    base = recipes.ppo(world)
    return replace(
        base,
        name="mpo-meta",
        rewards=(EvolvingRubric(rubric, every=every),),
        credit=(KlInReward(0.004), *base.credit),
        copies={"reference": Copy("actor")},
    )


FIXED = replace(recipe(every=NEVER), name="mpo-meta-fixed")
ORACLE = replace(recipe(rubric=claims.CLOSED, every=NEVER), name="mpo-meta-oracle")

METHOD = Method(
    paper="arXiv:2504.20157",
    recipe=recipe,
    worlds=(LANGUAGE,),
    home="proxy-strings",
    departs=(
        "judge and meta-judge are programs, or a user's; the authors ask 32B to 72B models and merge m rubrics into one",
        "scores are divided by the version's attainable maximum; scale=PlainSum() is the authors' raw sum",
        "no penalty for a missing end token; no clipped value loss; 32 rollouts a rewrite instead of 16 to 20",
    ),
    claims=(),
)
