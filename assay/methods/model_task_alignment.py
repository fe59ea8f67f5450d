"""model-task-alignment: grpo with a reward that ignores the answer, one example, or wrong answers alone.

    random: r = 1 with probability 1/2   incorrect: r = 1 - right   majority: r = 1 for the group's commonest answer
    one-example: every start is the same   negatives: A <- min(A, 0)   true: r = right, the control

Wu et al. 2025, "Mirage or Method?". Shortcuts are said to work where the start's pass@k is high already, and to fail
where it is low; the true reward works in both. A random reward has an expected gradient of 0; the clip, once ratios
have left 1, adds one: it drops the steps that lead further away from the policy that sampled, not those back to it.

Axes: B sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from assay.method import LANGUAGE, AssayError, Curriculum, Experience, Method, Preset, PromptTask, Recipe, Reward, Scene
from assay.method import State, Task, TextTask, Verifier, groups, recipes, with_policy, with_token_clip
from assay.parts import ByLabel, BySign, OfText, PolicyGradient, Revisits, Reweigh, TokenMean, Unclipped, noisy, placed
from assay.statistics.passk import majority_vote
from assay.tasks.language.arithmetic import final_answer
from assay.tasks.language.file_rows import Rows


@dataclass(frozen=True)
class Majority(OfText):
    """reward <- 1 if the row's final answer is the commonest of its group, else 0, on the last decision.

    The label is the policy's own: no right answer is read. Answers that tie for the first place are all paid; a row
    without an answer, such as one without a decision, is paid 0 and does not vote. Test-time labels: arXiv:2504.16084.
    Degenerate: a group whose answers all differ, or are all equal, is paid alike, so that a group mean leaves nothing.
    """

    compares_group: ClassVar[bool] = True

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the votes as rewards; `score` stays the task's own if it is set."""
        assert isinstance(scene.task, TextTask), "init refuses other tasks"
        answer, group = answers_of(scene.task), groups.row_groups(experience).index.tolist()
        said = [answer(row["completion"]) for row in scene.task.texts(experience, scene.split)]
        ballots: dict[int, list[str | None]] = {}
        for one, own in zip(said, group, strict=True):
            ballots.setdefault(own, []).append(one)
        winners = {own: majority_vote(each) for own, each in ballots.items()}
        paid = [float(one in winners[own]) for one, own in zip(said, group, strict=True)]
        return placed(experience, torch.tensor(paid, device=experience.mask.device))


def answers_of(task: Task) -> Callable[[str], str | None]:
    """Returns the function from a completion to its answer: what the verifier of a file compares, else the final answer
    of the text; None for a completion without one.
    """
    items = task.items if isinstance(task, PromptTask) else None
    return items.stated if isinstance(items, Rows) else lambda said: final_answer(said) or None


@dataclass(frozen=True)
class OneStart(Curriculum):
    """Proposes the start `start` for every place of every batch: a training set of one example (arXiv:2504.20571).

    In a file it is the training row of that number, from 0. The rollout must tell visits of a start apart (`Revisits`).
    Degenerate: if no start is requested, it proposes none.
    """

    start: int = 0

    def __post_init__(self) -> None:
        if self.start < 0:
            raise AssayError(f"OneStart.start is {self.start}; give the number of a training prompt, 0 or more")

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the start, as often as starts are requested."""
        return np.full(scene.num_starts, self.start, dtype=np.int64)

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Does nothing."""


NAME = "model-task-alignment"


def rewarded(preset: Preset, name: str, *rewards: Reward) -> Recipe:
    """Returns grpo with these rewards, ratios clipped to [0.8, 1.28] and a mean over decisions."""
    return with_token_clip(replace(recipes.grpo(preset), rewards=rewards), name, 0.2, 0.28)


def random(chance: float = 0.5) -> Reward:
    """Accepts an answer with probability `chance`, right or wrong."""
    return noisy({"": (chance, 1.0 - chance)}, label="")


def unclipped(preset: Preset = LANGUAGE) -> Recipe:
    """The random reward without a clip."""
    objective = PolicyGradient(trust=Unclipped(), aggregate=TokenMean())
    return with_policy(rewarded(preset, NAME, random()), f"{NAME}-unclipped", objective)


def true(preset: Preset = LANGUAGE) -> Recipe:
    """The control: the task's own reward."""
    return rewarded(preset, f"{NAME}-true", Verifier())


def incorrect(preset: Preset = LANGUAGE) -> Recipe:
    """Wrong answers are accepted, right ones are not."""
    return rewarded(preset, f"{NAME}-incorrect", ByLabel({"": {"right": 0.0, "wrong": 1.0}}, label=""))


def majority(preset: Preset = LANGUAGE) -> Recipe:
    """The commonest answer of a group is accepted."""
    return rewarded(preset, f"{NAME}-majority", Verifier(), Majority())


def one_example(preset: Preset = LANGUAGE, start: int = 0) -> Recipe:
    """The true reward on one prompt, in as many groups."""
    base = true(preset)
    assert base.rollout is not None
    rollout = Revisits(base.rollout.num_starts)
    return replace(base, name=f"{NAME}-one-example", curriculum=OneStart(start), rollout=rollout)


def negatives(preset: Preset = LANGUAGE) -> Recipe:
    """The true reward; advantages above 0 are dropped after they were standardised."""
    base = true(preset)
    return replace(base, name=f"{NAME}-negatives", credit=(*base.credit, Reweigh(BySign(0.0, 1.0))))


def recipe(preset: Preset = LANGUAGE, chance: float = 0.5) -> Recipe:
    """Returns grpo with a reward of 1 at the given chance, whatever the answer."""
    return rewarded(preset, NAME, random(chance))


METHOD = Method(
    paper="arXiv:2508.21188",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-3",
    family="policy gradient",
    base=recipes.grpo,
    variants={"unclipped": unclipped, "true": true, "incorrect": incorrect,
              "majority": majority, "one-example": one_example, "negatives": negatives},
    departures=(
        "settings of the released scripts (chance 1/2, clip to 1.28, mean over decisions, negatives as standardised "
        "advantages), but groups without signal are not sampled again and no reward asks for a format",
        "incorrect pays 1 - right; the released function for mathematics pays right answers",
        "format and entropy rewards are left out; right answers alone: nsr:psr",
        "alignment is varied by supervised steps of one small model; theirs are other models and tasks",
    ),
    pilots=(
        "piloted on seeds 900 to 902: 10 to 200 supervised steps; at rate 1e-3 no shortcut gained on the strong start "
        "(1 seed), so 3e-4; one example on it: 0.00 after 10 steps (2 seeds), -0.23 after 60 (3)",
    ),
    results=(
        "why two claims fail: from the strong start a random reward loses 0.45 to 0.70 on all eight seeds, hardly "
        "less than without the clip (0.59 to 0.74), and one example 0.13 to 0.25; majority and negatives, which know "
        "something of the answer, gain nearly as much as the true reward. So the clip's bias, which the paper's gain "
        "rests on, does little here; whether larger models differ was not tried",
    ),
)
