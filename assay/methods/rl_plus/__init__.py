"""rl-plus: adds demonstrations to the groups, weighted by multiple importance sampling, more where unlikely.

    loss = mean_i 1/|y_i| sum_t { -min(rho_t A_i, clip(rho_t) A_i)         own answers
                                { -r_t (1 - pi(e_t))^0.5 A_i               demonstrations e
    r_t = 2 pi(e_t) / (pi_old(e_t) + pi_other(e_t)),   pi_other = (pi_old + uniform) / 2

Dong et al. 2025. What the policy never samples cannot be reinforced: grpo sharpens and does not reach beyond its
start. A demonstration enters its group's mean; the balanced ratio needs no model of its author, and has little
variance.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Area, Exact, Final, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.rl_plus.claims import distance_from_demonstrations, gap_to_formula
from assay.methods.rl_plus.objectives import HybridPolicy
from assay.methods.rl_plus.rollout import WithDemonstrations
from assay.parts.aggregations import SequenceMean
from assay.parts.objectives.trust import Clip
from assay.recipes.defaults import EVERY, LANGUAGE, PLACES, Defaults
from assay.recipes.group import with_policy


def mixed(world: Defaults = LANGUAGE) -> Recipe:
    """Returns grpo with demonstrations of recorded probability 1: naive importance sampling."""
    assert world.episodes is not None
    return replace(recipes.grpo(world), name="grpo-mixed", rollout=WithDemonstrations(world.episodes))


def recipe(world: Defaults = LANGUAGE, focus: float = 0.5, uniform: float = 0.0) -> Recipe:
    """Returns grpo with demonstrations by the balanced ratio; `uniform` 1 is the released code, 0 the paper."""
    return with_policy(mixed(world), "rl-plus", HybridPolicy(Clip(), focus, uniform, SequenceMean()))


METHOD = Method(
    "arXiv:2508.00222", recipe, EVERY, default_task="countdown",
    family="guidance",
    base=recipes.grpo,
    variants={"grpo-mixed": mixed},
    departures=(
        "eight own answers and one demonstration in a group instead of seven and one",
        "the uniform policy's probability is 1 / |V|, as in the paper; 1 in the released code (`uniform`)",
        "own answers as in the paper (clip, deviation, mean within a sequence), which the released script switches off",
    ),
    claims=(
        Exact("off-policy its gradient is the formula's, with 1 / |A| as the uniform policy",
              lambda: gap_to_formula(recipe()), at_most=1e-9),
        Exact("a group is 8 own answers and the task's demonstration",
              lambda: distance_from_demonstrations(recipe()), equals=0.0),
        Measured("where the start is right once in 100,000 it is right more often than grpo", "lock:digits=5",
                 recipe(PLACES), recipes.grpo(PLACES), Final("pass_rate"), margin=0.3, seeds=5, minutes=3.0, steps=100),
        Measured("there it learns faster than naive importance sampling of the demonstrations: mean pass rate",
                 "lock:digits=5", recipe(PLACES), mixed(PLACES), Area("pass_rate"), seeds=5, minutes=9.0, steps=100,
                 looks=4),
    ),
)  # fmt: skip
