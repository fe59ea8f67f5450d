"""mpo-meta: ppo against a rubric judge whose rubric a meta-judge rewrites every T steps.

    r = sum_i points_i(y; rubric_v) / attainable maximum of rubric_v,   rubric_(v+1) = meta(rubric_v, m rollouts)

Kim et al. 2025. A fixed rubric is exploited sooner or later: a policy collapsed to titles without an essay. The
meta-judge reads samples with their scores and closes what is exploited; it never sees a gold label.

Axes: B sequences.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Choice, Copy, Experience, Method, Preset, Recipe, Scene, State, TextTask
from assay.method import hash_of_text, random, recipes
from assay.parts import KlInReward, OfText, on_last_decision

Rows = Sequence[Mapping[str, Any]]


FACT = re.compile(r"\{([a-z]+)\}")


@dataclass(frozen=True)
class Criterion(Choice):
    """One item of a rubric: each match of `pattern` gives `worth` points, and each one after `limit` takes as many.

    "{answer}" in a pattern stands for the prompt's own fact of that name.
    """

    name: str = "content"
    pattern: str = "[{answer}]"
    worth: float = 1.0
    limit: int = 4

    @property
    def most(self) -> float:
        """The largest number of points."""
        return max(0.0, self.worth * self.limit)

    def matches(self, row: Mapping[str, Any]) -> list[str]:
        """What the pattern finds in the row's completion."""
        pattern = FACT.sub(lambda fact: re.escape(str(row[fact[1]])), self.pattern)
        return re.findall(pattern, str(row["completion"]))


Rubric = tuple[Criterion, ...]


Judge = Callable[[Rubric, Rows], list[list[float | None]]]
"""(rubric, rows) -> points of each row for each criterion; None where they cannot be read."""


Rewrite = Callable[[Rubric, Rows], Rubric]
"""(rubric, rollouts) -> the next rubric: a meta-judge. Rollouts have prompt, completion, the prompt's facts and the
judge's score, not what the task's verifier says.
"""


def counted(rubric: Rubric, rows: Rows) -> list[list[float | None]]:
    """Judges as a program: worth * (matches up to the limit - matches beyond it)."""
    return [[points(one, len(one.matches(row))) for one in rubric] for row in rows]


def points(criterion: Criterion, count: int) -> float:
    """Points for so many matches."""
    return criterion.worth * (min(count, criterion.limit) - max(0, count - criterion.limit))


def limit_exploited(rubric: Rubric, rollouts: Rows, share: float = 0.5) -> Rubric:
    """Rewrites as a program: a criterion that gives over `share` of all points for the same words in every prompt is
    paid once, and further matches are deducted. Rollouts of a single prompt tell nothing and change nothing.
    """
    found = [[one.matches(row) for row in rollouts] for one in rubric]
    given = [sum(points(one, len(some)) for some in rows) for one, rows in zip(rubric, found, strict=True)]
    all_given = sum(max(0.0, one) for one in given)
    words = [{word for some in rows for word in some} for rows in found]
    is_told = len({row["prompt"] for row in rollouts}) > 1
    return tuple(
        replace(one, limit=1) if is_told and len(said) == 1 and part > share * all_given else one
        for one, part, said in zip(rubric, given, words, strict=True)
    )


def share_of_most(sum_B: Tensor, rubric: Rubric) -> Tensor:
    """Scales by the largest sum that the version can give: a rewrite does not change the units."""
    return sum_B / max(sum(one.most for one in rubric), 1e-8)


LOOSE: Rubric = (Criterion(), Criterion("title", "#", 2.0, 12), Criterion("praise", "!", 1.5, 12))
"""Pays marks of both kinds for as long as the text may be: two loopholes."""


@dataclass(frozen=True)
class EvolvingRubric(OfText):
    """reward = scale(sum of the points for all criteria), by a rubric that `rewrite` replaces every `every` steps.

    Points that cannot be read count 0. Steps 0 .. every - 1 are scored by version 0, the next `every` by version 1, and
    so on; a step has one version. The rewrite sees `samples` rollouts of the last interval, drawn evenly. Rubric,
    version and drawn rollouts are its state. Writes `rubric_version` and `rubric_hash` [B].
    """

    first: Rubric = LOOSE
    judge: Judge = counted
    rewrite: Rewrite = limit_exploited
    every: int = 10
    samples: int = 32
    scale: Callable[[Tensor, Rubric], Tensor] = share_of_most
    breaks: ClassVar[dict[str, str]] = {"shotgun_of_text": "the first rubric pays for counts; rewriting fixes it"}
    writes: ClassVar[Mapping[str, str]] = {
        "score": "B",
        "rubric_version": "B: number of the rubric that scored the row",
        "rubric_hash": "B: hash of that rubric",
    }

    def init(self, scene: Scene) -> State:
        """Returns version 0; refuses an empty rubric and a task without text."""
        if not self.first or self.every < 1:
            raise AssayError(f"EvolvingRubric has {len(self.first)} criteria and every={self.every}. Give at least 1")
        first = [list(astuple(one)) for one in self.first]
        return {**super().init(scene), "version": 0, "rubric": first, "rollouts": []}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites the rubric if it is due, then scores the rows and keeps some of them."""
        assert isinstance(scene.task, TextTask), "init refuses other tasks"
        rubric = tuple(Criterion(*one) for one in state["rubric"])
        if scene.progress.step // self.every > state["version"]:
            rubric = self.rewrite(rubric, state["rollouts"])
            version = scene.progress.step // self.every
            state.update(version=version, rubric=[list(astuple(one)) for one in rubric], rollouts=[])
        rows = scene.task.texts(experience, scene.split)
        given = self.judge(rubric, rows)
        sums = [sum(one or 0.0 for one in some) for some in given]
        for place, criterion in enumerate(rubric):
            scene.log(f"rubric/{criterion.name}", sum(some[place] or 0.0 for some in given), len(rows))
        scene.log("rubric_version", state["version"])
        self.keep(experience, rows, sums, scene, state)
        total = self.scale(torch.tensor(sums, dtype=experience.reward.dtype, device=experience.mask.device), rubric)
        ones = torch.ones(len(rows), dtype=torch.int64, device=experience.mask.device)
        marks = {"rubric_version": ones * state["version"], "rubric_hash": ones * hash_of(rubric)}
        return on_last_decision(experience, total).add(marks)

    def keep(self, experience: Experience, rows: Rows, sums: Sequence[float], scene: Scene, state: State) -> None:
        """Keeps the `samples` rollouts of the interval with the smallest random numbers: an even draw."""
        start, sample = (experience.column(name).cpu().numpy() for name in ("start", "sample"))
        drawn = random.uniform(scene.draw, start, sample).tolist()
        there = experience.mask.any(1).tolist()
        new = [
            {**row, "prompt": str(row["prompt"]), "score": score, "drawn": number}
            for row, score, number, is_there in zip(rows, sums, drawn, there, strict=True)
            if is_there
        ]
        state["rollouts"] = sorted([*state["rollouts"], *new], key=lambda one: one["drawn"])[: self.samples]


def hash_of(rubric: Rubric) -> int:
    """63 bits that tell rubrics apart."""
    return hash_of_text(repr([astuple(one) for one in rubric])) >> 1


def recipe(preset: Preset = LANGUAGE, rubric: Rubric = LOOSE, every: int = 10) -> Recipe:
    base = recipes.ppo(preset)
    return replace(
        base,
        name="mpo-meta",
        rewards=(EvolvingRubric(rubric, every=every),),
        credit=(KlInReward(0.02 / 5), *base.credit),
        copies={"reference": Copy("actor")},
    )


METHOD = Method(
    paper="arXiv:2504.20157",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="proxy-strings",
    family="preference",
    base=recipes.ppo,
    departures=(
        "judge and meta-judge are programs, or a user's; the authors ask models of 32B to 72B and merge m rubrics",
        "scores are divided by the version's attainable maximum; scale=plain_sum is the authors' raw sum",
        "the KL coefficient is 0.02 / 5: the authors' first rubric gives 0 to 5 points, ours 0 to 1",
        "no penalty for a missing end token; no clipped value loss; 32 rollouts a rewrite instead of 16 to 20",
    ),
)
