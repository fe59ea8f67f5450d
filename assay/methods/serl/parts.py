"""A learned classifier of success as the reward, of fresh and of stored data. Axes: B sequences, T columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Reward, Scene, Source, Task
from assay.parts.rewards.scaled import ScaledReward
from assay.parts.sources.logged import Described, Log
from assay.parts.sources.replay import Replay


@dataclass(frozen=True)
class LearnedSuccess(Reward):
    """reward = 1 where the critic `success` finds the context after a decision at least as likely a success as not
    (logit >= 0), else 0; in place of the task's reward, or added to it with `adds`.

    With `ends`, such a context also ends the episode for those who bootstrap: staying there is not paid twice. The
    task's score stays as it is. A decision that nothing follows gets 0.
    """

    success: str = model_name("success")
    adds: bool = False
    ends: bool = False

    @property
    def models(self) -> tuple[str, ...]:
        """The classifier."""
        return (self.success,)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """The experience with the classifier's rewards; logs how often it fires."""
        logit = scene.models.over(self.success, experience, lambda critic, rows: critic(rows.context))
        fires = torch.zeros_like(experience.mask)
        fires[:, :-1] = logit[:, 1:] >= 0.0
        if "valid" in experience.context:
            fires[:, :-1] &= experience.context["valid"][:, 1:]
        paid = (fires & experience.mask).to(experience.reward.dtype)
        scene.log("success_seen", float(paid.sum()), float(experience.mask.sum()))
        terminal = experience.terminal | (paid > 0) if self.ends else experience.terminal
        return experience.with_columns(reward=experience.reward * self.adds + paid, terminal=terminal)


@dataclass(frozen=True)
class Successes(Described):
    """A log in which some episode ends by success; AssayError where none does, since a classifier needs examples."""

    log: Log = Log(episodes=20, noise=0.0)

    @property
    def reward_scale(self) -> float:
        """The log's."""
        return self.log.reward_scale

    @property
    def origin(self) -> int:
        """The log's."""
        return self.log.origin

    def columns(self, task: Task) -> dict[str, Tensor]:
        """The log's transitions."""
        found = self.log.columns(task)
        if not bool(found["terminal"].any()):
            raise AssayError(
                f"no demonstration of task '{task.name}' ends by success, so none can be told from failure. Use a task "
                "whose episodes end where it is solved"
            )
        return found


@dataclass(frozen=True)
class Rewarded(Source):
    """Batches of another source, each with the rewards that `reward` gives it now; stored ones are not used.

    For rewards that learn: a transition is worth what the reward says at this update, not what it said when the
    transition was gathered. Degenerate: a reward that changes nothing is the source itself.
    """

    source: Source = Replay()
    reward: Reward = ScaledReward(1.0)

    def init(self, scene: Scene) -> State:
        """The states of both."""
        return {"source": self.source.init(scene), "reward": self.reward.init(scene)}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """The source's batches; each is rewarded after the updates on the one before."""
        for batch in self.source(scene, state["source"]):
            yield self.reward(batch, scene, state["reward"])
