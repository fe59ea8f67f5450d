"""`assay.compare`: several methods on the same tasks and seeds, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.settings import numbered
from assay.engine.placement import Placement
from assay.runs import comparison, hardware
from assay.runs.given_rows import task_of_rows
from assay.runs.keywords import Keywords, with_keywords
from assay.runs.options import RunOptions
from assay.runs.user_code.addresses import PYTHON

Methods = Sequence[str | Recipe] | Mapping[str, str | Recipe]
"""Words of the command line (NAME, NAME:VARIANT, NAME:path=value), recipes, or either by the name of the arm."""


def compare(
    methods: Methods,
    task: Any,
    *,
    seeds: int | None = 3,
    steps: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    budget: float | None = None,
    settings: Mapping[str, Any] | None = None,
    warmup: int | None = None,
    evaluations: int | None = None,
    model: str | None = None,
    data: Sequence[str] = (),
    preset: str | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[Keywords],
) -> comparison.Outcome:
    """Trains every method on every task with the same seeds and returns what they say together: in a notebook, a table
    and curves.

    `task` is one task as `assay.train` takes it, or a list of names. `seeds` None lets the sequential test choose their
    number. `budget` is in minutes: after it no further run starts, and the same call goes on. `jobs` is the number of
    runs at a time. The other arguments are those of `assay.train`. Runs are processes of their own, which do not
    know the functions of a notebook: these are refused.
    """
    several = isinstance(task, list) and bool(task) and all(isinstance(one, str) for one in task)
    found = [task_of_rows(one) for one in (task if several else [task])]
    tasks = [one for one in found if isinstance(one, str)]
    if len(tasks) < len(found):
        raise AssayError("task is an object. Runs of a comparison are processes: name it as FILE.py:NAME.")
    options, placement, given = with_keywords(options, None, keywords)
    told = [word for word in (*options.own.reward, *options.own.tool) if word.startswith(PYTHON)]
    if told:
        name = told[0].removeprefix(PYTHON).partition("=")[0]
        raise AssayError(f"'{name}' is no function of a file. Runs of a comparison are processes: use FILE.py:{name}.")
    where, options = hardware.chosen(model, options, settings or {}, placement or Placement(), **given)
    if evaluations is not None:
        options = replace(options, cadence=replace(options.cadence, evaluations=evaluations))
    told_plan = {"steps": steps, "settings": settings, "warmup": warmup, "model": model, "data": tuple(data)}
    arguments = {**told_plan, "preset": preset, "options": options, "placement": where}
    folder = Path(out) if out is not None else Path("runs") / f"compare-{'-'.join(map(comparison.plain_name, tasks))}"
    return comparison.run(comparison.Setup(arms_of(methods), tuple(tasks), folder, seeds, arguments, budget, jobs))


def arms_of(methods: Methods) -> tuple[comparison.Arm, ...]:
    """Returns the arms of methods by word, of recipes, or of both by name."""
    if isinstance(methods, str):
        raise AssayError(f"methods is '{methods}'. Give a list: [\"{methods}\", ...].")
    if isinstance(methods, Mapping):
        found = {
            name: comparison.parsed_arms([one])[0] if isinstance(one, str) else one for name, one in methods.items()
        }
        return tuple(
            replace(one, name=name) if isinstance(one, comparison.Arm) else comparison.Arm(name, one)
            for name, one in found.items()
        )
    arms = [
        comparison.parsed_arms([one])[0] if isinstance(one, str) else comparison.Arm(one.name, one) for one in methods
    ]
    names = numbered([arm.name for arm in arms])
    return tuple(replace(arm, name=name) for arm, name in zip(arms, names, strict=True))
