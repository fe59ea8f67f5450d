"""srpo: a wrong answer with a right sibling is distilled from a teacher that sees it, all others are trained by grpo.

    loss = [sum_others -min(rho A, clip(rho) A) + sum_routed w_t min(rho_t, 2) JS(pi, q_t)] / (number of decisions)
    q_t = a slow copy of the policy after a right answer of the group;   w_t = exp(-beta H(q_t)) / (mean over routed)

Li et al. 2026. Self-distillation of right answers has nothing to add and drifts; an outcome does not say where a wrong
answer failed, a teacher that has read a right one does, least where it is unsure. A is standardised over the whole
group, wrong answers included, so that in a mixed group only right answers are pushed, and wrong ones pulled to q.

Axes: B rows, T columns, V actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, Copy, CreditWeight, Experience, Method, Phase, Preset, Recipe, Scene, State
from assay.method import groups, jensen_shannon, over_logits, recipes
from assay.parts import TEACHER_WEIGHT, Clip, Distil, PolicyGradient, Reweigh, ShownTwice, SolvedTeacher, TokenMean
from assay.parts import taught


@dataclass(frozen=True)
class RoutedTeacher(SolvedTeacher):
    """Only answers below the threshold have a teacher. `teacher_weight` is w_t there, 0 elsewhere: exp(-beta H), H the
    entropy of q over all actions, over its mean at all decisions of the batch that have a teacher. Beta 0 gives 1.
    """

    beta: float = 1.0
    writes: ClassVar[Mapping[str, str]] = {"candidates": "", TEACHER_WEIGHT: "BT: weight of the teacher, mean 1"}
    not_a_part: ClassVar[str] = "the laws have no prompts and no two models: its method's claims run it"

    def told(self, experience: Experience, scene: Scene) -> list[str]:
        wrong = (groups.outcome(experience) < self.threshold).tolist()
        return [one if is_wrong else "" for one, is_wrong in zip(super().told(experience, scene), wrong, strict=True)]

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds both columns; a third forward pass reads the teacher's entropy."""
        told = self.told(experience, scene)
        experience = self.scored(experience, told, scene)
        rows = torch.tensor([bool(one) for one in told]).nonzero().squeeze(1).to(experience.mask.device)
        weight = torch.zeros_like(experience.logp)
        if len(rows):
            some = experience.rows(rows)
            entropy = self.asked(some, [one for one in told if one], scene, entropy_of)
            own = (-self.beta * entropy).exp() * some.mask
            weight = weight.index_copy(0, rows, own / (own.sum() / some.mask.sum()))
        scene.log("routed", float(len(rows)), float(len(experience)))
        return experience.add({TEACHER_WEIGHT: weight})


def entropy_of(actor: Any, rows: Experience) -> Tensor:
    """Returns the entropy of each decision over all actions, [B, T]."""
    return over_logits(actor, rows, lambda some, _: -(some.softmax(-1) * some.log_softmax(-1)).sum(-1))


@dataclass(frozen=True)
class Untaught(CreditWeight):
    """1 for decisions without a teacher, 0 for those that have one. Degenerate: without a teacher nothing changes."""

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        return (~taught(experience).mask).to(advantage_BT.dtype)


@dataclass(frozen=True)
class SharedDistil(Distil):
    """Divides by the number of all decisions: another term trains those without a teacher, with the same number."""

    breaks: ClassVar[dict[str, str]] = {
        **Distil.breaks, "last_column": "decisions without a teacher count: the other term trains them",
    }  # fmt: skip

    def count(self, batch: Experience) -> Tensor:
        """Returns the aggregation's count over all decisions."""
        return self.aggregate.count(batch)


def grpo_by_tokens(preset: Preset = LANGUAGE) -> Recipe:
    """The other branch alone: grpo with the upper clip 0.28 and the mean over tokens."""
    own = PolicyGradient(trust=Clip(0.2, 0.28), aggregate=TokenMean())
    base = recipes.grpo(preset)
    return replace(base, name="grpo-by-tokens", stages=(replace(base.stages[0], objective=(own,)),))


def recipe(preset: Preset = LANGUAGE, beta: float = 1.0, rate: float = 0.05) -> Recipe:
    """`beta` weighs a teacher down where it is unsure; it follows the policy by `rate` a step."""
    base = grpo_by_tokens(preset)
    objective = (*base.stages[0].objective, SharedDistil(jensen_shannon))
    ours = replace(
        base, name="srpo", credit=(*base.credit, RoutedTeacher(beta=beta), Reweigh(Untaught())),
        stages=(replace(base.stages[0], objective=objective),), copies={"teacher": Copy(of="actor", rate=rate)},
    )  # fmt: skip
    reading = replace(recipes.sft(preset), actor=ours.actor, source=ShownTwice(32, 4))
    return replace(ours, before=(Phase("in-context", reading, 600, from_scratch=True),))


METHOD = Method(
    paper="arXiv:2604.02288",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-5",
    family="distillation",
    base=recipes.grpo,
    variants={"grpo-by-tokens": grpo_by_tokens},
    departures=(
        "the teacher follows the policy by 0.05 a step, as in the paper's table; its formula has the policy itself",
        "two updates a batch as in grpo, the paper has one; w has mean 1 over the batch, not over each minibatch",
        "no weight for a sampler that differs from the trained policy: here they are the same",
        "the teacher scores once per step at the policy's 100 likeliest tokens, w reads its whole distribution",
        "a model from scratch learns to use an answer in its context first, in a phase that a pretrained one skips",
    ),
    pilots=("after 40 steps, six seeds, it was 0.017 above sdpo (-0.041 to 0.075): too early for a drift to show",),
)
