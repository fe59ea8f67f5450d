"""Starts inside a stored solution: its prefix is given, the policy completes it. Axes: B rows, T columns."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import ResumableTask, Rollout, Scene, TextTask
from assay.methods.prefixrl.solutions import Demonstrated, Solutions
from assay.ops import random
from assay.parts.rollouts.episodes import group_rows
from assay.playing.resumed import first_decisions


@dataclass(frozen=True)
class FromPrefixes(Rollout):
    """Gathers groups that start after the first h decisions of a solution y of the problem, h = floor(f |y|), the same
    for all members; f is uniform in [shortest, longest], and 0 with probability `plain`.

    The given decisions are context: mask false, no loss, no ratio. For tokens the start is prompt + prefix; for
    control it is the state that the given actions lead to. h is at most |y| - 1, so that a decision is left, and a
    prefix ends before the solution first states the task's answer: copying it would be no solution. The metric
    `prefixes_cut` is the share that this made shorter. `solutions` are the task's demonstrations, or the base policy's
    own; a problem without one has no prefix. Degenerate: longest = 0 is `Episodes`.
    """

    num_starts: int = 32
    group_size: int = 8
    shortest: float = 0.4
    longest: float = 0.8
    plain: float = 0.25
    solutions: Solutions = Demonstrated()
    writes: ClassVar[tuple[str, ...]] = ("prefix",)

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no solutions of this kind."""
        self.solutions.check(scene.task)
        if not isinstance(scene.task, ResumableTask):
            raise AssayError(f"FromPrefixes needs a task that can be resumed; '{scene.task.name}' cannot. Use Episodes")
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` episodes; `prefix` [B] is the number of given decisions."""
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        assert isinstance(task, ResumableTask)
        shown, is_solved = self.solutions(scene)
        where, is_plain = (random.uniform(Draw(draw.seed, (11, tag)), starts) for tag in range(2))
        fraction = (
            (self.shortest + (self.longest - self.shortest) * where) * (is_plain >= self.plain) * is_solved.numpy()
        )
        length = shown.mask.sum(1)
        given = torch.minimum((torch.from_numpy(fraction) * length).long(), (length - 1).clamp(min=0))
        wanted, given = given, before_answer(task, shown, given) if isinstance(task, TextTask) else given
        scene.log("prefixes_cut", float((given < wanted).sum()), float(len(given)))
        rows, samples = group_rows(np.arange(len(starts)), self.group_size)
        begun = first_decisions(shown, given).rows(torch.from_numpy(rows))
        played = task.resume(actor, begun, samples, draw, split=0)
        return played.add({"prefix": given[torch.from_numpy(rows)]})


def statement(answer: str, solution: str) -> float:
    """Returns the place in a solution where it first states the answer as a word; infinity if it never does, or if the
    solution is nothing but the answer, of which any part may be given.
    """
    found = re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", solution)
    return math.inf if found is None or solution.strip() == answer.strip() else float(found.start())


def before_answer(task: TextTask, shown: Experience, given_B: Tensor) -> Tensor:
    """Returns the largest number of first decisions, at most `given_B`, whose text ends before the answer is stated."""
    ends = [statement(row["answer"], row["completion"]) for row in task.texts(shown, 0)]
    low, high = torch.zeros_like(given_B), given_B.clone()
    while bool((low < high).any()):  # by halving: a longer prefix has a longer text
        middle = (low + high + 1) // 2
        texts = task.texts(first_decisions(shown, middle), 0)
        fits = torch.tensor([len(row["completion"]) <= end for row, end in zip(texts, ends, strict=True)])
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle - 1)
    return low
