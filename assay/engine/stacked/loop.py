"""Loops of S seeds that only update, stepped together: `learn` on one `StackedEngine`, then each seed's own metrics,
guards and progress.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial

from assay.core.errors import AssayError
from assay.core.recipe import Feed, Recipe
from assay.core.record import Draw, Experience
from assay.engine.loop import Loop, Step, learn
from assay.engine.loop_metrics import averages
from assay.engine.placement import Placement
from assay.engine.stacked.engine import ALONE, StackedEngine
from assay.engine.stacked.feeders import Feeder
from assay.engine.stacked.graphs import Columns, by_time, columns_of, record_of


class StackedLoop:
    """Loops of one recipe and task, at the same step, with different seeds; their learned state is in the stacked
    engine until `write` copies it back.
    """

    def __init__(self, loops: Sequence[Loop], placement: Placement = Placement(), graphs: bool = True) -> None:
        first = loops[0]
        if first.recipe.rollout is not None:
            raise AssayError(f"recipe '{first.recipe.name}' gathers its own experience. {ALONE}")
        if any(loop.recipe != first.recipe or loop.progress != first.progress for loop in loops):
            raise AssayError("only loops of one recipe at the same step can be stacked")
        self.loops = list(loops)
        self.engine = StackedEngine(first.recipe, [loop.engine for loop in loops], placement, graphs)
        self.feeders = [
            Feeder(feed.source, [loop.task for loop in loops], self.engine.seeds, states, placement.device)
            for feed, *states in zip(first.recipe.feeds, *(loop.states["sources"] for loop in loops), strict=True)
        ]
        self.gone: set[int] = set()

    @property
    def here(self) -> list[int]:
        """Indices of the seeds that are still in the stack."""
        return [place for place in range(len(self.loops)) if place not in self.gone]

    def step(self) -> list[Step | None]:
        """Runs one pass of every loop that is still in the stack; returns None for those that have left it.

        A seed whose gradient is not finite repeats the step in its own loop, which skips the update, reports the
        origin of the fault and runs the guards. It then leaves the stack: its optimizer has taken fewer steps than
        the rest.
        """
        begin = time.perf_counter()
        progress = self.loops[self.here[0]].progress
        recipe = self.loops[self.here[0]].recipe.at(progress)
        # Needed only if a gradient is not finite, which is known when the step is over: values are copied every step,
        # which costs less than asking after every update.
        before = deepcopy(self.engine.snapshot())
        states = [[dict(state) for state in loop.states["sources"]] for loop in self.loops]
        # Only the draw's path is read: feeders and the engine have the seeds.
        updates, _ = learn(self.engine, recipe, Draw(0, (progress.step,)), partial(self.batches, recipe))
        slips = tuple(slip for update in updates for slip in update.slips)
        sums = self.engine.sums()
        seconds = (time.perf_counter() - begin) / len(self.here)  # so that the seeds' times add up to the stack's
        steps: list[Step | None] = [None] * len(self.loops)
        for place in self.here:
            loop = self.loops[place]
            if faulty(sums[place]):
                self.engine.write(place, before)
                loop.states["sources"] = states[place]
                steps[place] = loop.step()
                self.gone.add(place)
                continue
            step = steps[place] = Step(progress, seconds={"update": seconds})
            loop.finish(recipe, step, averages(sums[place]), self.engine.updates, slips=slips, tried=len(updates))
        return steps

    def batches(self, recipe: Recipe, place: int, feed: Feed, draw: Draw) -> Iterator[Experience]:
        """Yields the batches of all seeds with the columns that the feed's stages need, fetched in one graph."""
        needs, own = feed.needs(recipe), self.feeders[place]

        def opened(ticket: Columns) -> Columns:
            return columns_of(self.engine.annotate(record_of(by_time(own.fetch(ticket))), needs))

        for ticket in own.tickets(feed.source, draw.path):
            yield record_of(self.engine.replays(("open", place, needs), ticket, opened))

    def write(self) -> None:
        """Copies to every loop that has not left what its seed has learned."""
        for place in self.here:
            self.engine.write(place)


def faulty(sums: Mapping[str, Sequence[Sequence[float]]]) -> bool:
    """Returns whether some gradient of the step was not finite, by the sum of its norms."""
    norms = [value for name, entries in sums.items() if name.startswith("gradient_norm/") for value, _ in entries]
    return not all(map(math.isfinite, norms))
