"""direct-advantage-po: regresses the log-ratio of every reasoning step to its gain in success probability, offline.

    loss = mean over steps of (A_h - beta sum_{t in h} (log pi(y_t) - log pi_ref(y_t)))^2 / (2 beta)
    A_h = V(after step h) - V(before it),   V: success probability of partial answers, by cross-entropy on outcomes

Liu et al. 2024, called DAPO there; not the method with clip-higher, which is `dapo` here. A step is a line of text; V
is trained and read where steps begin. Answers are the reference's; the critic is trained first and then frozen. The
minimum is not normalised: a small beta does not reach the KL optimum.

Axes: B sequences, T decisions.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.method import LANGUAGE, Copy, Experience, Loss, Method, Need, Objective, Phase, Prepare, Preset, Recipe
from assay.method import Scene, Stage, State, View, recipes
from assay.parts import Column, Logistic, OfState, RegressLogRatio, RewardToGo, SegmentGae, Td, TextSteps, TokenMean


@dataclass(frozen=True)
class StepStarts(Prepare):
    """Keeps in the mask the first decision of each segment alone: the states before steps, at which a critic learns.

    Degenerate: without segments every row is one.
    """

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `mask`."""
        mask = experience.mask
        segment = mask.any(1, keepdim=True).long().expand_as(mask) if experience.segment is None else experience.segment
        numbered = (segment * mask).cummax(1).values
        return replace(experience, mask=mask & (numbered > pad(numbered[:, :-1], (1, 0))))


@dataclass(frozen=True)
class AsProbability(Prepare):
    """value <- sigmoid(value) at decisions, 0 elsewhere: the success probability of a critic that was fitted by
    cross-entropy. After the last decision, cut or not, nothing is left but the outcome.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})
    reads_shares: ClassVar[bool] = True

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `value`."""
        return experience.add({"value": experience.column("value").sigmoid() * experience.mask})


@dataclass(frozen=True)
class SuccessLabel(RewardToGo):
    """The outcome of the answer, from 0 to 1, as `return` of its decisions: the label of a success probability."""

    reads_shares: ClassVar[bool] = True


@dataclass(frozen=True)
class RegressSteps(Objective):
    """Mean over segments of (A - beta s)^2 / (2 beta): s sums the log-ratio to the reference over the segment's
    decisions, A is their common advantage.

    `RegressLogRatio` has the same residual for whole answers. At the reference the gradient is that of the policy
    gradient of A, for every beta. Degenerate: without segments every row is one.
    """

    beta: float = 0.5
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.REFERENCE})
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    together: ClassVar[str | None] = None
    first_order: ClassVar[bool] = False

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of segments with a decision."""
        return (in_segments(batch.mask.to(batch.reward.dtype), batch) > 0).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the sum over segments."""
        mask, advantage = batch.mask, batch.column("advantage").detach()
        size = in_segments(mask.to(advantage.dtype), batch)
        moved = in_segments((view.scored.logp - batch.column("logp_ref").detach()) * mask, batch)
        wanted = in_segments(advantage * mask, batch) / size.clamp(min=1)
        residual = torch.where(size > 0, wanted - self.beta * moved, 0.0)
        metrics = {"residual": (residual.detach().abs().sum(), (size > 0).sum())}
        return Loss(residual.square().sum() / (2.0 * self.beta), self.count(batch), metrics)


def in_segments(value_BT: Tensor, batch: Experience) -> Tensor:
    """Returns the sum over the columns of each segment of a row, [B, S]."""
    segment = torch.zeros_like(batch.mask, dtype=torch.long) if batch.segment is None else batch.segment
    num = int(segment.max()) + 1 if segment.numel() else 1
    return value_BT.new_zeros(len(value_BT), num).scatter_add(1, segment, value_BT)


def critic(preset: Preset = LANGUAGE, steps: TextSteps = TextSteps()) -> Recipe:
    """The first phase: the start's own answers, whose outcome is the label of the states before their steps."""
    loss = Td(Column("return"), Logistic(), OfState("value"), TokenMean())
    stage = Stage("value", trains=("value",), critic=(loss,), optimizer=preset.optimizer)
    base = replace(recipes.group_reinforce(preset), name="success", credit=(SuccessLabel(), steps, StepStarts()))
    return replace(base, stages=(stage,), critics={"value": preset.value})


def recipe(
    preset: Preset = LANGUAGE, beta: float = 0.5, steps: TextSteps = TextSteps(), critic_steps: int = 100
) -> Recipe:
    """Returns regression of each step on the gain of a critic, which a first phase trains on reference samples."""
    stage = Stage("steps", trains=("actor",), objective=(RegressSteps(beta),), optimizer=preset.optimizer)
    first = Phase("critic", critic(preset, steps), critic_steps, hands={"actor": "actor", "value": "value"})
    return replace(
        recipes.group_reinforce(preset), name="direct-advantage-po", copies={"reference": Copy(of="actor")},
        behaviour="reference", critics={"value": preset.value}, before=(first,), stages=(stage,),
        credit=(AsProbability(), steps, SegmentGae(1.0, 0.0)),
    )  # fmt: skip


def of_answers(preset: Preset = LANGUAGE, beta: float = 0.5) -> Recipe:
    """Whole answers and centred outcomes of as many samples, without a critic."""
    ours = recipe(preset)
    stage = replace(ours.stages[0], objective=(RegressLogRatio(beta, pairs=False),))
    steps = ours.steps + ours.before[0].steps
    return replace(ours, name="of-answers", stages=(stage,), credit=(), critics={}, before=(), steps=steps)


METHOD = Method(
    paper="arXiv:2412.18279",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="scratch",
    family="credit assignment",
    base=recipes.group_reinforce,
    variants={"direct-advantage-po-answers": of_answers},
    departures=(
        "a step ends with a line break (`separator`), blank lines included; on tasks whose tokens cannot write one, as "
        "all that are built in, it is a span of 5 tokens",
        "a graded outcome, from 0 to 1, is the critic's label as it is: V is then the expected outcome",
        "the label of a partial answer is the outcome of its own continuation (one completion, same minimum as the "
        "share of several), and the generator completes; the last step ends in the outcome, not in the critic",
        "samples are drawn from the fixed reference at every step instead of once; loss over beta; beta 0.5 and 100 "
        "critic steps are not the paper's, whose settings were not found",
        "not measured: scores against dpo and imitation of right answers, on which pilots were far behind; iterated "
        "with the new policy as reference, which the paper names as an option",
    ),
    pilots=(
        "three designs: two on the pass rate on key-decisions:length=8 (0.05 and 0.09, whole answers 0.06 and 0.17, "
        "dpo 0.79; 2 pilot seeds), with a critic that saw no token; the third is on credit",
        "the headline's beta of 0.1: on key-decisions:length=3 steps reached 0.25 and whole answers 0.21 (seed 0, "
        "ranks 0 and 32), with 0.5 both 0.07",
    ),
)
