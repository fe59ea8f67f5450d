"""A pool of prompts that come back: a table of what each visit scored, and a rule that chooses the next ones.

Axes: P prompts of the pool, by their place in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Choice, Curriculum, PromptedTask, RepeatingTask, ResumableTask, Scene
from assay.ops import groups, random
from assay.parts.curricula.in_order import ORDER

GENERATED = 256
"""Starts of a generator that make a pool whose size is not given."""


@dataclass(frozen=True)
class Visited:
    """The prompts of a pool by their starts [P], and the share of right answers at each visit of each of them so far.

    A prompt that was not visited has no shares.
    """

    starts: np.ndarray
    shares: Sequence[Sequence[float]]
    not_a_part: ClassVar[str] = "what a rule of a pool reads"

    def facts(self, scene: Scene) -> list[dict[str, Any]]:
        """Returns prompt, answer and facts of each prompt; AssayError for a task that cannot write its prompts."""
        task = scene.task
        if not isinstance(task, ResumableTask) or not isinstance(task, PromptedTask):
            raise AssayError(f"task '{task.name}' does not say what its prompts are. Use a task of single answers")
        return task.texts(task.begin(self.starts, 0), 0)

    def mean(self, recent: int = 0) -> np.ndarray:
        """Returns the mean share of the last `recent` visits of each prompt, 0 for all of them, [P]; NaN if there was
        none.
        """
        return np.array([float(np.mean(own[-recent:])) if len(own) else np.nan for own in self.shares])


class PoolRule(Choice, Protocol):
    """Chooses prompts of a pool. Law: the choice depends on what was visited, its own state and the draw alone."""

    def init(self, seen: Visited, scene: Scene) -> State:
        """Returns its state at the start of a run; AssayError for a task whose prompts lack what it reads."""
        return {"next": 0}

    def choose(self, seen: Visited, scene: Scene, state: State) -> Sequence[int]:
        """Returns the places of the next `scene.num_starts` prompts."""


def in_passes(places: Sequence[int], scene: Scene, state: State) -> list[int]:
    """Returns the next `scene.num_starts` of these places, and counts them in `state`: pass by pass, each pass in an
    order of its own that the run's seed shuffles. AssayError if there are none.
    """
    if not len(places):
        raise AssayError("the rule of the pool left no prompt to train on. Use a larger pool or a weaker threshold")
    found: list[int] = []
    while len(found) < scene.num_starts:
        which, begin = divmod(state["next"] + len(found), len(places))
        order = random.permutation(Draw(scene.draw.seed, (*ORDER, which)), len(places))
        found += [int(places[k]) for k in order[begin : begin + scene.num_starts - len(found)]]
    state["next"] += scene.num_starts
    return found


@dataclass(frozen=True)
class Passes(PoolRule):
    """All prompts of the pool, pass by pass, each pass shuffled.

    Source: by definition. Assumes nothing. Degenerate: a pool of one prompt repeats it.
    """

    def choose(self, seen: Visited, scene: Scene, state: State) -> Sequence[int]:
        return in_passes(range(len(seen.starts)), scene, state)


@dataclass(frozen=True)
class Pool(Curriculum):
    """Proposes prompts of a pool by a rule, and keeps a table of the share of right answers at each of their visits.

    The pool are the first `size` rows of a file, or all of them for size 0 (of a generator 256 starts); equal prompts
    are one. Each prompt keeps its start, so that the rollout must tell its visits apart (`Revisits`). An answer is
    right if its outcome is above 1/2; rows of other origin than the policy are not counted. Degenerate: `Passes` in a
    large pool takes every prompt equally often. Source: by definition. Assumes a task with prompts.
    """

    rule: PoolRule = Passes()
    size: int = 0
    reads_shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 0:
            raise AssayError(f"Pool.size is {self.size}. Use 0 (all rows of a file) or more prompts")

    def init(self, scene: Scene) -> State:
        """Returns the starts of the pool, no visits, and the state of the rule; AssayError without prompts."""
        task = scene.task
        if not isinstance(task, PromptedTask):
            raise AssayError(f"task '{task.name}' has no prompts for a pool. Use a language task or a .jsonl file")
        rows = task.num_training if isinstance(task, RepeatingTask) else 0
        num = min(self.size or rows or GENERATED, rows or self.size or GENERATED)
        found: dict[str, int] = {}
        for start, prompt in enumerate(task.prompts(np.arange(num), 0)):
            found.setdefault(prompt, start)
        seen = Visited(np.array(list(found.values())), [()] * len(found))
        return {"starts": seen.starts, "visits": [[] for _ in found], "rule": self.rule.init(seen, scene)}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        places = self.rule.choose(Visited(state["starts"], state["visits"]), scene, state["rule"])
        return state["starts"][np.asarray(places, dtype=np.int64)]

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Appends the share of right answers of every group of a prompt to its visits."""
        own = experience.own()
        there, right = own.mask.any(1), groups.is_right(own).double()
        group = own.group if own.group is not None else own.column("start")
        places = {int(start): place for place, start in enumerate(state["starts"].tolist())}
        for label in group[there].unique().tolist():
            rows = there & (group == label)
            place = places.get(int(own.column("start")[rows][0]))
            if place is not None:
                state["visits"][place] = [*state["visits"][place], float(right[rows].mean())]
