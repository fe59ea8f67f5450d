"""qwenlong-l1: phases of growing input, with hard prompts of earlier phases brought back; right by rule or by judge.

    phase k:  prompts with L_(k-1) < |x| <= L_k,  and a share of earlier ones, drawn in proportion to 1 / max(r, 1/8)
    R = max(rule, judge),   r = share right at the prompt's last visit;   rest: grpo

2025 (QwenLong-L1). A policy that answers short inputs is led to long ones step by step. Success that was recorded in an
earlier phase is of another policy: what is brought back was hard then. The floor decides how much hopeless prompts get.

Axes: B rows, P prompts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from assay.method import LANGUAGE, AssayError, Chat, Experience, Method, Preset, PromptTask, Recipe, Reward, Scene
from assay.method import State, TextTask, groups, random, recipes, with_pool
from assay.parts import PoolRule, Visited, in_passes, on_last_decision

Rows = Sequence[Mapping[str, Any]]
ARTICLES, YES = ("a", "an", "the"), "yes"
SAME = (
    "Question: {prompt}\n\nRight answer: {answer}\n\nGiven answer: {completion}\n\nDoes the given answer mean the same "
    'as the right one? End with "Verdict: yes" or "Verdict: no".'
)


@dataclass(frozen=True)
class Growing(PoolRule):
    """Prompts whose input length belongs to the present phase, in shuffled passes; a share `back` of them from earlier
    phases, drawn with replacement in proportion to 1 / max(success at the last visit, `floor`).

    Lengths are in tokens, the task's template included. `limits` are the ends of all phases; without any, `phases`
    equally large parts of the pool by length. Phases last equally long. A prompt that was never visited counts as never
    solved. Degenerate: one phase, or `back` 0, draws nothing back; a phase without prompts is skipped.
    """

    phases: int = 3
    limits: tuple[int, ...] = ()
    back: float = 0.25
    floor: float = 0.125

    def __post_init__(self) -> None:
        if self.phases < 1 or not 0.0 <= self.back < 1.0 or not 0.0 < self.floor <= 1.0:
            raise AssayError(f"{self}: use 1 or more phases, back from 0 to below 1, and a floor above 0 and up to 1")
        if list(self.limits) != sorted(set(self.limits)):
            raise AssayError(f"{self}: limits must be growing numbers of tokens")

    def init(self, seen: Visited, scene: Scene) -> State:
        """Returns the places of each phase; AssayError for conversations, or an input above the last limit."""
        task = scene.task
        if not isinstance(task, PromptTask):
            raise AssayError(f"task '{task.name}' has no single inputs. Use a .jsonl file with prompt and answer")
        length = np.array([len(ids) for ids in task.told(task.prompts(seen.starts, 0))])
        if self.limits and length.max() > self.limits[-1]:
            raise AssayError(
                f"an input has {length.max()} tokens, the last limit is {self.limits[-1]}. Add a limit, or give none"
            )
        ends = self.limits or tuple(np.quantile(length, np.arange(1, self.phases + 1) / self.phases))
        phase = np.searchsorted(np.array(ends), length)
        parts = [np.flatnonzero(phase == number).tolist() for number in range(len(ends))]
        return {"phases": [{"next": 0, "places": own} for own in parts if own]}

    def choose(self, seen: Visited, scene: Scene, state: State) -> Sequence[int]:
        phases, progress = state["phases"], scene.progress
        now = min(len(phases) - 1, progress.step * len(phases) // max(1, progress.num_steps))
        earlier = [place for one in phases[:now] for place in one["places"]]
        scene.log("phase", float(now + 1))
        num = round(self.back * scene.num_starts) if earlier else 0
        own = phases[now]
        found = in_passes(own["places"], scene.given(num_starts=scene.num_starts - num), own)
        if not num:
            return found
        success = [seen.shares[place][-1] if len(seen.shares[place]) else 0.0 for place in earlier]
        weight = self.weights(np.array(success))
        point = random.uniform(scene.draw.at(8), np.arange(num))
        return [*found, *(earlier[one] for one in np.searchsorted(weight.cumsum(), point).clip(max=len(earlier) - 1))]

    def weights(self, success_P: np.ndarray) -> np.ndarray:
        """Returns the probability of each prompt of earlier phases, [P]."""
        hard = 1.0 / np.maximum(success_P, self.floor)
        return hard / hard.sum()


def words_of(answer: str) -> list[str]:
    """Returns words and numbers in lower case, without articles."""
    return [word for word in re.findall(r"[a-z0-9.]*[a-z0-9]", answer.lower()) if word not in ARTICLES]


def stands_in(rows: Rows) -> list[float]:
    """Returns 1 for each answer in which the right one stands as whole words and makes up at least half of it, else 0.

    The released rule accepts any substring in both directions, and so the answer "a".
    """
    found = []
    for row in rows:
        right, said = words_of(str(row["answer"])), words_of(str(row["completion"]))
        starts = range(len(said) - len(right) + 1) if 0 < len(right) <= len(said) <= 2 * len(right) else range(0)
        found.append(float(any(said[start : start + len(right)] == right for start in starts)))
    return found


@dataclass(frozen=True)
class ChatSame:
    """Asks a chat model whether an answer means the same as the right one: 1 for yes, 0 for no or anything else."""

    ask: Chat
    not_a_part: ClassVar[str] = "a setting of Either"

    def __call__(self, rows: Rows) -> list[float]:
        """Returns the verdicts."""
        told = [{name: row[name] for name in ("prompt", "answer", "completion")} for row in rows]
        said = self.ask([SAME.format(**one) for one in told])
        verdicts = [re.findall(r"verdict\W+(yes|no)\b", one.lower()) for one in said]
        return [float(bool(own) and own[-1] == YES) for own in verdicts]


@dataclass(frozen=True)
class Either(Reward):
    """reward <- max(outcome, judge) of each row, on the last decision; the judge sees what the rule did not accept.

    Degenerate: a judge that accepts nothing leaves every outcome as it is.
    """

    judge: Callable[[Rows], list[float]] = stands_in
    reads: ClassVar[Mapping[str, str]] = {"score": "B"}
    reads_shares: ClassVar[bool] = True

    def init(self, scene: Scene) -> State:
        """Refuses a task without text."""
        if scene.task is not None and not isinstance(scene.task, TextTask):
            raise AssayError(f"task '{scene.task.name}' has no answers as text to judge. Use a language task")
        return {}

    def with_judge(self, ask: Chat) -> Any:
        """Returns the same with a chat model that compares answers."""
        return replace(self, judge=ChatSame(ask))

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        assert isinstance(scene.task, TextTask)
        right, there = groups.is_right(experience), experience.mask.any(1)
        rows = [row for row in range(len(experience)) if bool(there[row]) and not bool(right[row])]
        total = groups.outcome(experience).clone()
        if rows:
            told = scene.task.texts(experience.rows(torch.tensor(rows)), scene.split)
            judged = total.new_tensor(self.judge(told))
            scene.log("judged_right", float(judged.sum()), float(len(rows)))
            total[rows] = torch.maximum(total[rows], judged)
        return on_last_decision(experience, total)


def recipe(preset: Preset = LANGUAGE, rule: Growing = Growing()) -> Recipe:
    """Returns grpo on inputs that grow by the rule, paid by a verifier or by a judge."""
    base = with_pool(recipes.grpo(preset), "qwenlong-l1", rule)
    return replace(base, rewards=(*base.rewards, Either()))


def at_once(preset: Preset = LANGUAGE) -> Recipe:
    """The rival: inputs of all lengths from the start."""
    return recipe(preset, Growing(phases=1))


def phased(preset: Preset = LANGUAGE) -> Recipe:
    """Phases without anything brought back."""
    return recipe(preset, Growing(back=0.0))


METHOD = Method(
    paper="arXiv:2505.17667",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-3-to-8",
    family="curriculum",
    base=recipes.grpo,
    variants={"qwenlong-l1-at-once": at_once, "qwenlong-l1-phased": phased},
    departures=(
        "the sampler is not in the released code: a quarter of a batch, all earlier prompts, a floor of one in eight",
        "without limits phases are thirds of the pool by length, in one run; the paper has two, to 20,000 and 60,000",
        "the rule is the task's own; without `--judge` the judge is a program that accepts the right words in up to as "
        "many others, since substrings in both directions would pay for fragments",
        "grpo instead of dapo, a mean over sequences, no warm-up on traces, no penalty of long answers, top-p 1",
        "not measured: real texts, and what is kept on the shortest inputs",
    ),
    pilots=(
        "on pilot seeds 1000 and 1001 of `stretched` the longest inputs of five digits end at 0.69 and 0.71 after 120 "
        "steps, all lengths at once at 0.48 and 0.27; of four, after 90, at 0.45 and 0.43 against 0.72 and 0.50: the "
        "second claim was stated for that",
    ),
    results=(
        "with ten seeds the headline is undecided: the longest inputs are solved 0.07 more often (-0.08 to 0.26). "
        "Whole codes are learned or none, each a quarter of the score; what the pilots showed did not come again",
        "the control fails: of four digits they are solved 0.09 more often (0.02 to 0.21), not less",
    ),
)
