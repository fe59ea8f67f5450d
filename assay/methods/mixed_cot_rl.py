"""mixed-cot-rl: half of the answers begin with a first step that has one planted error; what follows is trained.

    start = prompt, or prompt + wrong first step;   loss = grpo's on the continuation, in groups of one beginning

A policy that only ever continues its own right steps learns to trust what is written. Planted errors, in a number or in
the order of steps, make it notice and correct one. The beginning is context: neither learned nor unlearned.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch

from assay.method import LANGUAGE, AssayError, CheckedTask, Draw, Experience, Method, Preset, Recipe, ResumableTask
from assay.method import Rollout, Scene, State, has_turns, random, recipes
from assay.parts import group_rows, need_steps


class PlantedError(Protocol):
    """Makes a wrong first step. Laws: it is a function of the start; "" where the task would not call it wrong."""

    def __call__(self, task: CheckedTask, start: int, split: int) -> str:
        """Returns a text whose only step is wrong."""


def is_wrong(task: CheckedTask, start: int, step: str, split: int) -> bool:
    """Returns whether a step is no beginning of a right answer, by the task's check."""
    return bool(step) and task.first_error(start, step, split) == 0


@dataclass(frozen=True)
class Miscalculated:
    """The solution's first step with the last digit of its last number raised by as little as makes it wrong."""

    not_a_part: ClassVar[str] = "a setting of Prefilled"

    def __call__(self, task: CheckedTask, start: int, split: int) -> str:
        step = task.first_step(start, task.finish(start, "", split) or "", split)
        found = re.search(r"\d(?=\D*\Z)", step)
        if found is None:
            return ""
        place, digit = found.start(), int(found.group())
        changed = (f"{step[:place]}{(digit + more) % 10}{step[place + 1 :]}" for more in range(1, 10))
        return next((one for one in changed if is_wrong(task, start, one, split)), "")


@dataclass(frozen=True)
class Skipped:
    """The solution's second step in the place of its first."""

    not_a_part: ClassVar[str] = "a setting of Prefilled"

    def __call__(self, task: CheckedTask, start: int, split: int) -> str:
        whole = task.finish(start, "", split) or ""
        step = task.first_step(start, whole, split)
        second = task.first_step(start, whole[len(step) :], split)
        return second if is_wrong(task, start, second, split) else ""


@dataclass(frozen=True)
class Prefilled(Rollout):
    """Gathers groups whose answers begin with a planted error, with probability `flawed` for each start.

    The error is one of `errors`, drawn for the start; a start for which it makes no wrong step has none. All members of
    a group have the same beginning, which is context: mask false. `flawed` [B] marks them. Degenerate: with
    probability 0 it is `Episodes`.
    """

    num_starts: int = 32
    group_size: int = 8
    flawed: float = 0.5
    errors: tuple[PlantedError, ...] = (Miscalculated(), Skipped())
    by_start: ClassVar[bool] = True
    writes: ClassVar[Mapping[str, str]] = {"flawed": "B: the answer began with a planted error"}

    def __post_init__(self) -> None:
        if not 0.0 <= self.flawed <= 1.0 or not self.errors:
            raise AssayError(f"flawed is {self.flawed}, of {len(self.errors)} errors. Use 0 to 1, and an error")

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if answers have no steps, or are played in turns."""
        task = need_steps(scene.task, "Prefilled")
        if not isinstance(task, ResumableTask) or has_turns(task):
            raise AssayError(f"Prefilled begins answers, and task '{task.name}' is played in turns. Use single answers")
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` episodes, not yet rewarded."""
        task, starts = scene.task, scene.starts
        assert isinstance(task, ResumableTask)
        assert isinstance(task, CheckedTask)
        where, which = (random.uniform(Draw(scene.draw.seed, (14, tag)), starts) for tag in range(2))
        texts = [
            self.errors[int(kind * len(self.errors))](task, start, scene.split) if place < self.flawed else ""
            for start, place, kind in zip(starts.tolist(), where.tolist(), which.tolist(), strict=True)
        ]
        scene.log("flawed", float(sum(map(bool, texts))), float(len(texts)))
        begun = task.followed(task.begin(starts, scene.split), texts, is_over=False)
        rows, samples = group_rows(np.arange(len(starts)), self.group_size)
        begun = replace(begun.rows(torch.from_numpy(rows)), source=None)
        played = task.resume(scene.actor, begun, samples, scene.draw, split=scene.split)
        is_flawed = torch.tensor([bool(one) for one in texts])
        return played.add({"flawed": is_flawed[torch.from_numpy(rows)]})


def recipe(preset: Preset = LANGUAGE, flawed: float = 0.5) -> Recipe:
    """Returns grpo whose answers begin with a planted error in a share `flawed` of the starts."""
    base, own = recipes.grpo(preset), preset.group_rollout
    assert own is not None
    rollout = Prefilled(own.num_starts, own.group_size, flawed)  # type: ignore[attr-defined]
    return replace(base, name="mixed-cot-rl", rollout=rollout)


METHOD = Method(
    paper="arXiv:2512.17079",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="redo",
    family="guidance",
    base=recipes.grpo,
    departures=(
        "errors are made from the task's solution by two rules, a changed number and a skipped step, and only where "
        "the task's check calls them wrong; the paper's are written by a model",
        "half of the starts are flawed: the paper's share is not known",
        "whole weights are trained, not adapters (`--lora` adds them)",
    ),
    results=(
        "the headline fails by its own margin: after a planted error it is right 0.17 more often (0.15 to 0.18), not "
        "0.3, in 100 steps of a table (0.19 against 0.02); clean prompts lose 0.006",
    ),
)
