"""Marks of steps on given answers, for claims of methods that use a judge of steps. Axes: B rows, T columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import comb

import numpy as np
import torch
from torch import Tensor

from assay.claims import Exact, probes
from assay.claims.testbeds.language.places import key_decisions
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience
from assay.core.slots import Chat, Scene
from assay.parts import StepMarks
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.sorting import sorting

SOLVED = Item("q", "72", "72", {"steps": ["48/2=24", "-48+24=1,072.5"]})
"""A prompt with a worked solution."""
ALLOWED = Item("p", "3", "3", {"steps": [["3", "5"], ["7"]]})
"""A prompt with what each place may say."""
TASK = probes.listed(SOLVED, ALLOWED)

MARKED: tuple[tuple[int, tuple[str, ...], tuple[float, ...]], ...] = (
    (0, ("48/2=24", "so", "25+24=49", "1072.50", "72-48", "=-48.", "7-72,"), (1, 1, 0, 1, 1, 1, 1)),
    (0, ("3",), (0,)),
    (1, ("5", "6", "9"), (1, 0, 1)),
    (1, ("7", "7"), (0, 1)),
    (0, ("72",), (1,)),
)
"""(prompt, steps, scores by the program); the last row has left training."""


def marks_of(ours: Recipe, **changes: object) -> StepMarks:
    """Returns the recipe's judge of steps, asked once and without noise unless `changes` say otherwise."""
    part = next(part for part in ours.credit if isinstance(part, StepMarks))
    return replace(part, **{"votes": 1, "noise": 0.0, **changes})  # type: ignore[arg-type]


def answers(part: StepMarks) -> Experience:
    """Returns the answers of `MARKED`, their steps set apart as the part reads them, in one row each."""
    said = [part.steps.separator.join(steps) for _, steps, _ in MARKED]
    return probes.completed(TASK, said, [prompt for prompt, _, _ in MARKED], faults=[len(MARKED) - 1])


def expected(part: StepMarks, scores: Sequence[Sequence[float] | None]) -> Tensor:
    """Returns the column `step_score`: a score on each decision of its step, separators and the end token included; 0
    in rows without an opinion, and in the last row.
    """
    rows = answers(part)
    found = torch.zeros(rows.mask.shape, dtype=torch.float64)
    for row, ((_, steps, _), given) in enumerate(zip(MARKED[:-1], scores, strict=True)):
        if given is not None:
            each = [[score] * (len(step) + 1) for step, score in zip(steps, given, strict=True)]
            found[row, rows.mask[row]] = torch.tensor([score for own in each for score in own], dtype=torch.float64)
    return found


def gap(part: StepMarks, scores: Sequence[Sequence[float] | None]) -> float:
    """Returns the largest difference of the column from these scores, or 1 if other rows are in training."""
    rows, scene = answers(part), Scene(TASK)
    after = part(rows, scene, part.init(scene))
    there = torch.tensor([one is not None for one in (*scores, None)])
    return probes.worst(
        probes.distance(after.column("step_score"), expected(part, scores)),
        float(not torch.equal(after.mask, rows.mask & there.unsqueeze(1))),
        abs(scene.metrics["unjudged"][0][0] - sum(one is None for one in scores)),
    )


def program_gap(ours: Recipe) -> float:
    """Returns how far the program's scores are from `MARKED`, asked once and three times."""
    scores = [one for _, _, one in MARKED[:-1]]
    return probes.worst(*(gap(marks_of(ours, votes=votes), scores) for votes in (1, 3)))


def chat_gap(ours: Recipe, chat: Chat, scores: Sequence[Sequence[float] | None]) -> float:
    """Returns how far a chat model's scores are from the expected ones."""
    part = marks_of(ours)
    return gap(replace(part, judge=part.judge.with_judge(chat)), scores)  # type: ignore[attr-defined]


def noise_gap(ours: Recipe, noise: float = 0.2, votes: int = 7, num: int = 600) -> float:
    """Returns how far the shares of steps with k of `votes` true opinions are from the binomial's, over 1,200 steps; 1
    more if the opinions about every second row are others without the rows between them.
    """
    part = marks_of(ours, votes=votes, noise=noise)
    said = [part.steps.separator.join("57"), *[part.steps.separator.join("579")] * num]
    rows = probes.completed(TASK, said, [1] * (num + 1))
    scene = Scene(TASK, draw=Draw(3))
    score = part(rows, scene, {}).column("step_score")
    first = score[1:][rows.mask[1:]].view(num, -1)[:, [0, -1]]
    share = torch.bincount((first * votes).round().long().flatten(), minlength=votes + 1) / (2.0 * num)
    right = [comb(votes, k) * (1 - noise) ** k * noise ** (votes - k) for k in range(votes + 1)]
    half = part(rows.rows(torch.arange(0, num + 1, 2)), scene, {}).column("step_score")
    return probes.distance(share, right) + float(not torch.equal(half, score[::2]))


def token_gap(ours: Recipe) -> float:
    """Returns how far scores are from those of single tokens where no line break can be written: a right digit has 1,
    a wrong one 0, the end token 1.
    """
    task = key_decisions(length=3, keys=3, accepted=2)
    rows = task.texts(task.demonstrate(np.arange(2), 0), 0)
    codes = [[may[0] for may in row["steps"]] for row in rows]
    wrong = str((int(codes[1][1]) + 5) % 10)
    given = probes.completed(task, ["".join(codes[0]), codes[1][0] + wrong + codes[1][2]], [0, 1], cut=[1])
    found = marks_of(ours)(given, Scene(task), {}).column("step_score")
    return probes.distance(found[given.mask], [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0])


def judge_claims(
    recipe: Callable[[], Recipe], chat: tuple[str, Chat, Sequence[Sequence[float] | None]] | None = None
) -> tuple[Exact, ...]:
    """Returns the claims on a recipe's judge of steps: what the program says, what is read of a chat model, given as a
    claim's name, its answers and the scores that they mean, noise, and tasks without steps.
    """
    program = "the program marks steps of a worked solution, and of what places may say, as by hand"
    read = () if chat is None else (Exact(chat[0], lambda: chat_gap(recipe(), *chat[1:]), equals=0.0),)
    return (
        Exact(program, lambda: program_gap(recipe()), equals=0.0),
        *read,
        Exact("where no line break can be written each token is a step", lambda: token_gap(recipe()), equals=0.0),
        Exact("with noise of a fifth the votes of 7 opinions are binomial, and a row's are its own",
              lambda: noise_gap(recipe()), at_most=0.03),
        Exact("tasks without the field `steps` are refused", lambda: accepted(recipe()), equals=0.0, of="refusals"),
    )  # fmt: skip


def accepted(ours: Recipe) -> float:
    """Returns how many tasks without steps are not refused."""
    bare: tuple[PromptTask, ...] = (sorting(3), probes.listed(Item("q", "7", "7")))
    return float(sum(not probes.is_refused(ours, task) for task in bare))


def with_scores(data: Experience, seed: int = 0, levels: int = 5) -> Experience:
    """Returns the experience with random steps of one to three decisions, and a score in `levels` levels on each."""
    draw = torch.Generator().manual_seed(seed)
    begins = torch.rand(data.mask.shape, generator=draw) < 0.5
    segment = begins.long().cumsum(1)
    table = torch.randint(0, levels, (len(data), int(segment.max()) + 1), generator=draw).double() / (levels - 1)
    return replace(data, segment=segment).add({"step_score": table.gather(1, segment)})


SCORED = tuple(partial(lambda one: with_scores(one()), one) for one in probes.ANY_OUTCOME)
"""Data of every kind, with scores."""


def steps_by_hand(data: Experience, row: int) -> list[list[int]]:
    """Returns the columns of each step of a row."""
    assert data.segment is not None
    found: list[list[int]] = []
    last = None
    for column in np.flatnonzero(data.mask[row].numpy()).tolist():
        label = int(data.segment[row, column])
        if label != last:
            found.append([])
        found[-1].append(column)
        last = label
    return found
