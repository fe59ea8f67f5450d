"""Lessons from earlier attempts, arms of a bandit, shown to half of each group. Axes: B rows, M lessons."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import AssayError, Chat, Choice, Experience, Origin, ReplayableTask, Rollout, Scene, State
from assay.methods.retroagent.reflection import ChatReflection, OwnReflection, Reflect, solved_example
from assay.parts import Episodes, group_rows


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
    """Episodes in groups, answers or whole conversations; the second half of each group is shown the lesson with the
    highest score, if one is near.

    A lesson is what `reflect` makes of one attempt at each prompt: the last that won, else the last. It is stored
    with utility 1/2 and count 1; each row that was shown it moves utility <- (1 - rate) utility + rate * won, count
    <- count + 1, and so does finding it again. Similarity is the cosine of counts of `letters` characters in a row,
    of prompts. `hinted` marks the rows that were shown one, and their `source` is HINTED. Degenerate: an empty memory
    is `Episodes`.
    """

    gather: Episodes = Episodes()
    retrieve: SimilarityUtility = SimilarityUtility()
    rate: float = 0.05
    letters: int = 2
    threshold: float = 0.5
    reflect: Reflect = solved_example
    writes: ClassVar[tuple[str, ...]] = ("hinted",)

    @property
    def num_starts(self) -> int:
        """As many as the rollout inside asks for."""
        return self.gather.num_starts

    def init(self, scene: Scene) -> State:
        """No lessons; refuses a task without prompts."""
        if not isinstance(scene.task, ReplayableTask):
            raise AssayError(f"task '{scene.task.name}' has no prompts to put a lesson into. Use rollout Episodes()")
        if isinstance(self.reflect, OwnReflection):
            self.reflect.check(scene.task)
        return {"lessons": []}

    def with_judge(self, ask: Chat) -> Any:
        """Returns the same with a chat model that writes the lessons."""
        return replace(self, reflect=ChatReflection(ask))

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Rewarded episodes; the memory then has what they showed."""
        task, members = scene.task, self.gather.group_size
        assert isinstance(task, ReplayableTask)
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
        self.remember(scene, task.texts(fresh, scene.split), won, state["lessons"])
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

    def remember(
        self, scene: Scene, told: list[dict[str, Any]], won: list[bool], lessons: list[dict[str, Any]]
    ) -> None:
        """Stores one lesson for each prompt that gave one; one that is known is learned from instead."""
        chosen = dict[str, int]()
        for row, has_won in enumerate(won):
            if has_won or not won[chosen.get(told[row]["prompt"], row)]:
                chosen[told[row]["prompt"]] = row
        rows, known = list(chosen.values()), {lesson["text"]: lesson for lesson in lessons}
        found = self.reflect(scene, [told[row] for row in rows], [won[row] for row in rows])
        for row, text in zip(rows, found, strict=True):
            if text in known:
                self.learn(known[text], won[row])
            elif text:
                lessons.append({"prompt": str(told[row]["prompt"]), "text": text, "utility": 0.5, "count": 1})


def pieces(text: str, num: int) -> Counter[str]:
    """How often each run of `num` characters stands in a text."""
    return Counter(text[place : place + num] for place in range(len(text) - num + 1))


def cosine_of(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Cosine of two counts; 0 where one is empty."""
    sizes = [sum(count * count for count in counts.values()) for counts in (one, other)]
    shared = sum(count * other.get(piece, 0) for piece, count in one.items())
    return shared / float(sizes[0] * sizes[1]) ** 0.5 if all(sizes) else 0.0
