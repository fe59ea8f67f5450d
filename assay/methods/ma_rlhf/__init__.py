"""ma-rlhf: ppo with credit on macro actions of several tokens instead of single ones.

    A_k = R_k + V(s_k+1) - V(s_k) + gae_lambda * A_k+1 over macro actions k;  loss = ppo's, a token has its macro's A_k

Chai et al. 2025. Macro actions shorten the path from the outcome back to a decision: credit decays once per macro
action. One token per macro action is ppo, one macro action per sequence REINFORCE with a baseline.
"""

from dataclasses import replace
from functools import partial

from assay import recipes
from assay.claims import Area, Exact, Expect, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.methods.ma_rlhf.claims import bias_with_exact_values, losses_by_hand
from assay.parts.credit.segments import SegmentGae, Spans
from assay.parts.credit.temporal import Whiten
from assay.recipes.defaults import CONTROL, LANGUAGE, PLACES, Defaults


def recipe(world: Defaults = LANGUAGE, length: int = 5) -> Recipe:
    credit = (Spans(length), SegmentGae(world.gae.discount, world.gae.gae_lambda), Whiten())
    return replace(recipes.ppo(world), name="ma-rlhf", credit=credit)


def gap_to_formula() -> float:
    """Returns the larger gap of the recipe as shipped (5 tokens) and of pairs with the discount of control."""
    shipped, pairs = recipe(), recipe(CONTROL, length=2)
    return max(
        probes.formula_gap(shipped, probes.fragments(), partial(losses_by_hand, 5, 1.0, 0.95)),
        probes.formula_gap(pairs, probes.fragments(), partial(losses_by_hand, 2, 0.98, 0.9)),
    )


METHOD = Method(
    paper="arXiv:2410.02743",
    recipe=recipe,
    default_task="sorting",
    family="credit assignment",
    base=recipes.ppo,
    departures=(
        "a macro action's value is that of its first state; the authors' mean over its states biases the gradient",
        "rewards inside a macro action are summed, as in the paper; the authors' code takes their mean",
        "each token has its own ratio, as in the authors' code; the paper writes the macro action's joint ratio",
        "no KL in the reward, whitened advantages, no value clipping: as in ppo here",
        "no parser: macro actions are spans, falling perplexity (FallingPerplexity) or a given column `segment`",
    ),
    claims=(
        Exact("off-policy its gradients are the formula's", gap_to_formula, at_most=1e-9),
        Exact("with exact values the expected gradient is exact", bias_with_exact_values, equals=0.0),
        Measured("where 2 of 32 tokens decide it learns faster than ppo: mean pass rate over the run",
                 "key-decisions:length=32", recipe(PLACES), recipes.ppo(PLACES), Area("pass_rate"), seeds=5,
                 minutes=10.0, steps=40, looks=3),
        Measured("where there are 2 tokens and both decide, it does not: within 0.05", "key-decisions:length=2",
                 recipe(PLACES), recipes.ppo(PLACES), Area("pass_rate"), Expect.WITHIN, margin=0.05, seeds=5,
                 minutes=3.0, steps=40),
    ),
)  # fmt: skip
