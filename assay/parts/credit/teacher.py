"""What a teacher, another model, says about the policy's decisions: log-probabilities as columns and as rewards.

Axes: B rows, T columns, K candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.settings import model_name
from assay.core.slots import Prepare, Scene, logp_of
from assay.ops.logits import likeliest, over_logits


def likeliest_actions(actor: Any, rows: Experience, num: int) -> Tensor:
    """Returns the `num` likeliest actions of each decision (all if there are fewer), [B, T, K]; 0 elsewhere."""
    return over_logits(actor, rows, lambda some, _: some.topk(min(num, some.shape[-1])).indices)


def candidates_of(actor: Any, rows: Experience) -> Tensor:
    """Returns the log-probabilities of the column `candidates`, [B, T, K]."""
    logp: Tensor = actor.score(rows, frozenset({Need.LOGP, Need.CANDIDATES})).candidates
    return logp


@runtime_checkable
class Ranking(Protocol):
    """A model that says which actions it finds likeliest, and cannot be asked about others: one at an address."""

    def ranked(self, rows: Experience, num: int) -> Tensor:
        """Returns the `num` likeliest actions of each decision with their log-probabilities, [B, T, K, 2]."""


def ranked(model: Any, rows: Experience, num: int) -> Tensor:
    """Returns the `num` likeliest actions of each decision with their log-probabilities, [B, T, K, 2]; 0 elsewhere."""
    if isinstance(model, Ranking):
        return model.ranked(rows, num)
    return over_logits(model, rows, lambda some, _: likeliest(some, num))


@dataclass(frozen=True)
class TeacherCandidates(Prepare):
    """Writes `candidates` [B, T, K, 2]: the teacher's `num` likeliest actions of each decision, and log q of each.

    With `of_policy` they are the likeliest of the policy `actor`: for KL(pi || q), which weighs by pi. One forward pass
    of the teacher, and one of the policy then; nothing is sampled. Degenerate: with no more actions than `num` all are
    candidates, and a loss on them is that of whole distributions.
    """

    num: int = 100
    of_policy: bool = False
    teacher: str = model_name("teacher")
    actor: str = model_name("actor")
    not_a_part: ClassVar[str] = "the laws have no second model: its methods' claims run it"
    writes: ClassVar[tuple[str, ...]] = ("candidates",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the column; it is 0 where masked."""
        over, dtype = scene.models.over, experience.logp.dtype
        if not self.of_policy:
            column = over(self.teacher, experience, partial(ranked, num=self.num))
            return experience.add({"candidates": column.to(dtype)})
        action = over(self.actor, experience, partial(likeliest_actions, num=self.num)).to(dtype)
        told = experience.add({"candidates": torch.stack((action, torch.zeros_like(action)), -1)})
        logq = over(self.teacher, told, candidates_of).to(dtype) * experience.mask.unsqueeze(-1)
        return experience.add({"candidates": torch.stack((action, logq), -1)})


@dataclass(frozen=True)
class TeacherReward(Prepare):
    """r_t <- own * r_t + coefficient * (log q(a_t) - log pi(a_t)), q the teacher's, pi as recorded.

    Its expected sum over an answer is -coefficient * KL(pi || q): with `own` 0 a policy gradient on it distils on
    sampled tokens, with `own` 1 it is added to a task's reward. Degenerate: a teacher that equals the policy adds 0.
    """

    coefficient: float = 1.0
    own: float = 1.0
    teacher: str = model_name("teacher")
    not_a_part: ClassVar[str] = "the laws have no second model: its methods' claims run it"

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `reward`; `score` keeps the task's own reward."""
        logq = scene.models.over(self.teacher, experience, logp_of).to(experience.reward.dtype)
        log_ratio = torch.where(experience.mask, logq - experience.logp, 0.0)
        scene.log("kl_to_teacher", -float(log_ratio.sum()), float(experience.mask.sum()))
        return replace(experience, reward=self.own * experience.reward + self.coefficient * log_ratio)
