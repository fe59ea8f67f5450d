"""reward-model: scores texts so that chosen completions score higher than rejected ones.

    loss = -mean over pairs of log sigmoid(score(chosen) - score(rejected))

Bradley and Terry 1952; Ouyang et al. 2022. A linear layer on the states of a transformer, read at the end of a text.
Only differences of scores are learned, their level is not. The held-out score is the share of pairs in the right
order. `--reward-model RUN` rewards completions with it in any method on a language task.

Axes: B, T.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from assay.method import PREFERENCES, Experience, Method, Need, Preset, Recipe, Scored, Wrapper, model_name, recipes


@dataclass(frozen=True)
class ByScore(Wrapper):
    """Acts as the actor does, and scores texts by a critic, so that pairs are evaluated by the critic's order."""

    critic: str = model_name("score")
    actor: ClassVar[str] = "actor"

    @property
    def reads(self) -> tuple[str, ...]:
        return ("actor", self.critic)

    def around(self, models: Mapping[str, Any]) -> Any:
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


def recipe(preset: Preset = PREFERENCES) -> Recipe:
    """Returns a trainer of a scorer on preference pairs; the actor is not trained."""
    return replace(recipes.preference_score(preset), name="reward-model", wrapper=ByScore("score"))


METHOD = Method(
    paper="arXiv:2203.02155",
    recipe=recipe,
    presets=(PREFERENCES,),
    default_task="sorting-5-pairs",
    family="preference",
    base=recipes.dpo,
    departures=("one rejected completion for each chosen one instead of all pairs of a ranking",),
)
