"""What a judge says of the steps of answers, and rewards made of it. Axes: B rows, T columns, S steps of a row.

`StepMarks` writes the columns `segment` and `step_score`, `StepRewards` adds scores to the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Choice, Prepare, Scene
from assay.ops import random
from assay.parts.credit.step_judges import FromReference, StepJudge
from assay.parts.credit.steps import TextSteps, WrittenTask, steps_of


@dataclass(frozen=True)
class StepMarks(Prepare):
    """Writes `segment` and `step_score`: the mean over `votes` opinions of a judge about each decision's step.

    A row about whose steps an opinion is missing, since the judge's answer cannot be read, leaves training like any
    fault of the infrastructure; the metric `unjudged` is their share. `noise` is the share of opinions that are turned
    into 1 - opinion, a dial for testbeds; which ones belongs to (step of the run, start, sample, place, vote).
    Degenerate: a judge that finds nothing wrong gives 1 everywhere. Source: arXiv:2305.20050. Assumes that a judge is
    right more often than not.
    """

    judge: StepJudge = FromReference()
    steps: TextSteps = TextSteps()
    votes: int = 1
    noise: float = 0.0
    writes: ClassVar[Mapping[str, str]] = {"step_score": "BT: what a judge says of the decision's step, 0 to 1"}
    not_a_part: ClassVar[str] = "the laws have no answers for a judge to read: its users' claims run it"

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no text, or not what the judge needs."""
        if not isinstance(scene.task, WrittenTask):
            name = getattr(scene.task, "name", None)
            raise AssayError(f"StepMarks reads the steps of answers, and task '{name}' has no text. Use a text task")
        if self.votes < 1 or not 0.0 <= self.noise <= 1.0:
            raise AssayError(f"{self}: votes must be at least 1 and noise 0 to 1")
        self.judge.check(scene.task)
        return {}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes the columns, and masks rows that could not be judged."""
        task = scene.task
        assert isinstance(task, WrittenTask), "init refuses other tasks"
        cut, texts = self.steps(experience, scene, {}), task.texts(experience, scene.split)
        places, action = dict(steps_of(cut)), experience.action.cpu().numpy()
        rows = [
            {**texts[row], "written": [task.tokenizer.decode(action[row, columns].tolist()) for columns in steps]}
            for row, steps in places.items()
        ]
        found = self.opinions(rows, experience, list(places), scene)
        score, mask = np.zeros(action.shape), experience.mask.clone()
        for (row, steps), opinion in zip(places.items(), found, strict=True):
            if opinion is None:
                mask[row] = False
            else:
                score[row, np.concatenate(steps)] = np.repeat(opinion, [len(columns) for columns in steps])
        scene.log("unjudged", sum(one is None for one in found), len(found))
        return replace(cut, mask=mask).add({"step_score": torch.from_numpy(score).to(experience.reward)})

    def opinions(
        self, rows: Sequence[Mapping[str, Any]], experience: Experience, index: Sequence[int], scene: Scene
    ) -> list[np.ndarray | None]:
        """Returns the mean opinion about each step of each row; None where one is missing."""
        start, sample = (experience.column(name).cpu().numpy()[index, None] for name in ("start", "sample"))
        most = np.arange(max((len(row["written"]) for row in rows), default=0))
        votes = []
        for vote in range(self.votes):
            turned = random.uniform(scene.draw, start, sample, most, vote) < self.noise
            said = [None if one is None else np.asarray(one, dtype=np.float64) for one in self.judge(rows)]
            votes.append([
                None if one is None else np.where(turn[: len(one)], 1.0 - one, one)
                for one, turn in zip(said, turned, strict=True)
            ])  # fmt: skip
        return [
            None if any(one is None for one in own) else np.mean(np.stack(own), 0) for own in zip(*votes, strict=True)
        ]


# ---------------------------------------------------------------------------------------------------- rewards
StepTransform = Callable[[Tensor], Tensor]
"""What the scores of a row's steps [S] become, from the scores of that row alone."""


@dataclass(frozen=True)
class Capped(Choice):
    """min(score - threshold, 0): no step is paid, so that more of them never add (arXiv:2410.15115, Clip).

    Assumes scores of 0 to 1. Degenerate: threshold 0 leaves only negative scores.
    """

    threshold: float = 0.5

    def __call__(self, score_S: Tensor) -> Tensor:
        """Returns the transformed scores."""
        return (score_S - self.threshold).clamp(max=0.0)


@dataclass(frozen=True)
class Telescoping(Choice):
    """score_k - score_(k+1), the last but one as it is and the last one 0 (arXiv:2410.15115, Delta): what follows a
    step sums to its own score. Degenerate: a single step gets 0.

    Assumes that scores are in the order of the steps.
    """

    def __call__(self, score_S: Tensor) -> Tensor:
        """Returns the transformed scores."""
        kept = torch.cat([score_S[:-1], score_S.new_zeros(1)])
        return kept - torch.cat([kept[1:], kept.new_zeros(1)])


@dataclass(frozen=True)
class Signed(Choice):
    """2 score - 1: marks of -1 and 1, 0 where nothing is said.

    Source: by definition. Assumes scores of 0 to 1. Degenerate: a score of 1/2 gives 0.
    """

    def __call__(self, score_S: Tensor) -> Tensor:
        """Returns the transformed scores."""
        return 2.0 * score_S - 1.0


def some_scores(batch: Experience) -> Tensor:
    """Returns numbers from 0 to 1 for the decisions of a batch: what the laws fill the column `step_score` with."""
    return batch.logp.exp() * batch.mask


@dataclass(frozen=True)
class StepRewards(Prepare):
    """reward <- outcome * reward + weight * (score of the step that ends here, after the transforms in their order).

    Degenerate: weight 0 and outcome 1 change nothing. Source: arXiv:2305.20050. Assumes that `StepMarks` wrote the
    columns.
    """

    transforms: tuple[StepTransform, ...] = ()
    weight: float = 1.0
    outcome: float = 1.0
    reads: ClassVar[Mapping[str, str]] = {"step_score": "BT"}
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"step_score": some_scores}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `reward`."""
        given, paid = experience.column("step_score"), torch.zeros_like(experience.reward)
        for row, steps in steps_of(experience):
            ends = torch.tensor([int(columns[-1]) for columns in steps], device=paid.device)
            score = given[row, ends].to(paid.dtype)
            for transform in self.transforms:
                score = transform(score)
            paid[row, ends] = score
        return replace(experience, reward=self.outcome * experience.reward + self.weight * paid)
