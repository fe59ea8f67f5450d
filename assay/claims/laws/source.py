"""Laws of sources: they yield only what they were given or what the task demonstrates, and resume exactly.

Axes: B rows, T columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.cases import EPISODES, RAGGED, TOKENS, TORQUES, build, with_dtype
from assay.claims.laws.handed import Handed, reads_models
from assay.claims.laws.invariance import changed_columns
from assay.claims.laws.laws import Contract, Finding, Unsuited, declares, law, runs
from assay.claims.laws.rollout import brief_cartpole, brief_pendulum
from assay.claims.laws.state import continuing
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Outcome, Score, concatenate
from assay.core.slots import DemonstratedTask, PairedTask, Scene, Task
from assay.core.spaces import Box
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.addition import addition
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.items import Item
from assay.tasks.tabular.grids import FOUR_ROOMS, grid_task

ENOUGH = 1500
"""Decisions in one step's fresh experience: more than any default warm-up."""


@dataclass(frozen=True)
class SourceCase:
    """A task and one step's fresh experience; every decision has a reward of its own."""

    name: str
    task: Task
    fresh: Experience

    def handed(self, part: Any) -> Handed:
        """Returns the models that the part declares, for the spaces of the experience, or of a task whose actions are
        numbers.
        """
        own = self.task.spec if isinstance(self.task.spec.action, Box) else TORQUES
        return Handed(part.models, TOKENS if "tokens" in self.fresh.context else own)


@dataclass(frozen=True)
class TwoSums:
    """Sums with a right and a wrong answer."""

    def item(self, ordinal: int, split: int) -> Item:
        """Returns the sum of the ordinal and one."""
        total = ordinal + 1
        return Item(f"{ordinal}+1=", str(total), str(total), {"rejected": str(total + 1)})

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the sum."""
        return Score(float(completion == item.answer))


def pairs_task() -> PairsTask:
    """Returns preference pairs that need no file."""
    return PairsTask(PromptTask("pairs of sums", TwoSums(), CharacterTokenizer(), max_prompt=12, max_tokens=12))


def source_cases(part: Any, task: Task | None = None) -> list[SourceCase] | list[Unsuited]:
    """Returns both worlds and pairs, or the given task; only those that the source can start on."""
    tokens, torques = build(TOKENS, RAGGED), build(TORQUES, EPISODES)
    goals = grid_task("four rooms", FOUR_ROOMS, 20)
    worlds: list[tuple[Task, Experience]] = [(addition(1), tokens), (brief_cartpole(), torques), (pairs_task(), tokens)]
    worlds.append((goals, torques))  # for those that need goals; the others have been seen by then
    worlds.append((brief_pendulum(), torques))  # for those that need actions that are numbers
    found: list[SourceCase] = []
    refusals: list[str] = []
    for one, batch in worlds if task is None else [(task, tokens)]:
        if found and one in (goals, worlds[-1][0]):
            break
        try:
            part.init(Scene(one))
        except AssayError as error:
            refusals.append(str(error))
            continue
        found.append(SourceCase(f"task {one.name}", one, marked(batch)))
    return found[:2] or [Unsuited("every task", "; ".join(refusals))]


def marked(batch: Experience) -> Experience:
    """Returns the batch, repeated until there are enough decisions, with a different reward for each of them."""
    times = -(-ENOUGH // int(batch.mask.sum()))
    copies = [
        replace(batch, group=(batch.group if batch.group is not None else torch.arange(len(batch))) + 100 * k)
        for k in range(times)
    ]
    whole = with_dtype(concatenate(copies), torch.float32)
    numbers = torch.zeros_like(whole.reward)
    numbers[whole.mask] = torch.arange(1, int(whole.mask.sum()) + 1).to(numbers.dtype)
    return replace(whole, reward=numbers)


def step(part: Any, case: SourceCase, state: Any, number: int) -> list[Experience]:
    """Returns the batches of one step."""
    fresh = replace(case.fresh, reward=case.fresh.reward + 10_000 * number * case.fresh.mask)
    models = case.handed(part)
    batches = part(Scene(case.task, models, Draw(3, (number,)), fresh=fresh), state)
    return [batch.map(torch.clone) for batch in batches]


def rewards(batches: list[Experience]) -> Tensor:
    """Returns the rewards of all decisions that were yielded: which decisions these are."""
    return torch.cat([batch.reward[batch.mask] for batch in batches]) if batches else torch.empty(0)


@law("it yields batches with decisions")
def yields(part: Any, case: SourceCase) -> Iterator[str]:
    """Within three steps of plenty of experience."""
    state = part.init(Scene(case.task))
    batches = [batch for number in range(3) for batch in step(part, case, state, number)]
    if not len(rewards(batches)):
        yield f"nothing in three steps with {int(case.fresh.mask.sum())} decisions each"


@law("it yields only what it was given, or what the task shows")
def own(part: Any, case: SourceCase) -> Iterator[str]:
    """Each decision is one of the fresh ones so far, or one that the task shows for its start."""
    state = part.init(Scene(case.task))
    for number in range(2):
        for batch in step(part, case, state, number):
            found = rewards([batch])
            place = found.remainder(10_000)
            known = (
                (place >= 1)
                & (place <= int(case.fresh.mask.sum()))
                & (found // 10_000 <= number)
                & (place == place.round())
            )
            if not bool(known.all()) and not decisions_of(batch) <= shown_by(case.task, batch):
                yield f"at step {number} it yielded decisions not given to it: rewards {found[~known][:5].tolist()}"


def decisions_of(batch: Experience) -> set[str]:
    """Returns each decision with its start, action and reward, as text."""
    row, column = batch.mask.nonzero(as_tuple=True)
    start = batch.extra["start"][row].tolist() if "start" in batch.extra else [None] * len(row)
    done, worth = batch.action[row, column].tolist(), batch.reward[row, column].tolist()
    return {repr(decision) for decision in zip(start, done, worth, strict=True)}


def shown_by(task: Task, batch: Experience) -> set[str]:
    """Returns the decisions that the task shows for the starts of a batch."""
    if "start" not in batch.extra or bool((batch.extra["start"] < 0).any()):
        return set()
    starts, found = torch.unique(batch.extra["start"]).numpy(), set[str]()
    if isinstance(task, DemonstratedTask):
        found |= decisions_of(task.demonstrate(starts, 0))
    if isinstance(task, PairedTask):
        found |= decisions_of(task.pairs(starts, 0))
    return found


@law("in one step it yields every fresh decision `epochs` times", declares("epochs"))
def each_epoch(part: Any, case: SourceCase) -> Iterator[str]:
    """Nothing is skipped, nothing comes twice in an epoch."""
    found = rewards(step(part, case, part.init(Scene(case.task)), 0)).long()
    times = torch.bincount(found, minlength=int(case.fresh.mask.sum()) + 1)[1:]
    if not bool((times == part.epochs).all()):
        yield f"decisions come {int(times.min())} to {int(times.max())} times in {part.epochs} epochs"


@law("the fresh experience is not modified")
def unmodified(part: Any, case: SourceCase) -> Iterator[str]:
    """Neither when it is taken in nor when batches are drawn."""
    fresh = case.fresh.map(torch.clone)
    models = case.handed(part)
    list(part(Scene(case.task, models, Draw(3), fresh=fresh), part.init(Scene(case.task))))
    yield from changed_columns(case.fresh, fresh)


def used(part: Any, case: SourceCase) -> Handed:
    """Draws one step's batches; returns the models that were handed."""
    models = case.handed(part)
    list(part(Scene(case.task, models, Draw(3), fresh=case.fresh), part.init(Scene(case.task))))
    return models


STATE = continuing(lambda part, case: part.init(Scene(case.task)), step)
SOURCE = Contract("source", (runs, yields, own, each_epoch, *STATE, unmodified, reads_models(used)), source_cases)


def check_source(part: Any, task: Task | None = None) -> list[Finding]:
    """Checks the laws of a source, on a task or on one of each world."""
    return SOURCE.check(part, source_cases(part, task))
