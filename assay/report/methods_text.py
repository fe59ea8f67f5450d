"""Writes the paragraph on experimental methods that a paper needs: seeds, budget, evaluation, statistics, machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.report.journal import is_count, plural
from assay.report.results import ALL_TASKS, FEWEST_PAIRS, Results
from assay.runs.comparison import RESAMPLES
from assay.statistics.intervals import FEW, number

MOST_NAMES = 12


def methods_text(results: Results, comparison: Mapping[str, Any]) -> str:
    """Returns the paragraph for the runs of a report, in plain text."""
    rows = comparison["rows"]
    sentences = [
        trained(results, rows),
        evaluated(results, comparison),
        intervals(rows),
        *compared_arms(comparison),
        *over_tasks(comparison),
        *incomplete(rows),
        machine(results),
    ]
    return " ".join(filter(None, sentences))


def list_words(names: Iterable[str]) -> str:
    """Joins names as 'a, b and c'; the number of those beyond MOST_NAMES."""
    some = list(dict.fromkeys(names))
    if len(some) > MOST_NAMES:
        some = [*some[: MOST_NAMES - 1], f"{len(some) - MOST_NAMES + 1} more"]
    return " and ".join(filter(None, (", ".join(some[:-1]), some[-1] if some else "")))


def span(values: Sequence[float | None], unit: str) -> str:
    """Returns '100 steps', or '100 to 200 steps' if the values differ; '' if none is known."""
    known = sorted({round(value) for value in values if value is not None})
    if not known:
        return ""
    if known[0] == known[-1]:
        return plural(known[0], unit)
    return f"{known[0]:,} to {known[-1]:,} {unit}s"


def trained(results: Results, rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns what was trained, on how many seeds, for how long."""
    seeds = span([row["seeds"] for row in rows], "seed")
    budget = [span([row["steps"] for row in rows], "training step")]
    decisions = span([row["decisions"] for row in rows], "decision")
    budget += [f"({decisions} on average)"] if decisions else []
    warmup = span([run.config.get("warmup") for run in results.runs if is_count(run.config.get("warmup"))], "step")
    budget += [f"after {warmup} of supervised warm-up"] if warmup not in ("", "0 steps") else []
    groups: dict[tuple[str, ...], list[str]] = {}
    for task in results.tasks:
        groups.setdefault(tuple(row["arm"] for row in rows if row["task"] == task), []).append(task)
    what = "; ".join(f"{list_words(arms)} on {list_words(tasks)}" for arms, tasks in groups.items())
    return f"We trained {what}, with {seeds} each, for {' '.join(filter(None, budget))}."


def evaluated(results: Results, comparison: Mapping[str, Any]) -> str:
    """Returns how a policy was scored."""
    held_out, units = comparison["held_out"], comparison["units"]
    if len(set(held_out.values())) == 1:
        starts = next(iter(held_out.values()))
    else:
        starts = list_words(f"{held_out[task]} of {task}" for task in results.tasks)
    what = list_words(unit.partition(" (")[0] for unit in units.values())
    levels = comparison["levels"]
    at = list_words(f"{level:,.0f} decisions on {task}" for task, level in levels.items())
    when = f"after {at}, as many as the shortest run took (linear between evaluations)" if levels else "after training"
    return f"The score of a run is its mean {what} {when}, on {starts} that are not used in training."


def intervals(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns how scores of several seeds are put together."""
    most = max((len(row["scores"]) for row in rows), default=0)
    if most < 2:
        return "There is one seed, so the scores have no interval."
    how = "Student's t" if most < FEW else f"studentised bootstrap, below {FEW} seeds Student's t"
    return f"We report the mean over seeds with its 95% confidence interval ({how})."


def compared_arms(comparison: Mapping[str, Any]) -> list[str]:
    """Returns how arms were compared."""
    if len({row["arm"] for row in comparison["rows"]}) < 2:
        return []
    most = max(len(row["scores"]) for row in comparison["rows"])
    bootstrap = (
        f", and the probability of improvement has a paired bootstrap interval ({RESAMPLES:,} resamples)"
        if most >= FEWEST_PAIRS
        else ""
    )
    if not comparison["paired"]:
        return ["Arms do not share their seeds, so differences between them are not paired."]
    told = [
        f"Arms share their seeds: differences are paired by seed (interval of the mean difference){bootstrap}. "
        "Intervals are not corrected for multiple comparisons."
    ]
    if comparison["decisions"]:
        told.append(
            "The number of seeds was chosen by a group-sequential test of all pairs of arms with a total error of 5%."
        )
    return told


def over_tasks(comparison: Mapping[str, Any]) -> list[str]:
    """Returns how scores of several tasks were put together."""
    tasks = list(comparison["units"])
    if any(one["task"] == ALL_TASKS for one in comparison["aggregates"]):
        ends = comparison["ranges"].items()
        ranges = list_words(f"{task}: {number(low)} to {number(high)}" for task, (low, high) in ends)
        return [
            f"Over tasks, scores are normalised by the possible range ({ranges}); mean, median, interquartile mean and "
            "optimality gap have expanded stratified bootstrap intervals."
        ]
    return ["Scores of different tasks are not pooled, since their scales differ."] if len(tasks) > 1 else []


def incomplete(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns how many runs failed, are missing, or still run; they are not part of the scores."""
    failed, missing, running = (
        [f"{row['arm']} on {row['task']}: {count}" for row in rows if (count := counted(row[name]))]
        for name in ("failed", "missing", "running")
    )
    kinds = (("failed", failed), ("are missing", missing), ("are still running", running))
    told = [f"Some runs {what} ({list_words(some)})." for what, some in kinds if some]
    so_far = [f"{row['arm']} on {row['task']}" for row in rows if row["so_far"]]
    told += [f"No run of {list_words(so_far)} is finished; the scores are those so far."] if so_far else []
    return [*told, "Scores are of finished runs only."] if told and not so_far else told


def counted(value: Any) -> int:
    """Returns a number, or the length of a list."""
    return len(value) if isinstance(value, list) else int(value)


def machine(results: Results) -> str:
    """Returns versions and machines."""
    configs = [run.config for run in results.runs]
    machines = [one["machine"] for one in configs if isinstance(one.get("machine"), Mapping)]
    names = {"assay": [one.get("assay") for one in configs]} | {
        title: [one.get(name) for one in machines] for title, name in (("Python", "python"), ("PyTorch", "torch"))
    }
    names["NumPy"] = [one.get("numpy") for one in machines]
    known = {name: list_words(map(str, filter(None, some))) for name, some in names.items() if any(some)}
    versions = list_words(f"{name} {some}" for name, some in known.items())
    kinds = list_words(
        ", ".join(
            filter(None, (str(one.get("platform") or ""), f"{one.get('cores')} cores", str(one.get("gpu") or "no GPU")))
        )
        for one in machines
    )
    return f"Runs used {versions}" + (f" on {kinds}." if kinds else ".") if versions else ""
