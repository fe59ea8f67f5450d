"""The log-probability of a spare token after the answer, as the policy's own score of it. Axes: B rows, T decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need, State
from assay.core.schedules import Delayed
from assay.core.settings import model_name
from assay.core.slots import Choice, Credit, Prepare, Regularizer, Scene, Schedule, View, number
from assay.ops import groups
from assay.ops.later import one_later


def finished(experience: Experience) -> Tensor:
    """Returns whether a decision is the last one of an answer that ended by itself, [B, T]."""
    return experience.terminal & ~experience.truncated & experience.mask


@dataclass(frozen=True)
class SpareToken(Choice):
    """r_s = beta (log pi(token | prompt, answer) - constant): 0 at the constant, 1 at constant + 1 / beta.

    `token` is an id of the vocabulary that no text has; -1 is the last one. `constant` is about the log-probability of
    this token under the start: -23 for a large vocabulary. Answers that were cut have no score: 0.
    """

    token: int = -1
    beta: float = 0.1
    constant: float = -23.0

    def of(self, actor: Any, rows: Experience) -> Tensor:
        """Returns r_s of each row with gradient, [B]; the column after the end is scored by a pass of its own."""
        ends = finished(rows)
        later = one_later(rows, ends)
        token = self.token if self.token >= 0 else actor.vocabulary.size + self.token
        asked = later.with_columns(action=torch.where(later.mask, token, later.action))
        logp = actor.score(asked, frozenset({Need.LOGP})).logp
        return self.beta * torch.where(later.mask, logp - self.constant, 0.0).sum(1)


def balance(experience: Experience) -> Tensor:
    """Returns n / (2 n_right) for right finished answers and n / (2 n_wrong) for wrong ones, 0 for cut ones, [B]."""
    ended, right = finished(experience).any(1), groups.outcome(experience) > 0.5
    many = torch.where(right, (ended & right).sum(), (ended & ~right).sum()).clamp(min=1)
    return torch.where(ended, ended.sum() / (2.0 * many.double()), 0.0).to(experience.reward.dtype)


@dataclass(frozen=True)
class Balanced(Prepare):
    """Writes `balance` [B] of the whole batch, so that right and wrong answers count equally."""

    writes: ClassVar[tuple[str, ...]] = ("balance",)
    reads_shares: ClassVar[bool] = True
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "classes are balanced over the batch"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the column."""
        return experience.add({"balance": balance(experience)})


@dataclass(frozen=True)
class SelfReward(Regularizer):
    """coefficient * balance * (r_s - outcome)^2, as a mean over all rows with a decision (arXiv:2510.14943)."""

    spare: SpareToken = SpareToken()
    coefficient: float | Schedule = 0.1
    actor: str = model_name("actor")
    needs: ClassVar[frozenset[Need]] = frozenset()
    reads: ClassVar[tuple[str, ...]] = ("balance",)
    together: ClassVar[str | None] = "episode"
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"balance": balance}

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of rows with a decision."""
        return batch.mask.any(1).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over rows."""
        error = self.spare.of(view.model(self.actor), batch) - groups.outcome(batch).detach()
        squared = batch.column("balance").detach() * error.square()
        return Loss(number(self.coefficient) * squared.sum(), self.count(batch), {"self_reward_error": (
            squared.detach().sum(), self.count(batch))})  # fmt: skip


def blended(advantage_B: Tensor, score_B: Tensor, by_group: groups.Groups, share: float) -> Tensor:
    """Returns (1 - share) A + share A_s, A_s the score standardised in its group, or A where its deviation is at most
    0.1, [B].
    """
    deviation = groups.deviation(score_B, by_group)
    own = (score_B - groups.mean(score_B, by_group)) / deviation.clamp(min=1e-8)
    return (1.0 - share) * advantage_B + share * torch.where(deviation > 0.1, own, advantage_B)


@dataclass(frozen=True)
class Blend(Credit):
    """Mixes a `share` of the acting policy's own scores, clamped to [0, 1], into the advantage of every decision."""

    spare: SpareToken = SpareToken()
    share: float | Schedule = Delayed(0.1, 0.5)
    actor: str = model_name("actor")
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `advantage`; at share 0 no model is asked."""
        share, mask = number(self.share), experience.mask
        if not share:
            return experience
        score = scene.models.over(self.actor, experience, self.spare.of).clamp(0.0, 1.0).to(experience.reward.dtype)
        advantage = experience.column("advantage")
        row = advantage.sum(1) / mask.sum(1).clamp(min=1)
        mixed = blended(row, score, groups.row_groups(experience), share)
        return experience.add({"advantage": mixed.unsqueeze(1) * mask})
