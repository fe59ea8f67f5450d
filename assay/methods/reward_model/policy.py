"""The policy of a reward model: the actor, whose log-probability of a text is the model's score. Axes: B, T."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from assay.core.record import Experience, Need, Scored
from assay.core.settings import model_name
from assay.core.slots import Wrapper


@dataclass(frozen=True)
class ByScore(Wrapper):
    """Acts as the actor does, and scores texts by a critic, so that pairs are evaluated by the critic's order."""

    critic: str = model_name("score")
    actor: ClassVar[str] = "actor"

    @property
    def reads(self) -> tuple[str, ...]:
        """Returns the names of the models that it reads."""
        return ("actor", self.critic)

    def around(self, models: Mapping[str, Any]) -> Any:
        """Returns the actor with the critic's scores."""
        return ScoringActor(models["actor"], models[self.critic])


class ScoringActor:
    """An actor whose `score` has the critic's number of a text on its last decision, and 0 elsewhere."""

    def __init__(self, actor: Any, critic: Any) -> None:
        self.actor, self.critic = actor, critic

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the scores in place of log-probabilities, [B, T]."""
        columns = torch.arange(batch.num_columns, device=batch.mask.device)
        last = torch.where(batch.mask, columns, -1).amax(1, keepdim=True)
        values_BT = self.critic(batch.context)
        return Scored(torch.where(columns == last, values_BT, torch.zeros_like(values_BT)))

    def __getattr__(self, name: str) -> Any:
        """Returns everything else from the actor."""
        return getattr(self.actor, name)
