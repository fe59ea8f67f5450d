"""retroagent: progress over what was reached before is paid; half of each group is shown a lesson from a memory.

    R = 10 won + max(0, phi - best[task]),   best[task] <- max(best[task], share of the group that won)
    lesson = argmax 0.6 cos(task, task_i) + 0.4 (u_i + sqrt(ln N / n_i)), cos >= 0.4;   u_i <- 0.95 u_i + 0.05 won

then grpo over the whole group, with and without a lesson. Zhang et al. 2026. Where all attempts at a task fail, grpo
learns nothing; the share phi of subtasks tells them apart until the task is won. Lessons are what earlier attempts
showed, chosen as arms of a bandit.

Axes: B sequences, T decisions, M lessons.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Choice, Experience, Method, Origin, Preset, PromptedTask, Recipe, Reward
from assay.method import Rollout, Scene, State, TextTask, Verifier, groups, recipes
from assay.parts import Episodes, ScaledReward, group_rows, on_last_decision


@dataclass(frozen=True)
class SimilarityUtility(Choice):
    """score = share * cosine + (1 - share) * (utility + bonus * sqrt(ln N / n)),  N = sum of all n; a cosine below
    `cut` is out.

    share 1 is similarity alone; bonus 0 does not explore.
    """

    share: float = 0.6
    bonus: float = 1.0
    cut: float = 0.4

    def __call__(self, cosine_M: Tensor, utility_M: Tensor, count_M: Tensor) -> Tensor:
        """Scores [M]; -inf for lessons that are out."""
        explored = utility_M + self.bonus * (count_M.sum().log() / count_M).sqrt()
        score = self.share * cosine_M + (1.0 - self.share) * explored
        return torch.where(cosine_M < self.cut, -torch.inf, score)


@dataclass(frozen=True)
class Lessons(Rollout):
    """Episodes in groups; the second half of each group is shown the lesson with the highest score, if one is near.

    A lesson is a task's prompt with a completion that won. It is stored with utility 1/2 and count 1; each row that was
    shown it moves utility <- (1 - rate) utility + rate * won, count <- count + 1, and so does finding it again.
    Similarity is the cosine of counts of `letters` characters in a row, of prompts. `hinted` marks the rows that were
    shown one, and their `source` is HINTED. Degenerate: an empty memory is `Episodes`.
    """

    gather: Episodes = Episodes()
    retrieve: SimilarityUtility = SimilarityUtility()
    rate: float = 0.05
    letters: int = 2
    threshold: float = 0.5
    writes: ClassVar[tuple[str, ...]] = ("hinted",)

    @property
    def num_starts(self) -> int:
        """As many as the rollout inside asks for."""
        return self.gather.num_starts

    def init(self, scene: Scene) -> State:
        """No lessons; refuses a task without prompts."""
        if not isinstance(scene.task, PromptedTask):
            raise AssayError(f"task '{scene.task.name}' has no prompts to put a lesson into. Use rollout Episodes()")
        return {"lessons": []}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Rewarded episodes; the memory then has what they showed."""
        task, members = scene.task, self.gather.group_size
        assert isinstance(task, PromptedTask)
        rows, samples = group_rows(scene.starts, members)
        prompts = task.prompts(scene.starts, scene.split)
        near = [self.nearest(prompt, state["lessons"]) for prompt in prompts]
        shown = [near[row // members] if row % members >= members // 2 else None for row in range(len(rows))]
        told = [
            prompts[row // members] if lesson is None else f"{lesson['text']} {prompts[row // members]}"
            for row, lesson in enumerate(shown)
        ]
        played = task.play_prompts(scene.actor, told, rows, samples, scene.draw, split=scene.split)
        hinted = torch.tensor([lesson is not None for lesson in shown])
        source = torch.where(hinted, int(Origin.HINTED), int(Origin.POLICY))
        fresh = scene.reward(played.with_columns(source=source).add({"hinted": hinted}))
        won = (fresh.extra.get("score", torch.zeros(len(fresh))) > self.threshold).tolist()
        for lesson, has_won in zip(shown, won, strict=True):
            if lesson is not None:
                self.learn(lesson, has_won)
        self.remember(task.texts(fresh, scene.split), won, state["lessons"])
        scene.log("lessons", float(len(state["lessons"])))
        return fresh

    def nearest(self, prompt: str, lessons: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The lesson with the highest score for a prompt; None where none is near."""
        if not lessons:
            return None
        own = pieces(prompt, self.letters)
        cosine = torch.tensor([cosine_of(own, pieces(lesson["prompt"], self.letters)) for lesson in lessons])
        utility, count = (torch.tensor([float(lesson[name]) for lesson in lessons]) for name in ("utility", "count"))
        score = self.retrieve(cosine, utility, count)
        return lessons[int(score.argmax())] if bool(score.isfinite().any()) else None

    def learn(self, lesson: dict[str, Any], has_won: bool) -> None:
        """Moves a lesson's utility towards whether the row that was shown it won."""
        lesson["utility"] = (1.0 - self.rate) * lesson["utility"] + self.rate * float(has_won)
        lesson["count"] += 1

    def remember(self, told: list[dict[str, Any]], won: list[bool], lessons: list[dict[str, Any]]) -> None:
        """Stores one lesson for each prompt that was won; one that is known is learned from instead."""
        new = {
            row["prompt"]: f"{row['prompt']}{row['completion']}"
            for row, has_won in zip(told, won, strict=True)
            if has_won
        }
        known = {lesson["text"]: lesson for lesson in lessons}
        for prompt, text in new.items():
            if text in known:
                self.learn(known[text], True)
            else:
                lessons.append({"prompt": str(prompt), "text": text, "utility": 0.5, "count": 1})


def pieces(text: str, num: int) -> Counter[str]:
    """How often each run of `num` characters stands in a text."""
    return Counter(text[place : place + num] for place in range(len(text) - num + 1))


def cosine_of(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Cosine of two counts; 0 where one is empty."""
    sizes = [sum(count * count for count in counts.values()) for counts in (one, other)]
    shared = sum(count * other.get(piece, 0) for piece, count in one.items())
    return shared / float(sizes[0] * sizes[1]) ** 0.5 if all(sizes) else 0.0


Shares = Callable[[Sequence[Mapping[str, Any]]], list[float]]
"""(rows as `TextTask.texts` describes them) -> which share of its subtasks each completed, from the row alone."""


History = Callable[[Tensor, Tensor, groups.Groups], Tensor]
"""(phi_B, won_B, groups) -> what its group has reached, for later attempts to exceed, [B]."""


def prefix_share(rows: Sequence[Mapping[str, Any]], separator: str = "") -> list[float]:
    """Returns the share of the answer's parts before the first wrong one: characters, or what `separator` separates."""
    found = []
    for row in rows:
        answer, said = (
            (text.split(separator) if separator else list(text))
            for text in (str(row["answer"]).strip(), str(row["completion"]).strip())
        )
        right = takewhile(lambda pair: pair[0] == pair[1], zip(answer, said, strict=False))
        found.append(len(list(right)) / max(1, len(answer)))
    return found


def group_success(phi_B: Tensor, won_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Returns the share of the group that won: the released rule. If no attempt ever wins, each is paid in full."""
    return groups.mean(won_B.to(phi_B.dtype), by_group)


def best_progress(phi_B: Tensor, won_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Returns the group's largest share of subtasks: what is paid for a task over time then sums to its final best."""
    return -groups.lowest(torch.where(by_group.share > 0, -phi_B, 0.0), by_group)


@dataclass(frozen=True)
class Progress(Reward):
    """reward <- reward + coefficient * max(0, phi - best), on the last decision; then best <- max(best, history).

    phi is the share of subtasks (1 if `score` is above `threshold`: the row won; 0 if nothing could be read). best
    is kept for each prompt, from 0 on. All rows of a batch are paid by what was best before it.
    """

    phi: Shares = prefix_share
    history: History = group_success
    coefficient: float = 1.0
    threshold: float = 0.5
    reads: ClassVar[Mapping[str, str]] = {"score": "B"}

    def init(self, scene: Scene) -> State:
        """Nothing reached; refuses a task without texts."""
        if scene.task is not None and not isinstance(scene.task, TextTask):
            raise AssayError(f"task '{scene.task.name}' has no answers to take subtasks from. Use a task of prompts")
        return {"best": {}}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """The experience with progress paid; logs it, and what had been reached."""
        assert isinstance(scene.task, TextTask)
        told, best = scene.task.texts(experience, scene.split), state["best"]
        won, there = experience.column("score") > self.threshold, experience.mask.any(1)
        phi = torch.where(won, 1.0, torch.tensor(self.phi(told)).to(won.device))
        if "policy_fault" in experience.extra:
            phi = torch.where(experience.extra["policy_fault"].bool(), 0.0, phi)
        before = torch.tensor([best.get(row["prompt"], 0.0) for row in told], device=won.device)
        gain = self.coefficient * (phi - before).clamp(min=0.0)
        reached = self.history(phi, won & there, groups.row_groups(experience))
        for row, value, is_there in zip(told, reached.tolist(), there.tolist(), strict=True):
            if is_there:
                best[str(row["prompt"])] = max(best.get(row["prompt"], 0.0), value)
        scene.log("progress_paid", float(gain[there].sum()), float(there.sum()))
        scene.log("progress_before", float(before[there].sum()), float(there.sum()))
        return experience.with_columns(reward=experience.reward + on_last_decision(experience, gain).reward)


def recipe(preset: Preset = LANGUAGE, history: History = group_success, lessons: bool = True) -> Recipe:
    base = recipes.grpo(preset)
    assert isinstance(base.rollout, Episodes)
    rewards = (Verifier(), ScaledReward(10.0), Progress(history=history))
    return replace(base, name="retroagent", rewards=rewards, rollout=Lessons(base.rollout) if lessons else base.rollout)


METHOD = Method(
    paper="arXiv:2603.08561",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-3",
    family="guidance",
    base=recipes.grpo,
    variants={"best-progress": lambda preset: recipe(preset, best_progress)},
    departures=(
        "phi is a program: the share of the answer that the completion begins with; no reflection by the model",
        "a lesson is a solved prompt of an earlier group, not a text by the model; similarity is of letter pairs",
        "an evaluation never sees a lesson; the authors show it three",
        "no KL to the reference (authors: 0.01), no second loss on reflections; an attempt is one answer",
        "small models cannot read a lesson: progress is measured without them, retrieval as a bandit",
    ),
)
