"""Distillation of a teacher's distributions in the policy's own contexts. Axes: B sequences, T decisions, V actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Annotation, Objective, Over, View
from assay.methods.sdpo import contexts
from assay.parts.aggregations import TokenMean
from assay.parts.objectives.policy import ratio_metrics


# ---------------------------------------------------------------------------------------------------- divergences
def reverse_kl(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns KL(pi || q) of whole distributions, the policy's first."""
    return (logp.exp() * (logp - logq)).sum(-1)


def forward_kl(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns KL(q || pi)."""
    return (logq.exp() * (logq - logp)).sum(-1)


def jensen_shannon(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns half of KL(pi || m) + KL(q || m), m the mean of both; at most log 2."""
    middle = torch.logaddexp(logp, logq) - torch.tensor(2.0, dtype=logp.dtype).log()
    return 0.5 * (reverse_kl(logp, middle) + reverse_kl(logq, middle))


# ---------------------------------------------------------------------------------------------------- the teacher
def all_logp(actor: Any, rows: Experience) -> Tensor:
    """Returns log pi(v) of every action in every context, [B, T, V]."""
    logits = actor.score(rows, frozenset({Need.LOGP, Need.LOGITS})).logits
    if logits is None:
        raise AssayError("a teacher of whole distributions needs an actor with discrete actions, such as tokens")
    logp: Tensor = logits.log_softmax(-1)
    return logp


@dataclass(frozen=True)
class SelfTeacher(Annotation):
    """The column `teacher_logp` [B, T, V]: log q(v | x, f, y_<t), the same answer scored by a model that has seen f.

    f is another answer of the group that is correct (outcome at least `threshold`): its prompt and tokens are put in
    front of the row. One forward pass; nothing is sampled. `model` is the actor or its target network. Degenerate: a
    row without a correct sibling has no teacher and all zeros, which is not a distribution.
    """

    model: str = "teacher"
    threshold: float = 1.0
    column: str = field(default="teacher_logp", init=False)
    breaks: ClassVar[dict[str, str]] = {"rows": "the first correct sibling in the order of rows is the one shown"}

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns the column; only rows with a correct sibling are scored."""
        if "tokens" not in experience.context:
            raise AssayError("SelfTeacher puts an answer before the prompt, so it needs tokens. Use a language task")
        sibling = contexts.solved_sibling(experience, self.threshold)
        rows = (sibling != contexts.NONE).nonzero().squeeze(1)
        if not len(rows):
            return experience.logp.new_zeros(*experience.mask.shape, 1)
        taught = experience.rows(rows)
        told, shift = contexts.with_example(taught, experience.rows(sibling[rows]))
        found = contexts.moved_back(over(told, all_logp), shift, taught)
        return found.new_zeros(len(experience), *found.shape[1:]).index_copy(0, rows, found)


@dataclass(frozen=True)
class Distil(Objective):
    """min(rho, ceiling) * D(pi, q) at every decision that has a teacher, rho = pi / pi_old without gradient.

    With D = KL(pi || q), the gradient is the policy gradient with advantages log q(v) - log pi(v) for all actions v,
    not for the sampled one alone (SDPO, arXiv:2601.20802). `divergence` maps (log pi, log q) [B, T, V] to [B, T]. No
    gradient into the teacher. Degenerate: decisions without a teacher are in neither sum nor count.
    """

    divergence: Callable[[Tensor, Tensor], Tensor] = reverse_kl
    teacher: SelfTeacher = SelfTeacher()
    ceiling: float = 2.0
    aggregate: Aggregation = TokenMean()
    first_order: ClassVar[bool] = False
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"teacher": SelfTeacher("actor", -9.0), "divergence": jensen_shannon},
        {"teacher": SelfTeacher("actor", -9.0)},
    )
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "the teacher's distribution is the credit"}

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Returns the distributions of the policy and of its teacher."""
        return frozenset({Need.LOGP, Need.LOGITS, self.teacher})

    @property
    def together(self) -> str | None:
        """Returns which rows the aggregation needs in one micro-batch."""
        return self.aggregate.together

    def count(self, batch: Experience) -> Tensor:
        """Returns the aggregation's count over decisions that have a teacher."""
        return self.aggregate.count(taught(batch))

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over decisions that have a teacher."""
        logits, known = view.scored.logits, taught(batch)
        assert logits is not None, "the engine provides what `needs` declares"
        logp, moved = logits.log_softmax(-1), (view.scored.logp - batch.logp).detach() * batch.mask
        distance = self.divergence(logp, batch.column("teacher_logp").detach())
        distance = torch.where(known.mask, distance, 0.0)
        weight = moved.clamp(-20.0, 20.0).exp().clamp(max=self.ceiling) * self.aggregate.weigh(known)
        metrics = ratio_metrics(moved, moved.exp() > self.ceiling, batch)
        own = {
            "distance_to_teacher": (distance.detach().sum(), known.num_decisions),
            "taught": (known.num_decisions, batch.num_decisions),
        }
        return Loss((distance * weight).sum(), self.aggregate.count(known), metrics | own)


def taught(batch: Experience) -> Experience:
    """Returns the batch with the mask on decisions that have a teacher."""
    return batch.with_columns(mask=batch.mask & (batch.column("teacher_logp") < 0).any(-1))
