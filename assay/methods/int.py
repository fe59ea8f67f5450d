"""int: learns the right step in the place of the first wrong one of its own answers, then trains by grpo.

    y: a wrong answer of a group without a right one,  t: its first wrong step,  s: a right step in its place
    first: loss = -mean over tokens of log pi(y_<t, s), nothing after s;   then: grpo

Yang et al. 2026. To see which step went wrong is easier than to go right. Its own beginning and one step are close to
what the policy would say; a whole solution is far from it. Nothing after the step is shown, so nothing is copied, and
no end: the policy goes on by itself.

Axes: B rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import DISCARDED, LANGUAGE, RIGHT, AssayError, CheckedTask, Experience, Method, Phase, Preset, Recipe
from assay.method import ResumableTask, Rollout, Scene, Source, State, concatenate, first_decisions, groups, has_turns
from assay.method import random, recipes
from assay.parts import FIRST_AGAIN, PLAIN, Around, Demonstrations, Episodes, failed_groups, from_columns, need_fresh
from assay.parts import need_steps, right_decisions, states

HANDED = "corrections"
"""The name under which the first phase passes on what it collected."""


@dataclass(frozen=True)
class Intervened(Around):
    """Gathers and rewards, then corrects the first wrong step of an answer in each group without a right one.

    The group's first answer with a wrong step is cut before it; the task's right step follows. The correction stays if
    its step does not state the answer and one of `tries` continuations by the policy is right; all of these count as
    spent. Corrections come last and end open: `corrected` [B] marks them, `foreign` [B, T] their step. With `whole` the
    solution stands there instead, for the same prompts: the rival. Degenerate: without failed groups it is `gather`.
    """

    gather: Rollout = Episodes()
    tries: int = 32
    whole: bool = False
    writes: ClassVar[Mapping[str, str]] = {
        "foreign": "BT: another than the policy decided",
        "corrected": "B: an own beginning and a right step, or a solution",
    }

    @property
    def by_start(self) -> bool:
        return self.gather.by_start

    def init(self, scene: Scene) -> State:
        """Returns the inner rollout's state; raises AssayError if answers have no steps, or are played in turns."""
        task = need_steps(scene.task, "Intervened")
        if not isinstance(task, ResumableTask) or has_turns(task):
            raise AssayError(f"Intervened continues answers, and '{task.name}' is played in turns. Use single answers")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns the groups, rewarded, and the corrections."""
        rows = scene.reward(self.gather(scene, state))
        rows = rows.add({"foreign": torch.zeros_like(rows.mask), "corrected": torch.zeros(len(rows), dtype=torch.bool)})
        found = self.corrections(rows, scene)
        scene.log("corrected", float(len(found)), float(len(rows)))
        if not len(found):
            return rows
        found = scene.reward(found).add({"corrected": torch.ones(len(found), dtype=torch.bool)})
        return concatenate([rows, found])

    def corrections(self, rows: Experience, scene: Scene) -> Experience:
        """Returns own beginnings with a right step, or solutions, that pass both checks."""
        task, right = scene.task, right_decisions(rows, scene)
        assert isinstance(task, CheckedTask)
        begun = first_decisions(rows, right.clamp(min=0))
        told = [(int(row), str(text["completion"]), str(text["answer"])) for row, text in
                zip(rows.column("start"), task.texts(begun, scene.split), strict=True)]  # fmt: skip
        chosen = firsts(rows, failed_groups(rows, RIGHT) & (right >= 0))
        more = {row: task.finish(told[row][0], told[row][1], scene.split) for row in chosen}
        steps = {row: task.first_step(told[row][0], one, scene.split) for row, one in more.items() if one}
        steps = {row: step for row, step in steps.items() if not states(told[row][2], step)}
        place = torch.tensor(list(steps), dtype=torch.long)
        found = task.followed(begun.rows(place), list(steps.values()), is_over=False)
        found = found.rows(self.leads_on(found, scene))
        if not self.whole:
            return found
        solutions = [task.finish(start, "", scene.split) or "" for start in found.column("start").tolist()]
        return task.followed(first_decisions(found, torch.zeros(len(found))), solutions, is_over=True)

    def leads_on(self, begun: Experience, scene: Scene) -> Tensor:
        """Returns whether one of the continuations of each row is right, [B]."""
        task, rows = scene.task, np.repeat(np.arange(len(begun)), self.tries)
        assert isinstance(task, ResumableTask)
        if not len(rows):
            return torch.zeros(0, dtype=torch.bool)
        again = replace(begun.rows(torch.from_numpy(rows)), source=None)
        samples = again.column("sample").numpy() + (1 + np.arange(len(rows)) % self.tries) * FIRST_AGAIN
        played = scene.reward(task.resume(scene.actor, again, samples, scene.draw, split=scene.split))
        scene.log(DISCARDED, float(played.mask.sum()))
        return groups.is_right(played).view(-1, self.tries).any(1)


def firsts(rows: Experience, chosen_B: Tensor) -> list[int]:
    """Returns the first chosen row of each group."""
    taken = dict[int, int]()
    for row, label in enumerate(groups.row_groups(rows).index.tolist()):
        if chosen_B[row]:
            taken.setdefault(label, row)
    return list(taken.values())


@dataclass(frozen=True)
class Collected(Source):
    """Stores the corrections of each step, with the own beginning as decisions unless `prefix` is false."""

    prefix: bool = True
    not_a_part: ClassVar[str] = "the laws' rows have no corrections: its method's claims run the phase"

    def init(self, scene: Scene) -> State:
        return {"columns": {}}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        fresh = need_fresh(scene.fresh)
        rows = fresh.rows(fresh.column("corrected").nonzero().squeeze(1))
        rows = rows if self.prefix else rows.with_columns(mask=rows.column("foreign"))
        if len(rows):
            rows = concatenate([from_columns(state["columns"]), rows]) if state["columns"] else rows
            context = {f"context.{name}": value for name, value in rows.context.items()}
            state["columns"] = {name: getattr(rows, name) for name in PLAIN} | context
        yield from ()


@dataclass(frozen=True)
class Corrections(Source):
    """Yields what an earlier phase collected: all rows once a step, shuffled, in batches of at most `batch`.

    Degenerate: with nothing collected there is no batch. Without an earlier phase the rows are `batch` new solutions.
    """

    batch: int = 32

    def init(self, scene: Scene) -> State:
        alone = Demonstrations(self.batch).init(scene) if HANDED not in scene.handed else {}
        return {"columns": scene.handed.get(HANDED, {}).get("columns", {}), "alone": alone}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        if state["alone"]:
            yield from Demonstrations(self.batch)(scene, state["alone"])
        elif state["columns"]:
            rows = from_columns(state["columns"])
            scene.log("corrections", float(len(rows)))
            order = torch.from_numpy(random.permutation(scene.draw, len(rows)))
            yield from (rows.rows(part) for part in order.split(self.batch))


def recipe(preset: Preset = LANGUAGE, prefix: bool = True, whole: bool = False) -> Recipe:
    """Returns grpo after two phases: 256 prompts are tried and corrected, and four passes learn the corrections.

    Without `prefix` only their steps are learned; with `whole` the solutions of the same prompts.
    """
    base, own, taught = recipes.grpo(preset), preset.group_rollout, recipes.sft(preset)
    assert own is not None
    tried = replace(base, name="int-tried", rollout=Intervened(own, whole=whole), stages=(), credit=())
    tried = replace(tried, source=Collected(prefix))
    stage = replace(taught.stages[0], optimizer=preset.optimizer)
    taught = replace(taught, name="int-taught", source=Corrections(), stages=(stage,))
    phases = (Phase("tried", tried, 8, data={"sources.0": HANDED}), Phase("taught", taught, 4))
    return replace(base, name="int", before=phases)


METHOD = Method(
    paper="arXiv:2601.14209",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="redo:steps=4,planted=0",
    family="guidance",
    base=recipes.grpo,
    variants={"steps-alone": partial(recipe, prefix=False), "solutions": partial(recipe, whole=True)},
    departures=(
        "the task finds the wrong step and writes the right one; the paper asks the policy to, shown the solution. A "
        "file compares lines with its solution",
        "a prompt is hard if no answer of its group of 8 is right, of the first 256 prompts; the paper has 64 to 128",
        "a step that leaves no room to go on has no right continuation and is dropped",
        "grpo divides advantages by the group's deviation, the paper does not",
    ),
    results=(
        "the headline is undecided with ten seeds: where one answer in 800 is right it ends at 0.49, grpo after as "
        "many tokens at 0.39 (difference 0.00 to 0.23, margin 0.05)",
        "that corrections move the policy less than whole solutions is undecided with ten seeds: 0.55 nats against "
        "0.57 (difference -0.05 to 0.01)",
    ),
    pilots=(
        "from the uniform start of a table, which has no ways of its own, corrections moved the policy further than "
        "whole solutions: 1.95 nats against 1.69 (difference 0.20 to 0.32, five seeds)",
    ),
)
