"""Answers scored without their prompts, while a run begins. Axes: B rows, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Prepare, PromptedTask, Scene, logp_of
from assay.ops import groups
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.credit.reweigh import BySign, Reweigh, WithoutIdle


@dataclass(frozen=True)
class WithoutPrompt(Prepare):
    """In the first `share` of the run: rows are the start token and the answer, with the log-probabilities that `actor`
    gives them there, and only wrong ones learn, by `coefficient` times (outcome - group mean).

    `right` and `wrong` weigh answers above and below the mean: 0 leaves them out of every mean. Afterwards nothing is
    changed. Place it after the credit of the rest of the run. Degenerate: share 0 changes nothing; outside of a run,
    without a task, contexts stay.
    """

    share: float = 0.2
    coefficient: float = 0.01
    right: float = 0.0
    wrong: float = 1.0
    actor: str = model_name("actor")
    reads: ClassVar[tuple[str, ...]] = ("advantage",)

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no prompts."""
        if scene.task is not None and not isinstance(scene.task, PromptedTask):
            what = f"task '{scene.task.name}' has no prompts that answers could be scored without"
            raise AssayError(f"{what}. Use a language task of single answers")
        return {}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites contexts, log-probabilities, `advantage` and the mask."""
        if scene.progress.fraction >= self.share:
            return experience
        task, weights = scene.task, BySign(self.coefficient * self.right, self.coefficient * self.wrong)
        # Rounding of the mean must not turn one of equal answers into a wrong one.
        differs = groups.differs(groups.outcome(experience), groups.row_groups(experience)).unsqueeze(1)
        experience = OutcomeCredit(GroupMean())(experience)
        experience = experience.add({"advantage": experience.column("advantage") * differs})
        for part in (Reweigh(weights), WithoutIdle()):
            experience = part(experience)
        if not isinstance(task, PromptedTask):  # outside of a run; `init` refuses such tasks
            return experience
        bare = task.onto(experience, [""] * len(experience))
        logp = scene.models.over(self.actor, bare, logp_of).to(bare.logp.dtype)
        return replace(bare, logp=logp * bare.mask)
