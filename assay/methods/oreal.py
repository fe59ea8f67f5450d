"""oreal: imitates one right answer of each group and suppresses one wrong one, at tokens that an outcome model marks.

    loss = sum_right -A w+_t log pi(y_t) / (right tokens) + 1/2 sum_wrong -A w-_t log pi(y_t) / (wrong tokens) + 0.01 k3
    A = r - mean of the others' r, r = +-1;   w+_t = max(0, 2 sigmoid(m_t) - 1), w-_t = max(0, 1 - 2 sigmoid(m_t))

Lyu et al. 2025. m_t is the mean up to t of a token model's scores, whose mean over the answer is fitted to the outcome
by cross-entropy at the same time. A right answer of the best of N has the distribution of pi given right for every N,
so that imitating one is enough; wrong ones need a smaller weight for consistent gradients. A fresh token model gives
no weight, so it is trained alone first.

Axes: B sequences, T decisions.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, Aggregation, Copy, CreditWeight, Experience, Method, Need, Phase, Preset, Recipe
from assay.method import Stage, recipes
from assay.parts import Column, Constant, KlToReference, LeaveOneOut, Logistic, NoTrust, OfState, OutcomeCredit, PairUp
from assay.parts import PolicyGradient, RewardToGo, Reweigh, RightOrWrong, SequenceMean, Td


@dataclass(frozen=True)
class MeanOfAnswer(OfState):
    """The mean of a state critic's outputs over the row's decisions, the same at each of them."""

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        """Returns means [B, T]."""
        score: Tensor = critic(rows.context)
        mean = (score * rows.mask).sum(1) / rows.mask.sum(1).clamp(min=1)
        return mean.unsqueeze(1).expand_as(score)


@dataclass(frozen=True)
class TokenWeights(CreditWeight):
    """clamp(2 sigmoid(m_t) - 1, 0, 1) where the advantage is positive, `wrong` * clamp(1 - 2 sigmoid(m_t), 0, 1) where
    it is not; m_t is the mean of the critic's outputs at the decisions up to t, each before its token was seen.

    At every decision one of the two is 0. Degenerate: a critic of zeros, such as a fresh head, gives no credit at all.
    """

    wrong: float = 0.5
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        """Returns the weight of each decision, [B, T]."""
        mask = experience.mask
        running = (experience.column("value") * mask).cumsum(1) / mask.cumsum(1).clamp(min=1)
        lean = 2.0 * running.sigmoid() - 1.0
        return torch.where(advantage_BT > 0, lean.clamp(min=0.0), self.wrong * (-lean).clamp(min=0.0))


@dataclass(frozen=True)
class MeanOfChosen(Aggregation):
    """The mean over all decisions of rows whose `chosen` is `sign`: right and wrong answers are counted apart."""

    sign: float = 1.0
    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """Returns the mask of these rows."""
        return batch.weight * (batch.column("chosen") == self.sign).unsqueeze(1)

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of their decisions."""
        return self.weigh(batch).sum()


def recipe(preset: Preset = LANGUAGE, alone: int = 10, wrong: float = 0.5) -> Recipe:
    """`alone` is the number of steps in which only the token model is trained."""
    fit = Td(Column("return"), Logistic(), MeanOfAnswer("value"), SequenceMean())
    tokens = Stage("tokens", trains=("value",), critic=(fit,), optimizer=preset.optimizer)
    both = tuple(PolicyGradient(trust=NoTrust(), aggregate=MeanOfChosen(sign)) for sign in (1.0, -1.0))
    policy = Stage("policy", trains=("actor",), objective=both, regularizers=(KlToReference(0.01),),
                   optimizer=preset.optimizer)  # fmt: skip
    advantage = OutcomeCredit(LeaveOneOut(), Constant(0.5))  # of outcomes -1 and 1
    base = replace(
        recipes.rloo(preset), name="oreal", critics={"value": preset.value}, copies={"reference": Copy(of="actor")},
        credit=(RightOrWrong(), RewardToGo(), advantage, PairUp(), Reweigh(TokenWeights(wrong))),
        stages=(policy, tokens),
    ).set("group_size", 16)  # fmt: skip
    first = Phase("tokens", replace(base, stages=(tokens,), copies={}), alone, {"actor": "actor", "value": "value"})
    return replace(base, before=(first,))


def right_only(preset: Preset = LANGUAGE) -> Recipe:
    """Wrong answers are dropped: imitation of the right ones."""
    return recipe(preset, wrong=0.0)


METHOD = Method(
    paper="arXiv:2502.06781",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="scratch",
    family="credit assignment",
    base=recipes.rloo,
    variants={"oreal-right": right_only},
    departures=(
        "an outcome above 1/2 counts as right, so that r = +-1 and labels 0 and 1 hold for graded rewards too",
        "the kept answers are the first right and the first wrong one: samples of a group are exchangeable",
        "the token model is a critic of its own, with the actor's rate and no schedule; top-p is 1 and prompts are not "
        "repeated by pass rate; the released code is the definition of the loss",
    ),
    pilots=(
        "one design of the token model's claim was tried; on short answers a token is hardly weighed, since m_t has "
        "not seen it",
    ),
)
