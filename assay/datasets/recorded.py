"""Data sets as logs: what `sources.logged.Logged` draws its batches from, and recipes that learn from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Origin
from assay.core.settings import changed, children
from assay.core.slots import Task
from assay.datasets.dataset import Dataset
from assay.datasets.files import read
from assay.parts.sources.demonstrations import DemonstratedDecisions
from assay.parts.sources.logged import Logged, Recording


@dataclass(frozen=True)
class Recorded:
    """The rows of a file (see `datasets.files`); contents of another hash than the one named are refused."""

    path: str
    hash: str = ""
    reward_scale: float = 1.0
    origin: int = int(Origin.DATASET)

    def columns(self, task: Task) -> dict[str, Tensor]:
        """The transitions of the file, which must be of the task's spaces."""
        return checked(self, task).pairs(self.reward_scale)


def checked(file: Recorded, task: Task) -> Dataset:
    """The contents of a file, if they are those that it names and of the task's spaces."""
    data = read(file.path)
    if file.hash and data.hash != file.hash:
        raise AssayError(
            f"data {file.path}: its contents are {data.hash}, the run is of {file.hash}; restore the file, or start a "
            "new run"
        )
    data.check_fits(task.spec, task.name)
    return data


def stamped(file: str | Recorded, task: Task) -> Recorded:
    """A file as a log, with the hash of what it holds now; refuses data of another task, and other data than named."""
    address, known = (file.path, file.hash) if isinstance(file, Recorded) else (file, "")
    path = str(Path(address).resolve()) if Path(address).exists() else address
    return replace(Recorded(path, known), hash=checked(Recorded(path, known), task).hash)


def with_data(recipe: Recipe, files: Sequence[Recorded]) -> Recipe:
    """The recipe whose logs are these files, as many as it has, in their order.

    A cloning recipe that asks the task's expert for episodes clones the file's decisions instead.
    """
    places = sources_of(recipe)
    if not places:
        raise AssayError(
            f"recipe '{recipe.name}' gathers its own experience; --data is for methods that learn from a log, such as "
            "dual-rl and bc"
        )
    for path, source in places:
        if isinstance(source, DemonstratedDecisions):
            source = Logged((files[0],), updates=source.minibatches)
        logs = source.logs
        if len(files) != len(logs):
            raise AssayError(
                f"recipe '{recipe.name}' learns from {len(logs)} logs; give --data as often, in their order"
            )
        recipe = cast(Recipe, changed(recipe, path, replace(source, logs=tuple(map(as_log, files, logs)))))
    return recipe


def as_log(file: Recorded, log: Recording) -> Recorded:
    """The file in a log's place: rewards scaled as that one's, rows marked as that one's."""
    return replace(file, reward_scale=log.reward_scale, origin=log.origin)


def sources_of(value: Any, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """The sources of a recipe that draw from logs or from the task's expert, with their paths."""
    if isinstance(value, Logged | DemonstratedDecisions):
        return [(above, value)]
    return [found for name, item in children(value) for found in sources_of(item, (*above, name))]
