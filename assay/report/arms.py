"""Names the arms of runs, and finds the runs that a comparison planned and that have no result."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from assay.report.journal import is_count, open_regular, parsed
from assay.report.page_runs import LARGEST_CONFIG, Run, same_name
from assay.runs.arms import plain_name

COMPARISON = "comparison.json"
DEPTH = 3
"""Folders of a run inside that of its comparison: arm, task, seed."""


@dataclass(frozen=True)
class Absent:
    """A run that is not there: failed if there is a reason, else missing."""

    arm: str
    task: str
    seed: int
    reason: str = ""


@dataclass(frozen=True)
class Plans:
    """What the comparison.json files say: arms by folder, tasks, runs without a result, sequential tests."""

    names: Mapping[Path, str]
    tasks: tuple[str, ...] = ()
    absent: tuple[Absent, ...] = ()
    decisions: tuple[Mapping[str, Any], ...] = ()
    levels: Mapping[Path, Mapping[str, float]] = field(default_factory=dict)
    """By the folder of a comparison: the decisions at which it reads the scores of each task, if not the last ones."""


def read_plans(folders: Sequence[Path], runs: Sequence[Run]) -> Plans:
    """Reads the comparisons that the given folders are or contain."""
    given = [Path(folder).resolve() for folder in folders]
    above = [run.folder.parents[DEPTH - 1] for run in runs if len(run.folder.parents) >= DEPTH]
    inside = [path for path in above if any(path.is_relative_to(one) for one in given)]
    names: dict[Path, str] = {}
    tasks: list[str] = []
    absent: list[Absent] = []
    decisions: list[Mapping[str, Any]] = []
    levels: dict[Path, dict[str, float]] = {}
    for folder in dict.fromkeys([*given, *inside]):
        facts = read_facts(folder / COMPARISON)
        names |= {folder / plain_name(name): name for name in arm_names(facts)}
        tasks += [str(task)[:200] for task in as_list(facts.get("tasks"))]
        absent += [one for kind in ("failures", "missing") for one in absent_runs(facts.get(kind))]
        absent += [one for one in absent_runs(facts.get("runs")) if not run_folder(folder, one).is_dir()]
        decisions += [one for one in as_list(facts.get("decision")) if isinstance(one, Mapping)]
        told = facts.get("levels")
        levels[folder] = {task: at for task, at in told.items() if is_count(at)} if isinstance(told, Mapping) else {}
    return Plans(names, tuple(dict.fromkeys(tasks)), tuple(absent), tuple(decisions), levels)


def read_facts(path: Path) -> dict[str, Any]:
    """Returns a comparison.json; empty if it is missing or cannot be read."""
    try:
        with open_regular(path) as file:
            return parsed(file.read(LARGEST_CONFIG)) or {}
    except OSError:
        return {}


def as_list(value: Any) -> list[Any]:
    """Returns a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def arm_names(facts: Mapping[str, Any]) -> list[str]:
    """Returns the names of a comparison's arms."""
    return [str(arm["name"]) for arm in as_list(facts.get("arms")) if isinstance(arm, Mapping) and "name" in arm]


def absent_runs(found: Any) -> list[Absent]:
    """Returns the runs of a list of a comparison."""
    return [
        Absent(str(one.get("arm"))[:200], str(one.get("task"))[:200], one["seed"], str(one.get("reason") or "")[:500])
        for one in as_list(found)
        if isinstance(one, Mapping) and is_count(one.get("seed"))
    ]


def run_folder(folder: Path, one: Absent) -> Path:
    """Returns where a comparison has a run."""
    return folder / plain_name(one.arm) / plain_name(one.task) / f"seed-{one.seed}"


def in_order(runs: Sequence[Run], plans: Plans) -> list[Run]:
    """Returns the runs in the order of the comparison's arms and tasks; others after them, in the order given."""
    arms = {folder: place for place, folder in enumerate(plans.names)}
    tasks = {task: place for place, task in enumerate(plans.tasks)}

    def key(run: Run) -> tuple[int, int]:
        return arms.get(arm_folder(run), len(arms)), tasks.get(run.task, len(tasks))

    return sorted(runs, key=key)


def arm_folder(run: Run) -> Path:
    """Returns the folder of a run's arm, if the run belongs to a comparison."""
    return run.folder.parents[1] if len(run.folder.parents) > 1 else run.folder


# ---------------------------------------------------------------------------------------------------- names
def name_tasks(runs: Sequence[Run], plans: Plans) -> None:
    """Gives every run of a comparison the task's name there, and any other run of files their names without folders,
    unless these would be the names of two tasks.
    """
    planned = {plain_name(task): task for task in plans.tasks}
    recorded = {run.folder: str(run.config.get("task") or run.task)[:200] for run in runs}
    inside = [run for run in runs if arm_folder(run) in plans.names and run.folder.parent.name in planned]
    names = {recorded[run.folder]: planned[run.folder.parent.name] for run in inside}
    short = {task: without_folders(task) for task in {*recorded.values()} - names.keys()}
    times = Counter([*short.values(), *plans.tasks])
    names |= {task: name for task, name in short.items() if times[name] == 1}
    for run in runs:
        run.task = names.get(recorded[run.folder], recorded[run.folder])


def read_at_levels(runs: Sequence[Run], plans: Plans) -> None:
    """Sets the decisions at which the score of a run is read, where its comparison says so; after `name_tasks`."""
    for run in runs:
        levels = plans.levels.get(run.folder.parents[DEPTH - 1], {}) if len(run.folder.parents) >= DEPTH else {}
        run.level = levels.get(run.task)


def without_folders(task: str) -> str:
    """Returns a task of files, which a run records with their whole paths, by the names of the files."""
    return ",".join(PurePath(part).name if part.startswith("/") else part for part in task.split(","))


def name_arms(runs: Sequence[Run], names: Mapping[Path, str] | None = None) -> None:
    """Sets the arm of each run: its name in the comparison, else its method, and what differs if it has several
    settings on a task. Capitals and '_' for '-' do not make another arm: the first spelling is shown.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    spelled: dict[str, str] = {}
    for run in runs:
        base = (names or {}).get(arm_folder(run), run.method)
        spelled.setdefault(same_name(base), base)
        groups.setdefault((same_name(base), run.task), []).append(run)
    for (key, _), group in groups.items():
        for run in group:
            run.arm = spelled[key]
        variants = list(dict.fromkeys(run.settings_text for run in group))
        if len(variants) > 1:
            tell_apart(group, variants)


def tell_apart(group: Sequence[Run], variants: Sequence[str]) -> None:
    """Adds to the arms of runs with different settings what differs, or a number if that is not enough."""
    names = list(dict.fromkeys(name for run in group for name in run.settings))
    texts = {run.settings_text: run.settings for run in group}
    differing = [name for name in names if len({json.dumps(one.get(name)) for one in texts.values()}) > 1]
    told = {text: f" ({in_short(differing, one)})" if differing else "" for text, one in texts.items()}
    is_enough = len(set(told.values())) == len(variants)
    for run in group:
        number = "" if is_enough else f" #{variants.index(run.settings_text) + 1}"
        run.arm += told[run.settings_text] + number


def in_short(names: Sequence[str], one: Mapping[str, Any]) -> str:
    """Returns the first settings that differ, without the path: 'learning_rate 0.001, epochs 4'."""
    chosen = list(dict.fromkeys(names))
    plain = [name for name in chosen if not name.startswith("settings.")] or chosen
    shown = [f"{name.split('.')[-1]} {json.dumps(one.get(name), default=str)}"[:60] for name in plain[:2]]
    more = len(plain) - 2
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def without_result(runs: Sequence[Run], plans: Plans) -> list[Absent]:
    """Returns the runs that are not there: those that comparisons planned, and of arms without a plan the seeds that
    another such arm of the task has besides all of theirs.
    """
    seeds: dict[tuple[str, str], set[int]] = {}
    free = dict.fromkeys((run.arm, run.task) for run in runs if arm_folder(run) not in plans.names)
    arms = {same_name(run.arm): run.arm for run in runs}
    for run in runs:
        seeds.setdefault((run.arm, run.task), set()).add(run.seed)
    found = {}
    for one in plans.absent:
        arm = arms.get(same_name(one.arm), one.arm)
        if one.seed not in seeds.get((arm, one.task), ()):
            found[arm, one.task, one.seed] = Absent(arm, one.task, one.seed, one.reason)
    for arm, task in free:
        mine = seeds[arm, task]
        others = [seeds[other] for other in free if other[1] == task and mine < seeds[other]]
        for seed in sorted(set().union(*others) - mine):
            found.setdefault((arm, task, seed), Absent(arm, task, seed))
    return list(found.values())
