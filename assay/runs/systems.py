"""Methods that are systems: how their recipes run where the user does not say."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from assay.core.slots import Task
from assay.runs import catalogue
from assay.runs.options import EnvironmentOptions, RunOptions, run_options

ENVIRONMENT = {one.name for one in fields(EnvironmentOptions)}


def as_the_method_runs(options: RunOptions, method: str, task: Task) -> RunOptions:
    """Returns the options with those of the method where none is given. Options of environments are for Gymnasium's
    only: the instances of a built-in task are stepped as one array, so there is nothing to wait for.
    """
    unused = unused_options(method, task)
    chosen = {name: value for name, value in options_of(method).items() if name not in unused}
    return options.or_else(run_options(chosen)) if chosen else options


def options_of(method: str) -> dict[str, Any]:
    """Returns the options of a run that a method takes where the user gives none."""
    return dict(catalogue.find_method(method)[1].options)


def unused_options(method: str, task: Task) -> dict[str, Any]:
    """Returns the options of a method that do nothing on this task."""
    found = {name: value for name, value in options_of(method).items() if name in ENVIRONMENT}
    if not found:
        return {}
    from assay.tasks.adapters.gymnasium import EnvironmentTask

    return {} if isinstance(task, EnvironmentTask) else found


def describe_studied(method: str | None) -> str:
    """Returns what of a method's paper does not act in a run, in a sentence; "" if it is not studied only."""
    studied = "" if method is None else catalogue.find_method(method)[1].studied
    return f"{method} is studied, not run: {studied}" if studied else ""


def describe_unused(method: str | None, task: Task) -> str:
    """Returns a sentence on the options of a method that do nothing on this task; "" if there are none."""
    unused = {} if method is None else unused_options(method, task)
    if not unused:
        return ""
    words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in unused.items())
    return (
        f"{method} runs as its base here: {words} does nothing on '{task.name}', whose instances are stepped as one "
        "array. Use a Gymnasium environment, e.g. --task CartPole-v1"
    )
