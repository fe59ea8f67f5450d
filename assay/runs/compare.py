"""`assay.compare`, `assay.ablate` and `assay.tune` from Python: many runs on the same tasks and seeds.

Runs are processes of their own. Objects that only this process knows (functions and classes of a notebook) run here
instead, one run after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, Unpack

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.settings import numbered
from assay.engine.placement import Placement
from assay.runs import ablation, comparison, hardware, search
from assay.runs.argument_kinds import fits, kinds_checked
from assay.runs.arms import Arm, Setup, parsed_arms, plain_name
from assay.runs.catalogue import matching
from assay.runs.given import MethodLike, given_data, given_method, is_of_this_process, named_task
from assay.runs.given_model import given_model
from assay.runs.in_turn import InTurn
from assay.runs.keywords import Keywords, with_keywords
from assay.runs.options import RunOptions
from assay.runs.pools import Pool, Processes
from assay.statistics.search_space import Choice, Space, Uniform, Whole
from assay.statistics.tuning import HyperbandSearch, RandomSearch, Tuned

Methods = Sequence[MethodLike] | Mapping[str, MethodLike]
"""Words of the command line (NAME, NAME:VARIANT, NAME:path=value), recipes, METHODs and functions that make recipes, or
any of them by the name of the arm."""
Ranges = Mapping[str, str | tuple[float, float] | list[Any] | Uniform | Whole | Choice]
"""Settings to search: "low:high:log" as on the command line, (low, high), a list of values, or a range of
`assay.statistics.tuning`."""


@kinds_checked
def compare(
    methods: Methods,
    task: Any,
    *,
    seeds: int | None = 3,
    steps: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    budget: float | None = None,
    equal_decisions: bool = False,
    settings: Mapping[str, Any] | None = None,
    warmup: int | None = None,
    evaluations: int | None = None,
    model: Any = None,
    data: Any = (),
    preset: str | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[Keywords],
) -> comparison.Outcome:
    """Trains every method on every task with the same seeds and returns what they say together: in a notebook, a table
    and curves.

    `task` is one task as `assay.train` takes it, or a list of names, which may have a `*` (["mini-pendulum-*"]).
    `seeds` None lets the sequential test choose their number. `budget` is in minutes: after it no further run starts,
    and the same call goes on. `jobs` is the number of runs at a time. `equal_decisions` reads the scores where all runs
    of a task have taken as many decisions as the shortest one: environment steps, or tokens with those that were thrown
    away. The other arguments are those of `assay.train`. Runs are processes of their own; with objects that only this
    process knows they run here, one after the other.
    """
    several = isinstance(task, list) and bool(task) and all(isinstance(one, str) for one in task)
    tasks = [named_task(one) for one in (matching(task) if several else [task])]
    told = {"steps": steps, "settings": settings, "warmup": warmup, "model": model, "data": data, "preset": preset}
    arguments = plan_arguments(told, options, keywords, evaluations)
    arms = arms_of(methods)
    pool, jobs = pool_of([*tasks, *(arm.method for arm in arms)], arguments, jobs)
    folder = Path(out) if out is not None else Path("runs") / f"compare-{'-'.join(map(plain_name, tasks))}"
    setup = Setup(
        arms, tuple(tasks), folder, seeds, arguments, budget, jobs, pool=pool, equal_decisions=equal_decisions
    )
    return comparison.run(setup)


@kinds_checked
def ablate(
    first: MethodLike,
    second: MethodLike,
    task: Any,
    *,
    seeds: int = 5,
    steps: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    budget: float | None = None,
    settings: Mapping[str, Any] | None = None,
    warmup: int | None = None,
    evaluations: int | None = None,
    model: Any = None,
    data: Any = (),
    preset: str | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[Keywords],
) -> ablation.Ablation:
    """Finds which parts carry the difference between two methods, as `assay ablate`; in a notebook, a table of shares.

    Every part in which they differ is swapped by itself from both ends, and in all combinations if there are at most
    four. The other arguments are those of `assay.compare`.
    """
    word = named_task(task)
    told = {"steps": steps, "settings": settings, "warmup": warmup, "model": model, "data": data, "preset": preset}
    arguments = plan_arguments(told, options, keywords, evaluations)
    one, other = given_method(first), given_method(second)
    pool, jobs = pool_of([word, one, other], arguments, jobs)
    folder = Path(out) if out is not None else None
    planned = ablation.planned(one, other, word, arguments, seeds, folder, budget, jobs)
    planned = replace(planned, setup=replace(planned.setup, pool=pool))
    return ablation.Ablation(planned, comparison.run(planned.setup))


@kinds_checked
def tune(
    method: MethodLike,
    task: Any,
    search_space: Ranges,
    *,
    trials: int = 16,
    tuning_seeds: int = 2,
    seeds: int = 5,
    hyperband: bool = False,
    steps: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    settings: Mapping[str, Any] | None = None,
    warmup: int | None = None,
    model: Any = None,
    data: Any = (),
    preset: str | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[Keywords],
) -> Tuned:
    """Searches settings on some seeds and reports the score of the best on fresh ones, as `assay tune`.

    `search_space` maps settings to their ranges, `{"learning_rate": "1e-5:1e-2:log", "group_size": [4, 8]}`. A search
    in the same folder is resumed. The other arguments are those of `assay.compare`.
    """
    word, name = named_task(task), given_method(method)
    if isinstance(name, Recipe):
        raise AssayError(f"recipe '{name.name}' has no settings by a method's name. Give the function that makes it.")
    told = {"settings": settings, "warmup": warmup, "model": model, "data": data, "preset": preset}
    arguments = plan_arguments(told, options, keywords, None)
    pool, jobs = pool_of([word, name], arguments, jobs)
    folder = Path(out) if out is not None else search.folder_of(name, word)
    training = search.Training(name, word, steps, folder, arguments, workers=jobs, pool=pool)
    how = HyperbandSearch() if hyperband else RandomSearch()
    return search.tuned(training, space_of(search_space), trials, tuning_seeds, seeds, how)


# ---------------------------------------------------------------------------------------------------- arguments
def plan_arguments(
    told: Mapping[str, Any], options: RunOptions, keywords: Mapping[str, Any], evaluations: int | None
) -> dict[str, Any]:
    """Returns the arguments of `make_plan` that a call names, with defaults of the hardware."""
    options, placement, given = with_keywords(options, None, keywords)
    told = {**told, "model": given_model(told["model"]), "data": given_data(told["data"])}
    if evaluations is not None:
        options = replace(options, cadence=replace(options.cadence, evaluations=evaluations))
    where, options = hardware.chosen(told["model"], options, told["settings"] or {}, placement or Placement(), **given)
    return {**told, "options": options, "placement": where}


def pool_of(named: Sequence[str | Recipe], arguments: Mapping[str, Any], jobs: int | None) -> tuple[Pool, int | None]:
    """Returns where runs run, and how many at a time: processes, or this one for objects that only it knows; in turn
    on a GPU.
    """
    words = [one for one in named if isinstance(one, str)]
    words += [source for group in arguments["options"] for source in group.sources()]
    if is_of_this_process(words):
        return InTurn(), 1
    on_gpu = arguments["placement"].is_on_gpu
    return Processes(), 1 if jobs is None and on_gpu else jobs


def arms_of(methods: Methods) -> tuple[Arm, ...]:
    """Returns the arms of methods by word, of recipes and of objects, or of any of them by name."""
    if isinstance(methods, str):
        raise AssayError(f"methods is '{methods}'. Give a list: [\"{methods}\", ...].")
    if not isinstance(methods, Iterable) or (isinstance(methods, Sequence | Mapping) and not methods):
        raise AssayError(f"methods is {methods!r:.60}. Give a list of methods.")
    if isinstance(methods, Mapping):
        for name in methods:
            if not isinstance(name, str) or not name.strip():
                raise AssayError(f"methods has the name {name!r:.60}. Give names of methods as texts.")
        return tuple(replace(arm_of(one), name=name) for name, one in methods.items())
    arms = [arm_of(one) for one in methods]
    names = numbered([arm.name for arm in arms])
    return tuple(replace(arm, name=name) for arm, name in zip(arms, names, strict=True))


def arm_of(method: MethodLike) -> Arm:
    """Returns the arm of one method."""
    if isinstance(method, str):
        return parsed_arms([method])[0]
    found = given_method(method)
    return Arm(found.name if isinstance(found, Recipe) else found.rpartition(":")[2], found)


def space_of(ranges: Ranges) -> Space:
    """Returns a search space of texts, pairs, lists and ranges."""
    if not isinstance(ranges, Mapping):
        what = f"search_space is {ranges!r:.60}"
        raise AssayError(f'{what}. Give a dict from settings to ranges, such as {{"learning_rate": "1e-5:1e-2:log"}}.')
    found: dict[str, Uniform | Whole | Choice] = {}
    for path, one in ranges.items():
        if not isinstance(path, str):
            raise AssayError(f"search_space has the setting {path!r:.60}. Name settings by texts.")
        if isinstance(one, str):
            found[path] = search.parsed_range(f"{path}={one}", one)
        elif isinstance(one, tuple):
            if len(one) != 2 or not all(fits(end, float) and isfinite(end) for end in one):
                raise AssayError(f"'{path}' has the range {one}. Give (low, high), or a list of values.")
            whole = all(isinstance(end, int) for end in one)
            found[path] = Whole(int(one[0]), int(one[1])) if whole else Uniform(float(one[0]), float(one[1]))
        elif isinstance(one, list):
            found[path] = Choice(tuple(one))
        elif isinstance(one, Uniform | Whole | Choice):
            found[path] = one
        else:
            raise AssayError(f"'{path}' has the range {one!r:.60}. Give \"low:high\", (low, high) or a list of values.")
    return Space(found)
