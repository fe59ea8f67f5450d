"""Methods that are systems: how their recipes run where the user does not say."""

from __future__ import annotations

from dataclasses import fields

from assay.core.slots import Task
from assay.runs import catalogue
from assay.runs.options import EnvironmentOptions, RunOptions, run_options
from assay.tasks.adapters.gymnasium import EnvironmentTask


def as_the_method_runs(options: RunOptions, method: str, task: Task) -> RunOptions:
    """Returns the options with those of the method where none is given. Options of environments are for Gymnasium's
    only: the instances of a built-in task are stepped as one array, so there is nothing to wait for.
    """
    chosen = dict(catalogue.find_method(method)[1].options)
    if not isinstance(task, EnvironmentTask):
        chosen = {name: value for name, value in chosen.items() if name not in ENVIRONMENT}
    return options.or_else(run_options(chosen)) if chosen else options


ENVIRONMENT = {one.name for one in fields(EnvironmentOptions)}
