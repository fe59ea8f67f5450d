"""kimi-k1.5: regresses log-ratios of answers to centred rewards, pays short right answers, repeats failed prompts.

    loss = mean over groups of mean_i (R_i - mean R - tau s_i)^2 / (2 tau),   s_i = sum_t log pi(y_t) - log pi_old(y_t)
    R = right + 0.5 lambda,   lambda = 1/2 - (n - shortest) / (longest - shortest), at most 0 for a wrong answer

Kimi Team 2025. A step of mirror descent: pi_old is the last iterate, which sampled the answers and is the reference.
At pi_old the gradient is rloo's times (k - 1) / k; later in the batch s pulls back, without a ratio or a clip.
The group's mean stands for tau log Z, so the minimum is the KL optimum only for large tau.
"""

from dataclasses import asdict, replace

import torch

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method
from assay.core.recipe import Recipe
from assay.core.schedules import Delayed
from assay.core.verifier import Verifier
from assay.methods.kimi_k1_5 import claims
from assay.methods.kimi_k1_5.parts import LengthReward, OftenFailed, RestartedAdam
from assay.parts.objectives.regression import RegressLogRatio
from assay.parts.rewards.combine import Weighted, WeightedSum
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.defaults import LANGUAGE, PLACES, Defaults


def recipe(world: Defaults = LANGUAGE, tau: float = 1.0, weight: float = 0.5, epochs: int = 4) -> Recipe:
    base = recipes.rloo(world)
    components = {"verifier": Weighted(Verifier()), "length": Weighted(LengthReward(), Delayed(weight, 0.2))}
    stage = replace(base.stages[0], objective=(RegressLogRatio(tau, reference=False, pairs=False),),
                    optimizer=RestartedAdam(**asdict(world.optimizer), every=epochs))  # fmt: skip
    return replace(base, name="kimi-k1.5", credit=(), rewards=(WeightedSum(components),), curriculum=OftenFailed(),
                   source=FreshSequences(epochs), stages=(stage,))  # fmt: skip


def any_length(world: Defaults = LANGUAGE) -> Recipe:
    """Without the length reward."""
    return recipe(world, weight=0.0)


PULLED = torch.tensor([[0.0875], [-0.1], [0.125], [-0.1375]])

METHOD = Method(
    "arXiv:2501.12599", recipe, worlds=(LANGUAGE,), default_task="thinking", family="policy gradient",
    base=recipes.rloo, variants={"kimi-k1.5-any-length": any_length}, key="kimi-k1.5",
    departures=(
        "tau 1, four steps a batch, length weight 0.5 after a fifth of the run: the report gives no values",
        "no partial rollouts, no stop at repetitions, no easy-to-hard order, no long-to-short stages (mean of weights, "
        "shortest of 8 as data, dpo, a last phase with a lower limit)",
        "generated prompts never repeat, so that only prompts of a file have a success rate to be drawn by",
        "two designs: the first, lengths on `thinking`, was given up for its cost before it had a result",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: claims.gap(recipe()), at_most=1e-9),
        Exact("also where most rewards are negative", lambda: claims.gap(recipe(), lower=0.5), at_most=1e-9),
        Exact("at the sampling policy it is rloo's times (k - 1) / k", lambda: claims.gap_to_rloo(recipe()),
              at_most=1e-9),
        Exact("drifted answers are pulled back", lambda: (claims.pull(recipe(tau=0.5)) - PULLED).abs().max(),
              at_most=1e-6),
        Exact("at tau 0.5 its minimum from (.5, .3, .2) is (.833, .100, .067), not the KL optimum",
              lambda: claims.slope(recipe(tau=0.5), 0.833221, 0.100067, 0.066711), at_most=1e-5),
        Exact("lengths are paid by the formula", lambda: claims.distance_from_formula(recipe()), at_most=1e-6),
        Exact("and not in the first fifth of a run", lambda: claims.paid(recipe(), step=0)[0], equals=1.0),
        Exact("prompts are drawn in proportion to 1 - success", lambda: claims.priority_gap(recipe()), at_most=0.0),
        Exact("every batch begins with a fresh optimizer", lambda: claims.gap_to_fresh(recipe()), equals=0.0,
              tolerance=0.0),
        Measured("spends fewer tokens for a right answer than without the length reward, where waiting is free", "",
                 lambda seed: claims.cost(recipe(PLACES), seed), lambda seed: claims.cost(any_length(PLACES), seed),
                 expect=Expect.BELOW, seeds=10, minutes=3.0, looks=2),
    ),
    mutants=(
        Edit("a short wrong answer is paid", LengthReward.rescored, "worth.clamp(max=0.0)", "worth"),
        Edit("long answers are paid", LengthReward.rescored, "length - shortest", "-negative - length"),
        Edit("solved prompts come back", OftenFailed.shares, "1.0 - state", "state"),
        Edit("repeated visits share a start", OftenFailed.__call__, "len(visits) * visits[prompt]", "0"),
        Edit("the optimizer is kept", RestartedAdam.step, "< self.every", "< torch.inf"),
    ),
)  # fmt: skip
