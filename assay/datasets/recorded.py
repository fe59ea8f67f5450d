"""Files as offline datasets for the sources `Logged` and `Relabelled`, and recipes that learn from a file.

Axes: N rows of a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Origin
from assay.core.settings import changed, children
from assay.core.settings import read as read_part
from assay.core.slots import OfData, OfRewards, Task
from assay.datasets.dataset import REWARDS, Dataset
from assay.datasets.files import read
from assay.parts.sources.demonstrations import DemonstratedDecisions
from assay.parts.sources.logged import Contents, Logged
from assay.parts.sources.recordings import Recording
from assay.parts.sources.relabelled import Relabelled
from assay.parts.sources.scales import rescaled


@dataclass(frozen=True)
class Recorded:
    """The rows of a file (see `datasets.files`); contents of another hash than the one named raise AssayError."""

    path: str
    hash: str = ""
    reward_scale: float = 1.0
    origin: int = int(Origin.DATASET)

    def columns(self, task: Task) -> dict[str, Tensor]:
        """Returns the transitions of the file; raises AssayError if they do not fit the task's spaces, or have no
        rewards, or no goals for a task with goals.
        """
        data = checked(self, task)
        if not data.about.get(REWARDS, True):
            raise AssayError(f"data {self.path}: it has no rewards. Add them, or use ota or zero-shot-rl")
        if task.spec.goal is None:
            data = replace(data, achieved=None, next_achieved=None, goal=None)
        elif data.goal is None:
            raise AssayError(f"data {self.path}: task '{task.name}' has goals, and the file no column 'goal'. Add it")
        return data.pairs(self.reward_scale)


@dataclass(frozen=True)
class RecordedPlay(Recorded):
    """The rows of a file as walks for `sources.relabelled.Relabelled`; rewards are not read."""

    def columns(self, task: Task) -> dict[str, Tensor]:
        """Returns the file's walks; raises AssayError if the task has no goals, or the file no positions of goals."""
        if task.spec.goal is None:
            what = f"data {self.path}: goals are chosen among the file's states, and task '{task.name}' has no goals"
            raise AssayError(f"{what}. Use a task with goals, such as pointmaze-medium")
        try:
            return checked(self, task).walks(task.spec.goal)
        except AssayError as error:
            raise AssayError(f"data {self.path}: {str(error).removeprefix(f'data {self.path}: ')}") from None


def checked(file: Recorded, task: Task) -> Dataset:
    """Returns the contents of a file; raises AssayError if the hash or the task's spaces do not fit."""
    data = read(file.path)
    if file.hash and data.hash != file.hash:
        raise AssayError(
            f"data {file.path}: its hash is {data.hash}, but the run uses {file.hash}. Restore the file, or start a "
            "new run"
        )
    data.check_fits(task.spec, task.name)
    if data.acted is not None and not bool(data.acted.all()):
        missing = f"data {file.path}: {int((~data.acted).sum())} of {len(data)} rows have no action"
        raise AssayError(f"{missing}. Fill them in: assay data alter {file.path} completed --out FILE")
    return data


def stamped(file: str | Recorded, task: Task) -> Recorded:
    """Returns a file as an offline dataset with its current hash; raises AssayError if hash or task do not fit."""
    address, known = (file.path, file.hash) if isinstance(file, Recorded) else (file, "")
    path = str(Path(address).resolve()) if Path(address).exists() else address
    return replace(Recorded(path, known), hash=checked(Recorded(path, known), task).hash)


def with_data(recipe: Recipe, files: Sequence[Recorded]) -> Recipe:
    """Returns the recipe with its offline datasets replaced by these files, in order; one file replaces several
    datasets that the recipe does not tell apart.

    A cloning recipe that uses episodes of the task's expert clones the file's decisions instead.
    """
    places = sources_of(recipe)
    if not places:
        raise AssayError(
            f"recipe '{recipe.name}' gathers its own experience. Use --data with methods that learn from an offline "
            "dataset, such as dual-rl and bc"
        )
    for path, source in places:
        if isinstance(source, Relabelled):
            if len(files) != 1:
                raise AssayError(f"recipe '{recipe.name}' learns from 1 dataset. Give --data once")
            log = RecordedPlay(files[0].path, files[0].hash)
            recipe = cast(Recipe, changed(recipe, path, replace(source, log=log)))
            continue
        if isinstance(source, DemonstratedDecisions):
            source = Logged((files[0],), updates=source.minibatches)
        logs = source.logs
        if len(files) == 1 and len({(log.origin, log.reward_scale) for log in logs}) == 1:
            source, logs = replace(source, batch=len(logs) * source.batch), logs[:1]
        if len(files) != len(logs):
            raise AssayError(
                f"recipe '{recipe.name}' learns from {len(logs)} datasets. Give --data {len(logs)} times, in order"
            )
        recipe = cast(Recipe, changed(recipe, path, replace(source, logs=tuple(map(as_log, files, logs)))))
    return recipe


def with_statistics(recipe: Recipe, task: Task, seed: int) -> Recipe:
    """Returns the recipe with the statistics that its models need of its offline data, files or not."""
    places = [place for place in parts_of_data(recipe, OfData) if place[1].needs_data(task.spec)]
    paid = [place for place in parts_of_data(recipe, OfRewards) if place[1].needs_rewards]
    if not places and not paid:
        return recipe
    known = (*sources_of(recipe.source), *sources_of(recipe.rollout))  # a rollout in a learned model reads data, too
    source = next((one for _, one in known if isinstance(one, Logged | Relabelled)), None)
    if source is None:
        name, what = type((*places, *paid)[0][1]).__name__, "states" if places else "rewards"
        why = f"{name} needs the {what} of an offline dataset, and recipe '{recipe.name}' has none"
        raise AssayError(f"{why}. Use a method that learns from one")
    logs = source.logs if isinstance(source, Logged) else (source.log,)
    columns = Contents(logs, task, Draw(seed)).columns
    for path, rewarded in paid:
        recipe = cast(Recipe, changed(recipe, path, rewarded.of_rewards(*rewards_of(columns, source))))
    return with_states(recipe, task, columns, places) if places else recipe


def with_states(
    recipe: Recipe, task: Task, columns: Sequence[dict[str, Tensor]], places: list[tuple[tuple[str, ...], OfData]]
) -> Recipe:
    """Returns the recipe with the statistics of the data's states in these places."""
    seen, reached = (states_of(columns, name) for name in ("observation", "achieved"))
    if seen is None:
        raise AssayError(f"task '{task.name}' has numbered states, which have no mean. Use a task that is observed")
    for path, _ in places:  # the part may have got statistics of rewards since it was found
        recipe = cast(Recipe, changed(recipe, path, read_part(recipe, path).of_data(seen, reached)))
    return recipe


def rewards_of(columns: Sequence[dict[str, Tensor]], source: Logged | Relabelled) -> tuple[Tensor, Tensor]:
    """Returns the rewards of all datasets in the units of the source, and where episodes end or a dataset does."""
    if isinstance(source, Relabelled):
        raise AssayError("rewards for relabelled goals are not recorded. Use a method that learns from recorded ones")
    scaled = rescaled(columns, source.scale)
    ends = [(each["terminal"] | each["truncated"])[:, 0].clone() for each in scaled]
    for each in ends:
        each[-1] = True
    return torch.cat([each["reward"][:, 0] for each in scaled]), torch.cat(ends)


def states_of(columns: Sequence[dict[str, Tensor]], name: str) -> Tensor | None:
    """Returns the states of all datasets [N, ...], from transitions or walks; None if they have no such column."""
    found = [each.get(name, each[f"context.{name}"][:, 0] if f"context.{name}" in each else None) for each in columns]
    present = [column for column in found if column is not None]
    return torch.cat(present) if present else None


def parts_of_data(value: Any, kind: type, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Returns the parts of a recipe's models that need statistics of the data, with their paths."""
    if isinstance(value, kind):
        return [(above, value)]
    below = children(value) if above else [pair for pair in children(value) if pair[0] in ("actor", "critics")]
    return [found for name, item in below for found in parts_of_data(item, kind, (*above, name))]


def as_log(file: Recorded, log: Recording) -> Recorded:
    """Returns the file in the place of a dataset, with its reward scale and origin."""
    return replace(file, reward_scale=log.reward_scale, origin=log.origin)


def sources_of(value: Any, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Returns the sources of a recipe that read offline datasets or the task's expert, with their paths."""
    if isinstance(value, Logged | DemonstratedDecisions | Relabelled):
        return [(above, value)]
    return [found for name, item in children(value) for found in sources_of(item, (*above, name))]
