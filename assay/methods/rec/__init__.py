"""rec: REINFORCE on group-centred outcomes with a mask on the ratio instead of importance weights.

    loss = -mean_t (R_i - mean R) * M_t * log pi(a_t)
    M_t = 0 where (A > 0 and rho_t > 1 + high) or (A < 0 and rho_t < 1 - low), else 1

Yao et al. 2025. Requiring r - tau log(pi / pi_old) to be equal in a group has this gradient at pi_old for any
behaviour policy, so clipping acts as regularisation. With importance weights and the deviation it is grpo, with a
penalty OPMD.
"""

from dataclasses import replace
from functools import partial

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.rec.credit import DropSurplusNegatives
from assay.methods.rec.objectives import Even, EveryDecision, Importance, Keeps, MaskedScore, OneSide, Weight
from assay.methods.rec.regularizers import KlToBehaviour
from assay.parts.credit.outcome import GroupDeviation, GroupMean, NoScale, OutcomeCredit
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults
from assay.recipes.group import with_policy


def recipe(
    world: Defaults = LANGUAGE,
    keeps: Keeps = OneSide(),
    weight: Weight = Even(),
    scale: NoScale | GroupDeviation = NoScale(),
    penalty: tuple[KlToBehaviour, ...] = (),
    drop: tuple[DropSurplusNegatives, ...] = (),
) -> Recipe:
    base = with_policy(recipes.grpo(world), "rec", PolicyGradient(trust=MaskedScore(keeps, weight)))
    stage = replace(base.stages[0], regularizers=penalty)
    return replace(base, stages=(stage,), credit=(*drop, OutcomeCredit(GroupMean(), scale)))


OLD_A, NEW_A = torch.tensor([0.0, 0.5, 0.2]), torch.tensor([0.3, -0.4, 0.9])
PULLS = probes.bandit_experience([0, 1, 2, 2, 0, 1], [1.0, 0.0, 1.0, 0.0, 0.3, 0.0], OLD_A)
MOVED = NEW_A.double().log_softmax(-1)[PULLS.action]


def distance_from_pairwise_fit(tau: float = 0.7) -> torch.Tensor:
    """Compares with the slope of sum_ij (s_i - s_j)^2 / (4 tau n^2), s = r - tau log(pi / pi_old), at pi_old."""
    logp = PULLS.logp.clone().requires_grad_()
    s = PULLS.reward - tau * (logp - PULLS.logp)
    (slope,) = torch.autograd.grad((s - s.T).square().sum() / (4 * tau * len(PULLS) ** 2), logp)
    return (slope + probes.decision_weights(recipe(), PULLS, PULLS.logp)).abs().max()


def distance_from_grpo() -> torch.Tensor:
    grpo = recipe(weight=Importance(), scale=GroupDeviation())
    ours, theirs = (probes.decision_weights(one, PULLS, MOVED) for one in (grpo, recipes.grpo()))
    return (ours - theirs).abs().max()


VARIANTS = (recipe(), recipe(weight=Importance()), recipe(keeps=EveryDecision()))
OURS, WEIGHED, BARE = (replace(one, source=FreshSequences(minibatches=16)) for one in VARIANTS)

METHOD = Method(
    paper="arXiv:2509.24203",
    recipe=recipe,
    worlds=EVERY,
    default_task="countdown",
    family="policy gradient",
    base=recipes.grpo,
    variants={
        "rec-is": partial(recipe, weight=Importance()),
        "red-drop": partial(recipe, drop=(DropSurplusNegatives(),)),
        "opmd": partial(recipe, keeps=EveryDecision(), penalty=(KlToBehaviour(),)),
    },
    departures=("dropped samples leave the mean over tokens too", "stale: one rollout in 16 minibatches, not 20"),
    claims=(
        Exact("its gradient is that of the pairwise fit", distance_from_pairwise_fit, equals=0.0),
        Exact("weighed and scaled it is grpo, off-policy too", distance_from_grpo, equals=0.0),
        Measured(
            "with 16 updates a batch importance weights do not help: at most 0.05 worse without them",
            "sorting-5", OURS, WEIGHED, margin=-0.05, seeds=5, minutes=5.0, steps=100, warmup=60,
        ),
        Measured(
            "with 16 updates a batch it scores higher than without the mask",
            "sorting-5", OURS, BARE, seeds=5, minutes=5.0, steps=100, warmup=60,
        ),
    ),
)  # fmt: skip
