"""p3o: pairs of answers are compared by the difference of their rewards; ratios are clipped for each answer.

    maximise 1/2 sum_i min(c_i rho_i, c_i clip(rho_i, 0.8, 1.2)),   c_i = (R_i - R_other) stop_gradient(rho_other)
    R = r - beta log(pi_old(y) / pi_ref(y)),   rho = pi(y) / pi_old(y) of the whole answer

Wu et al. 2023. Rewards of a preference model are defined up to a constant of the prompt; differences are invariant to
it. `joint` clips the log-odds of the pair instead (the paper's V2).
"""

from dataclasses import replace
from functools import partial

import torch

from assay import recipes
from assay.claims import Area, Edit, Exact, Measured, Method, probes, same_gradient
from assay.core.recipe import Copy, Recipe
from assay.methods.p3o import claims
from assay.methods.p3o.objectives import PairGradient
from assay.parts.credit.shaping import KlInReward
from assay.recipes.defaults import LANGUAGE, PLACES, Defaults


def recipe(world: Defaults = LANGUAGE, beta: float = 0.05, *, joint: bool = False) -> Recipe:
    base = recipes.rloo(world)
    stage = replace(base.stages[0], objective=(PairGradient(joint=joint),))
    pairs = replace(base, name="p3o", credit=(KlInReward(beta),), source=world.reuse, stages=(stage,))
    return replace(pairs, copies={"reference": Copy(of="actor")}).set("group_size", 2)


JOINT, PAIRS = partial(recipe, joint=True), partial(probes.sequences, group_size=2)


def slopes(offset: float) -> torch.Tensor:
    """Returns the slopes of complete pairs with a constant of the prompt, a multiple of `offset`, in both rewards."""
    data = PAIRS()
    assert data.group is not None
    last = (data.terminal | data.truncated) * (1.0 + data.group.unsqueeze(1))
    shifted = replace(data, reward=data.reward + offset * last)
    return probes.slopes(replace(recipe(), credit=()), shifted, 0.9 * data.logp)[data.mask.any(1)][:-1]


METHOD = Method(
    paper="arXiv:2310.00212",
    recipe=recipe,
    family="preference",
    base=recipes.rloo,
    variants={"p3o-joint": JOINT},
    departures=(
        "the clip of `joint` is written from knowledge of the paper; inside its range the gradient is the other one's",
        "the KL coefficient is 0.05; the paper sweeps it",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, claims.loss_by_hand, PAIRS),
        same_gradient("that of the joint clip is its formula's", JOINT, claims.joint_by_hand, PAIRS),
        Exact("a constant of the prompt changes nothing", lambda: probes.distance(slopes(0.0), slopes(3.0)),
              at_most=1e-9),
        Measured("where rewards have an offset of the prompt it learns faster than reinforce: mean true score", "judge",
                 recipe(PLACES, beta=0.0), recipes.reinforce(PLACES).set("group_size", 2), Area("true_score"),
                 seeds=10, minutes=6.0, steps=60, looks=2),
    ),
    mutants=(
        Edit("rewards of its own", PairGradient.__call__, "outcome - outcome[partner]", "outcome"),
    ),
)  # fmt: skip
