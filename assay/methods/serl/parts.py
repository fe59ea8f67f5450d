"""A learned classifier of success as the reward. Axes: B sequences, T columns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Reward, Scene, Task
from assay.parts.sources.logged import Described, Log


@dataclass(frozen=True)
class LearnedSuccess(Reward):
    """reward = 1 where the critic `success` finds the context after a decision at least as likely a success as not
    (logit >= 0), else 0; in place of the task's reward, or added to it with `adds`.

    Ends stay as they are; so does the task's score. A decision that nothing follows gets 0.
    """

    success: str = model_name("success")
    adds: bool = False

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
        return experience.with_columns(reward=experience.reward * self.adds + paid)


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
