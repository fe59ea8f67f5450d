"""rec: REINFORCE on group-centred outcomes with a mask on the ratio instead of importance weights.

    loss = -mean_t (R_i - mean R) * M_t * log pi(a_t)
    M_t = 0 where (A > 0 and rho_t > 1 + high) or (A < 0 and rho_t < 1 - low), else 1

Yao et al. 2025. Requiring r - tau log(pi / pi_old) to be equal in a group has this gradient at pi_old for any
behaviour policy, so clipping acts as regularisation. With importance weights and the deviation it is grpo, with a
penalty OPMD.
"""

from dataclasses import replace
from functools import partial

from assay import recipes
from assay.claims import Area, Edit, Exact, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.methods.rec.claims import loss_by_hand
from assay.methods.rec.credit import DropSurplusNegatives
from assay.methods.rec.objectives import Even, EveryDecision, Importance, Keeps, MaskedScore, OneSide, Weight
from assay.methods.rec.regularizers import KlToBehaviour
from assay.parts.credit.outcome import GroupDeviation, GroupMean, NoScale, OutcomeCredit
from assay.parts.objectives.policy import PolicyGradient
from assay.recipes.defaults import LANGUAGE, STALE, Defaults
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


def gap(variant: str = "", formula: probes.Formula = loss_by_hand) -> float:
    ours = METHOD.variants[variant]() if variant else recipe()
    return probes.formula_gap(ours, probes.sequences(num=128), formula)


VARIANTS = (recipe(STALE), recipe(STALE, weight=Importance()), recipe(STALE, keeps=EveryDecision()))
OURS, WEIGHED, BARE = (one.set("rollout.delay", 40) for one in VARIANTS)

METHOD = Method(
    paper="arXiv:2509.24203",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={
        "rec-is": partial(recipe, weight=Importance()),
        "red-drop": partial(recipe, drop=(DropSurplusNegatives(),)),
        "opmd": partial(recipe, keeps=EveryDecision(), penalty=(KlToBehaviour(),)),
    },
    departures=("dropped samples leave the mean over tokens too",
             "stale: answers of 40 updates ago, where the paper trains 20 updates on one rollout",
             "with parameters shared by all prompts (rank 4) the mask slows learning too; no third design was tried"),
    claims=(
        Exact("off-policy its gradient is the formula's", gap, at_most=1e-9),
        Exact("so is that of rec-is", lambda: gap("rec-is", partial(loss_by_hand, weighted=True)), at_most=1e-9),
        Exact("so is that of opmd", lambda: gap("opmd", partial(loss_by_hand, bounded=False)), at_most=1e-9),
        Exact("so is that of red-drop", lambda: gap("red-drop", partial(loss_by_hand, dropped=True)), at_most=1e-9),
        Measured(
            "from answers of 40 updates ago importance weights do not help: mean pass rate at most 0.01 lower without",
            "stale", OURS, WEIGHED, Area("pass_rate"), margin=-0.01, seeds=5, minutes=2.0, steps=100,
        ),
        Measured(
            "from answers of 40 updates ago it learns faster than without the mask: mean pass rate over the run",
            "stale", OURS, BARE, Area("pass_rate"), seeds=5, minutes=2.0, steps=100,
        ),
    ),
    mutants=(
        Edit("both sides are masked", OneSide.__call__,
             "torch.where(advantage > 0, below, torch.where(advantage < 0, above, below | above))", "below & above"),
        Edit("sides exchanged", OneSide.__call__,
             "torch.where(advantage > 0, below, ", "torch.where(advantage < 0, below, "),
        Edit("importance weights", MaskedScore.__call__, "self.weight(ratio, advantage)", "ratio"),
        Edit("a clip of the value", MaskedScore.__call__, "torch.where(kept, logp, logp.detach())", "logp"),
    ),
)  # fmt: skip
