"""Methods and tasks given as Python objects, as the words that a plan takes.

A method is a name, a recipe, a METHOD, or a function `recipe(preset)`. A task is a name, a file, a `Task`, rows, a
class of environments, or a function that makes one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Task
from assay.datasets.dataset import Dataset
from assay.datasets.files import from_arrays, read, write
from assay.recipes.method import Method
from assay.runs import catalogue
from assay.runs.given_rows import FOLDER, address_of_rows
from assay.runs.user_code.addresses import PYTHON
from assay.runs.user_code.methods_and_tasks import is_task
from assay.runs.user_code.objects import address_of_object, remembered

MethodLike = str | Recipe | Method | Callable[..., Recipe]
"""A method by name or file, a recipe, a METHOD, or a function that makes a recipe of a preset."""

DEFAULT_METHOD = "grpo"
DEMONSTRATION: Mapping[str, Any] = {"task": "sorting-5", "steps": 200, "warmup": 60}
"""What is trained without a method: minutes on two cores."""


def given_method(method: MethodLike) -> str | Recipe:
    """Returns a method as a word or a recipe; AssayError for anything else."""
    if isinstance(method, str | Recipe):
        return method
    if isinstance(method, Method):
        module = getattr(method.recipe, "__module__", "") or ""
        is_found = module != "__main__" and vars(sys.modules.get(module, sys)).get("METHOD") is method
        return f"{module}:METHOD" if is_found else remembered(method, "METHOD")
    if not callable(method) or isinstance(method, type):
        raise AssayError(
            f"method is {method!r:.60}. Give a name, a Recipe, a METHOD, or a function recipe(preset) that returns one."
        )
    return address_of_object(method, "method")


def default_task(method: str | Recipe, data: Sequence[str] = ()) -> str:
    """Returns the task that the first file of the data names, else the method's default; AssayError for a recipe, which
    has none.
    """
    named = read(data[0]).about.get("task") if data else None
    if isinstance(named, str):
        return named
    if isinstance(method, Recipe):
        raise AssayError(f"the recipe '{method.name}' has no default task. Name one: assay.train(recipe, 'countdown').")
    return catalogue.find_method(method)[1].default_task


def given_task(task: Any) -> str | Task:
    """Returns a task by its name or as it is; of rows, classes and functions the address that they are found by.

    AssayError for an environment that is made already: a run makes several, each with its own seed.
    """
    if isinstance(task, Path):
        return str(task)
    if isinstance(task, str) or is_task(task):
        return task
    if isinstance(task, type) or (callable(task) and not is_environment(task)):
        return address_of_object(task, "task")
    if is_environment(task):
        raise AssayError(
            f"task is a {type(task).__name__} that is made already, and a run makes several. Give its class, or a "
            "function that makes one: task=lambda: make(...)."
        )
    return address_of_rows(task)


def named_task(task: Any) -> str:
    """Returns a task as a word, as runs of a comparison need it; a `Task` is remembered under its name."""
    found = given_task(task)
    return found if isinstance(found, str) else remembered(found, found.name.replace("-", "_"))


def given_data(data: Any) -> tuple[str, ...]:
    """Returns offline datasets as files: paths and minari:ID as they are, a `Dataset` or a mapping of arrays as the
    file that it is written to, named by its content. `data` is one of them or a list of several.
    """
    several = data if isinstance(data, list | tuple) else [data]
    return tuple(str(one) if isinstance(one, str | Path) else str(written_data(one)) for one in several)


def written_data(data: Any) -> Path:
    """Returns the file of a `Dataset`, or of a mapping of arrays; AssayError for anything else."""
    if isinstance(data, Mapping):
        data = from_arrays({str(name): np.asarray(column) for name, column in data.items()}, {})
    if not isinstance(data, Dataset):
        what = "Give a file, minari:ID, a dict of arrays (observation, action, reward, terminal, ...), or a Dataset"
        raise AssayError(f"data is a {type(data).__name__}. {what}.")
    path = FOLDER / f"{data.hash}.safetensors"
    return path if path.is_file() else write(data, path)


def is_environment(value: Any) -> bool:
    """Returns whether a value can be reset and stepped."""
    return all(callable(getattr(value, name, None)) for name in ("reset", "step"))


def is_of_this_process(words: list[str]) -> bool:
    """Returns whether one of these words names an object that only this process knows."""
    return any(word.startswith(PYTHON) for word in words)
