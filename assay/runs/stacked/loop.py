"""S loops that only update, stepped together: the same draws, stages, copies, metrics and guards, seed by seed.

A seed whose gradient is not finite takes the step again in its own loop, which skips what must be skipped, says where
it comes from and shows it to the guards; it then leaves the stack, since its optimizer has taken fewer steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.engine.engine import Placement, Update
from assay.engine.loop import Loop, Step, averages
from assay.runs.stacked import hashes
from assay.core.recipe import Feed, Recipe, Stage
from assay.core.settings import has_schedule
from assay.runs.stacked.engine import ALONE, Stack
from assay.runs.stacked.feeders import Feeder, feeder
from assay.runs.stacked.graphs import Columns, Replayed, by_time, record_of
from assay.core.errors import AssayError

Numbers = dict[str, list[list[float]]]
"""[sum, count] of each metric, one for each loss."""
MOST_GRAPHS = 16
"""Shapes that change all the time are not worth a graph each."""
AHEAD = 256
"""Updates whose random words are made at once."""


class StackedLoop:
    """Loops of one recipe and task, at the same step, with different seeds; what they learn is in the stack until
    `write` gives it to them.
    """

    def __init__(self, loops: Sequence[Loop], placement: Placement = Placement(), graphs: bool = True) -> None:
        first = loops[0]
        if first.recipe.rollout is not None:
            raise AssayError(f"recipe '{first.recipe.name}' gathers its own experience; {ALONE}")
        if any(loop.recipe != first.recipe or loop.progress != first.progress for loop in loops):
            raise AssayError("only loops of one recipe at the same step can be stacked")
        self.loops, self.placement = list(loops), placement
        self.seeds = tuple(loop.seed for loop in loops)
        self.stack = Stack(first.recipe, [loop.engine for loop in loops], placement)
        self.feeders: list[Feeder] = [
            feeder(feed.source, [loop.task for loop in loops], self.seeds, states, placement.device)
            for feed, *states in zip(first.recipe.feeds, *(loop.states["sources"] for loop in loops), strict=True)
        ]
        self.captures = graphs and torch.device(placement.device).type == "cuda"
        self.pool: Any = torch.cuda.graph_pool_handle() if self.captures else None
        self.pieces: dict[Any, Replayed] = {}
        self.names: dict[str, list[str]] = {}
        self.moving = {stage.name for stage in first.recipe.stages if has_schedule(stage.terms)}
        self.totals: dict[str, Tensor] = {}
        self.words: dict[int, Tensor] = {}
        self.gone: set[int] = set()

    # ------------------------------------------------------------------------------------------------ one pass
    def step(self) -> list[Step | None]:
        """One pass of every loop that is still in the stack; None for those that have left it."""
        begin = time.perf_counter()
        progress = self.loops[self.here[0]].progress
        recipe = self.loops[self.here[0]].recipe.at(progress)
        before = self.stack.snapshot()
        states = [[dict(state) for state in loop.states["sources"]] for loop in self.loops]
        self.totals = {}
        leaks: list[str] = []
        for place, feed in enumerate(recipe.feeds):
            path = (progress.step, 8, place) if place else (progress.step,)
            for ticket in self.feeders[place].tickets(feed.source, path):
                leaks += self.update(recipe, place, feed, ticket)
        sums = self.sums()
        seconds = (time.perf_counter() - begin) / len(self.here)
        steps: list[Step | None] = [None] * len(self.loops)
        for seed in self.here:
            loop = self.loops[seed]
            if faulty(sums[seed]):
                self.stack.write(seed, before)
                loop.states["sources"] = states[seed]
                steps[seed] = loop.step()
                self.gone.add(seed)
                continue
            step = Step(loop.progress, averages(sums[seed]), seconds={"update": seconds})
            loop.progress = replace(progress, step=progress.step + 1, updates=self.stack.updates)
            loop.watch(recipe, step, "updated", None, (), tuple(leaks))
            steps[seed] = step
        return steps

    @property
    def here(self) -> list[int]:
        """Places of the seeds that have not left."""
        return [place for place in range(len(self.loops)) if place not in self.gone]

    def update(self, recipe: Recipe, place: int, feed: Feed, ticket: Columns) -> list[str]:
        """One batch: annotated, then every stage that is due, then the copies; terms that train on masked decisions."""
        needs, stack = feed.needs(recipe), self.stack
        opened = self.piece(
            ("open", place), ticket, lambda some: stack.annotate(by_time(self.feeders[place].fetch(some)), needs)
        )
        word = self.word()
        leaks: list[str] = []
        for stage in feed.stages:
            if stack.updates % stage.every == 0:
                if stack.updates == 0:
                    leaks += self.leaks(stage, opened)
                found = self.piece(
                    ("stage", stage.name), {**opened, "word": word}, lambda some, stage=stage: self.slopes(stage, some)
                )
                self.count(stage, found["metrics"])
                if len(found) > 1:
                    stack.move(stage, found)
        stack.follow(feed.copies(recipe))
        return leaks

    def word(self) -> Tensor:
        """The words [S] of this update's draws, as a single engine has them; made for many updates at a time."""
        chunk, place = divmod(self.stack.updates, AHEAD)
        if chunk not in self.words:
            updates = chunk * AHEAD + torch.arange(AHEAD, device=self.placement.device)
            self.words = {chunk: hashes.words(self.seeds, (5, updates), self.placement.device)}
        return self.words[chunk][place].clone()  # a graph writes later words to where it first read one

    def piece(self, key: tuple[Any, ...], inputs: Columns, function: Any) -> Columns:
        """The function on these inputs, replayed as a graph where that pays."""
        shapes = tuple((name, tuple(column.shape)) for name, column in inputs.items())
        full = (*key, shapes)
        if full not in self.pieces:
            captures = self.captures and key[-1] not in self.moving and len(self.pieces) < MOST_GRAPHS
            self.pieces[full] = Replayed(function, captures, self.pool)
        piece = self.pieces[full]
        if not piece.captures:
            piece.function = function
        return piece(inputs)

    def slopes(self, stage: Stage, inputs: Columns) -> Columns:
        """The stage's gradients and metrics; remembers the metrics' names."""
        columns = {name: column for name, column in inputs.items() if name != "word"}
        found, self.names[stage.name] = self.stack.gradients(stage, columns, inputs["word"])
        return found

    def leaks(self, stage: Stage, columns: Columns) -> list[str]:
        """Terms of which the first seed's own engine says that their loss moves with masked decisions."""
        engine = self.loops[self.here[0]].engine
        batch = record_of({name: column[self.here[0]].cpu() for name, column in columns.items()})
        result = Update(stage.name, None)
        engine.loss(stage, batch, [term.count(batch) for term in stage.terms], result)
        return result.leaks

    # ------------------------------------------------------------------------------------------------ metrics
    def count(self, stage: Stage, metrics: Tensor) -> None:
        """Adds an update's (sum, count) [S, M, 2] to the step's."""
        if stage.name in self.totals:
            self.totals[stage.name] += metrics
        else:
            self.totals[stage.name] = metrics.clone()

    def sums(self) -> list[Numbers]:
        """The step's metrics of each seed; the one place where the host waits for the device."""
        found: list[Numbers] = [{} for _ in self.loops]
        for stage, total in self.totals.items():
            for sums, rows in zip(found, total.tolist(), strict=True):
                for name, entry in zip(self.names[stage], rows, strict=True):
                    sums.setdefault(name, []).append(entry)
        return found

    def write(self) -> None:
        """Gives every loop that has not left what its seed has learned."""
        for place in self.here:
            self.stack.write(place)


def faulty(sums: Numbers) -> bool:
    """Whether some gradient of the step was not finite: its norm, added up, says so."""
    norms = [value for name, entries in sums.items() if name.startswith("gradient_norm/") for value, _ in entries]
    return not all(map(math.isfinite, norms))
