"""mpo-meta: ppo against a rubric judge whose rubric a meta-judge rewrites every T steps.

    r = sum_i points_i(y; rubric_v) / attainable maximum of rubric_v,   rubric_(v+1) = meta(rubric_v, m rollouts)

Kim et al. 2025. A fixed rubric is exploited sooner or later: a policy collapsed to titles without an essay. The
meta-judge reads samples with their scores and closes what is exploited; it never sees a gold label. On the testbed both
are programs; elsewhere the rubric is the user's (`--rubric`), or a chat model (`--judge`) judges and rewrites it.

Axes: B sequences.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Chat, Choice, Copy, Experience, Method, Preset, PromptTask, Recipe, Scene
from assay.method import State, TextTask, filled, hash_of_text, random, recipes
from assay.parts import KlInReward, OfText, on_last_decision
from assay.tasks.language.proxy_strings import ProxyStrings

Rows = Sequence[Mapping[str, Any]]


FACT = re.compile(r"\{([a-z]+)\}")


@dataclass(frozen=True)
class Criterion(Choice):
    """One item of a rubric: each match of `pattern` gives `worth` points, and each one after `limit` takes as many.

    "{answer}" in a pattern stands for the prompt's own fact of that name. To a chat model the pattern is what earns
    points, in words, and worth * limit are the most points.
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


# ---------------------------------------------------------------------------------------------------- a chat model
GENERAL: Rubric = (
    Criterion("right", "The answer is correct and does what the task asks for.", 1.0, 6),
    Criterion("reasons", "Every step or claim is justified by what stands before it.", 1.0, 3),
    Criterion("brief", "Nothing is repeated, and nothing is there that the task does not need.", 1.0, 1),
)
"""The first rubric of a chat model that judges, where the user gives none."""


ASKED = """Score the answer by each criterion.

Task:
{prompt}

Answer:
{completion}

Criteria:
{criteria}

End with one line for each criterion: NAME: POINTS"""


REWRITTEN = """A model is trained on the points that this rubric gives to its answers:

{criteria}

Below are some of its answers with their points. Find what earns points without solving the task (repeated words, empty
praise, the rubric's own words), and rewrite the rubric so that it earns none and good answers still do.

{shown}

Write one line for each criterion of the new rubric, and nothing after them: NAME | MOST POINTS | WHAT EARNS THEM"""
LINE = re.compile(r"^\s*([^|\n]{1,40}?)\s*\|\s*(\d{1,3})\s*\|\s*(\S.*?)\s*$", re.MULTILINE)


def written(rubric: Rubric) -> str:
    """The rubric as a chat model reads it."""
    return "\n".join(f"{one.name}: {one.pattern} (0 to {one.most:g} points)" for one in rubric)


@dataclass(frozen=True)
class ChatRubric(Choice):
    """Judges and rewrites by a chat model: points are read after the last "NAME:", a rubric from its lines.

    Points outside of the criterion's range cannot be read. Degenerate: of an answer without a rubric the old one stays.
    """

    ask: Chat
    characters: int = 600

    def judge(self, rubric: Rubric, rows: Rows) -> list[list[float | None]]:
        """Points of each row for each criterion."""
        criteria = written(rubric)
        shown = [{name: row[name] for name in ("prompt", "completion")} | {"criteria": criteria} for row in rows]
        said = self.ask([filled(ASKED, one) for one in shown])
        return [[stated(one, answer) for one in rubric] for answer in said]

    def rewrite(self, rubric: Rubric, rollouts: Rows) -> Rubric:
        """The next rubric."""
        shown = [
            f"Task: {str(row['prompt'])[: self.characters]}\nAnswer: {str(row['completion'])[: self.characters]}\n"
            f"Points: {row['score']:g}"
            for row in rollouts
        ]
        asked = filled(REWRITTEN, {"criteria": written(rubric), "shown": "\n\n".join(shown)})
        (said,) = self.ask([asked])
        found = tuple(Criterion(name, words, 1.0, int(most)) for name, most, words in LINE.findall(said) if int(most))
        return found or rubric


def stated(criterion: Criterion, answer: str) -> float | None:
    """Points that an answer states for a criterion; None without a number from 0 to the most."""
    found = re.findall(rf"(?im)^\W*{re.escape(criterion.name)}\W*?:\W*?(\d+(?:\.\d+)?)", answer)
    return float(found[-1]) if found and float(found[-1]) <= criterion.most else None


# ---------------------------------------------------------------------------------------------------- the reward
LOOSE: Rubric = (Criterion(), Criterion("title", "#", 2.0, 12), Criterion("praise", "!", 1.5, 12))
"""The testbed's: pays marks of both kinds for as long as the text may be, two loopholes."""


@dataclass(frozen=True)
class EvolvingRubric(OfText):
    """reward = scale(sum of the points for all criteria), by a rubric that `rewrite` replaces every `every` steps.

    Points that cannot be read count 0. Steps 0 .. every - 1 are scored by version 0, the next `every` by version 1, and
    so on; a step has one version. The rewrite sees `samples` rollouts of the last interval, drawn evenly. Rubric,
    version and drawn rollouts are its state. Writes `rubric_version` and `rubric_hash` [B]. Without a `first` rubric
    the testbed has its own, and other tasks are refused.
    """

    first: Rubric = ()
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
        """Returns version 0; refuses a task without text, and one that no rubric was given for."""
        if self.every < 1:
            raise AssayError(f"EvolvingRubric.every is {self.every}. Give at least 1")
        rubric = self.first_on(scene.task)
        if not rubric:
            what = f"mpo-meta pays by a rubric, and task '{scene.task.name}' has none"
            raise AssayError(f"{what}. Add --rubric FILE.json, or --judge URL for a chat model that judges by its own")
        first = [list(astuple(one)) for one in rubric]
        return {**super().init(scene), "version": 0, "rubric": first, "rollouts": []}

    def first_on(self, task: Any) -> Rubric:
        """The first rubric on a task: the one that is set, else the testbed's, else none."""
        is_testbed = task is None or (isinstance(task, PromptTask) and isinstance(task.items, ProxyStrings))
        return self.first or (LOOSE if is_testbed else ())

    def with_rubric(self, rows: Rows) -> Any:
        """Returns the same with the criteria of a file as its first rubric."""
        return replace(self, first=tuple(map(criterion_of, rows)))

    def with_judge(self, ask: Chat) -> Any:
        """Returns the same with a chat model that judges and that rewrites the rubric."""
        model = ChatRubric(ask)
        return replace(self, first=self.first or GENERAL, judge=model.judge, rewrite=model.rewrite)

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


def criterion_of(row: Mapping[str, Any]) -> Criterion:
    """The criterion of a row of a file; AssayError names a field that is missing, wrong or unknown."""
    known = {"name": str, "pattern": str, "worth": (int, float), "limit": int}
    wrong = [key for key, value in row.items() if not isinstance(value, known.get(key, ()))]  # type: ignore[arg-type]
    wrong += [key for key in ("name", "pattern") if key not in row]
    if wrong:
        fields = ", ".join(known)
        raise AssayError(f"--rubric: the field '{wrong[0]}' of a criterion is wrong: {dict(row)}. It has {fields}")
    try:
        re.compile(FACT.sub("", row["pattern"]))
    except re.error as error:
        raise AssayError(f"--rubric: the pattern of '{row['name']}' is not a regular expression: {error}") from None
    return Criterion(**row)


def hash_of(rubric: Rubric) -> int:
    """63 bits that tell rubrics apart."""
    return hash_of_text(repr([astuple(one) for one in rubric])) >> 1


def recipe(preset: Preset = LANGUAGE, rubric: Rubric = (), every: int = 10) -> Recipe:
    """Returns ppo on the scores of a judge whose rubric is rewritten after every `every` steps."""
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
        "on the testbed judge and meta-judge are programs; with --judge a chat model is both, in one call for each "
        "answer and one for each rewrite; the authors ask models of 32B to 72B and merge m rubrics",
        "measured rivals are the fixed rubric and an oracle's, which pays content alone",
        "scores are divided by the version's attainable maximum; scale=plain_sum is the authors' raw sum",
        "the KL coefficient is 0.02 / 5: the authors' first rubric gives 0 to 5 points, ours 0 to 1",
        "no penalty for a missing end token; no clipped value loss; 32 rollouts a rewrite instead of 16 to 20",
    ),
)
