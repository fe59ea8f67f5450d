"""oreal: imitates one right answer of each group and suppresses one wrong one, at tokens that an outcome model marks.

    loss = sum_right -A w+_t log pi(y_t) / (right tokens) + 1/2 sum_wrong -A w-_t log pi(y_t) / (wrong tokens) + 0.01 k3
    A = r - mean of the others' r, r = +-1;   w+_t = max(0, 2 sigmoid(m_t) - 1), w-_t = max(0, 1 - 2 sigmoid(m_t))

Lyu et al. 2025. m_t is the mean up to t of a token model's scores, whose mean over the answer is fitted to the outcome
by cross-entropy at the same time. A right answer of the best of N has the distribution of pi given right for every N,
so that imitating one is enough; wrong ones need a smaller weight for consistent gradients. A fresh token model gives
no weight, so it is trained alone first.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method
from assay.core.recipe import Copy, Phase, Recipe, Stage
from assay.methods.oreal import claims
from assay.methods.oreal.parts import MeanOfAnswer, MeanOfChosen, TokenWeights
from assay.parts.aggregations import SequenceMean
from assay.parts.credit.outcome import Constant, LeaveOneOut, OutcomeCredit
from assay.parts.credit.reweigh import Reweigh
from assay.parts.credit.shaping import PairUp
from assay.parts.credit.temporal import RewardToGo
from assay.parts.critics.td import Td
from assay.parts.fits.logistic import Logistic
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import NoTrust
from assay.parts.regularizers.divergence import KlToReference
from assay.parts.targets.recorded import Column
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE, alone: int = 10, wrong: float = 0.5) -> Recipe:
    """`alone` is the number of steps in which only the token model is trained."""
    fit = Td(Column("return"), Logistic(), MeanOfAnswer("value"), SequenceMean())
    tokens = Stage("tokens", trains=("value",), critic=(fit,), optimizer=world.optimizer)
    both = tuple(PolicyGradient(trust=NoTrust(), aggregate=MeanOfChosen(sign)) for sign in (1.0, -1.0))
    policy = Stage("policy", trains=("actor",), objective=both, regularizers=(KlToReference(0.01),),
                   optimizer=world.optimizer)  # fmt: skip
    advantage = OutcomeCredit(LeaveOneOut(), Constant(0.5))  # of outcomes -1 and 1
    base = replace(
        recipes.rloo(world), name="oreal", critics={"value": world.value}, copies={"reference": Copy(of="actor")},
        credit=(RewardToGo(), advantage, PairUp(), Reweigh(TokenWeights(wrong))), stages=(policy, tokens),
    ).set("group_size", 16)  # fmt: skip
    first = Phase("tokens", replace(base, stages=(tokens,), copies={}), alone, {"actor": "actor", "value": "value"})
    return replace(base, before=(first,))


def right_only(world: Defaults = LANGUAGE) -> Recipe:
    """Wrong answers are dropped: imitation of the right ones."""
    return recipe(world, wrong=0.0)


SCORES, WEIGHTS = (2.0, -1.0, -3.0, 1.0), torch.tensor([[0.761594, 0.244919, 0, 0], [0, 0, 0.321513, 0.124353]])

METHOD = Method(
    "arXiv:2502.06781", recipe, worlds=(LANGUAGE,), default_task="scratch", family="credit assignment",
    base=recipes.rloo, variants={"oreal-right": right_only},
    departures=(
        "the kept answers are the first right and the first wrong one: samples of a group are exchangeable",
        "the token model is a critic of its own, with the actor's rate and no schedule; top-p is 1 and prompts are not "
        "repeated by pass rate; the released code is the definition of the loss",
        "no claim on scores: on the testbeds' short answers a token is hardly weighed, since m_t has not seen it; one "
        "design was tried",
    ),
    claims=(
        Exact("its gradients are those of the formulas", lambda: claims.gap(recipe()), at_most=1e-9),
        Exact("without wrong answers, too", lambda: claims.gap(right_only(), wrong=0.0), at_most=1e-9),
        Exact("the first phase is the token model's alone", lambda: claims.warm_up_gap(recipe()), at_most=1e-9),
        Exact("weights of tokens with scores 2, -1, -3, 1", lambda: (
              claims.weights(TokenWeights(1.0), SCORES) - WEIGHTS).abs().max(), at_most=1e-6),
        Exact("4 of 16 right: advantages 1.6 and -0.533", lambda: claims.advantage_gap(recipe()), at_most=1e-6),
        Exact("the kept right answer has the distribution of pi given right, for groups of 2 and 3",
              lambda: max(claims.distance_from_posterior(recipe(), size) for size in (2, 3)), at_most=1e-9),
        Measured("the token model ranks tokens after the first wrong key of a wrong answer below those before it, at "
                 "equal places: AUC above 0.7", "", lambda seed: claims.token_auc(recipe(BIGRAMS), seed), 0.7,
                 seeds=10, minutes=2.0, looks=2),
    ),
    mutants=(
        Edit("all tokens in one denominator", MeanOfChosen.count, "self.weigh(batch)", "batch.weight"),
        Edit("the mean of the whole answer", TokenWeights.__call__, ".cumsum(1) / mask.cumsum(1).clamp(min=1)",
             ".sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)"),
        Edit("wrong answers count full", recipe, "TokenWeights(wrong)", "TokenWeights(2 * wrong)"),
        Edit("outcomes 0 and 1", recipe, "Constant(0.5)", "Constant(1.0)"),
        Edit("each token is fitted", MeanOfAnswer.__call__, "mean.unsqueeze(1).expand_as(score)", "score"),
    ),
)  # fmt: skip
