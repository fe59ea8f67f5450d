"""What the start policy could do: sampled once by a phase, then rehearsed. Axes: B rows, T columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from assay import recipes
from assay.core.errors import AssayError
from assay.core.recipe import Phase
from assay.core.record import COLUMNS, Experience, Origin, State, concatenate
from assay.core.slots import Curriculum, PromptedTask, Scene, Source
from assay.ops import groups, random
from assay.parts.curricula.in_order import InOrder, next_starts
from assay.parts.sources.fresh import FreshSequences, need_fresh
from assay.parts.sources.replay import PLAIN, from_columns
from assay.recipes.defaults import Defaults

HANDED = "start"
"""The name under which the phase passes on what it remembers."""
LABELS = ("group", "episode")
MOST_SOLVED = 100_000
"""Solved starts in a row after which none is expected to be left."""


def need_prompts(scene: Scene) -> PromptedTask:
    """Returns the task; raises AssayError if it has no prompts to tell solved ones by."""
    if not isinstance(scene.task, PromptedTask):
        what = f"task '{scene.task.name}' has no prompts, so the start's right answers cannot be kept"
        raise AssayError(f"{what}. Use a language task")
    return scene.task


@dataclass(frozen=True)
class Remembered(Source):
    """Splits prompts by the start policy, and stores its right answers to those that it solves; yields nothing.

    A prompt is solved if at least the share `least` of the first `tries` rows of its first group has outcome 1. Later
    rows of a solved prompt are stored if they are right, with the log-probabilities recorded.
    """

    tries: int = 4
    least: float = 1.0
    reads_shares: ClassVar[bool] = True
    breaks: ClassVar[dict[str, str]] = {"yields": "it stores rows for a later phase"}

    def init(self, scene: Scene) -> State:
        """Returns no prompts and no rows."""
        need_prompts(scene)
        return {"prompts": [], "solved": [], "columns": {}}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Takes in the fresh groups."""
        fresh = need_fresh(scene.fresh)
        right, first = groups.outcome(fresh) >= 1.0, fresh.column("sample") < self.tries
        starts = torch.unique(fresh.column("start"))
        known = dict(zip(state["prompts"], state["solved"], strict=True))
        kept = torch.zeros_like(right)
        for start, prompt in zip(starts.tolist(), need_prompts(scene).prompts(starts.numpy(), 0), strict=True):
            own = fresh.column("start") == start
            if known.setdefault(prompt, int(right[own & first].sum() >= self.least * self.tries)):
                kept |= own & ~first & right
        state["prompts"], state["solved"] = list(map(str, known)), list(known.values())
        if bool(kept.any()):
            rows = fresh.rows(kept)
            rows = concatenate([from_columns(state["columns"]), rows]) if state["columns"] else rows
            context = {f"context.{name}": value for name, value in rows.context.items()}
            state["columns"] = {name: getattr(rows, name) for name in PLAIN} | context
        yield from ()


@dataclass(frozen=True)
class Unsolved(Curriculum):
    """Proposes the task's starts in order, without those whose prompt the start policy solved: the split is made once.

    Degenerate: without a phase before it, every start.
    """

    def init(self, scene: Scene) -> State:
        """Returns ordinal 0 and the solved prompts."""
        need_prompts(scene)
        known = scene.handed.get(HANDED, {"prompts": [], "solved": []})
        solved = [prompt for prompt, is_solved in zip(known["prompts"], known["solved"], strict=True) if is_solved]
        return InOrder().init(scene) | {"solved": solved}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the next starts that are left."""
        task, solved, found = need_prompts(scene), set(state["solved"]), np.empty(0, dtype=np.int64)
        last = state["next"] + MOST_SOLVED
        while len(found) < scene.num_starts:
            if state["next"] > last:
                raise AssayError("the start policy solves every prompt: none is left to train on. Use harder prompts")
            starts = next_starts(scene, state, scene.num_starts - len(found))
            is_left = [prompt not in solved for prompt in task.prompts(starts, 0)]
            found = np.concatenate([found, starts[is_left]])
        return found

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class Rehearsed(Source):
    """Adds `num_rows` stored rows, drawn uniformly, to every batch of another source.

    They come last, with `source` OLDER_SELF, their recorded log-probabilities, groups of their own, and 0 in every
    column that parts wrote. Degenerate: with nothing stored the batches have no other rows.
    """

    source: Source = FreshSequences()
    num_rows: int = 32

    @property
    def writes(self) -> tuple[str, ...]:
        """Returns the columns of the inner source."""
        return self.source.writes

    def init(self, scene: Scene) -> State:
        """Returns the inner state and the stored rows."""
        return {"source": self.source.init(scene), "columns": scene.handed.get(HANDED, {}).get("columns", {})}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the inner batches with stored rows."""
        stored = from_columns(state["columns"]) if state["columns"] else None
        for place, batch in enumerate(self.source(scene, state["source"])):
            own = batch.with_columns(source=torch.full((len(batch),), int(Origin.POLICY)))
            if stored is None:
                yield own
                continue
            index = random.integers(scene.draw.at(6, place), len(stored), self.num_rows)
            yield concatenate([own, beside(own, stored.rows(torch.from_numpy(index)))])


def beside(own: Experience, rows: Experience) -> Experience:
    """Returns the rows with the columns that `own` has, filled with 0, and labels that no own row has."""
    label = -1 - torch.arange(len(rows))
    missing = [name for name in COLUMNS if getattr(rows, name) is None and getattr(own, name) is not None]
    columns: dict[str, Any] = {name: zeros(getattr(own, name), len(rows)) for name in missing}
    columns |= {name: label for name in LABELS if name in missing}
    columns |= {"source": torch.full_like(label, int(Origin.OLDER_SELF))}
    return rows.with_columns(**columns, extra={name: zeros(value, len(rows)) for name, value in own.extra.items()})


def zeros(column: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Returns zeros with the shape of a column, for another number of rows."""
    return column.new_zeros(num_rows, *column.shape[1:])


def start(world: Defaults, tries: int = 4, least: float = 1.0) -> Phase:
    """Returns the phase that samples the start: `tries` answers for the split, one to store."""
    sampled = replace(recipes.grpo(world), name="dph-rl-start", stages=(), credit=(), source=Remembered(tries, least))
    return Phase("start", sampled.set("group_size", tries + 1), steps=8, data={"sources.0": HANDED})
