"""One page that shows runs: comparison, learning curves, profiles, time, settings, samples and verdicts in one file.

`gather` makes JSON of run folders, `write` puts it with the style and the script of page_assets into one HTML file that
makes no network request. Samples and names are text: they enter the file as escaped JSON, the script sets them as text
content, and a Content-Security-Policy lets only this style and this script run.

Without a comparison from `assay compare`, the score of a run is its last evaluation, an arm's estimate the mean over
seeds with `mean_interval`, the profile the share of runs at or above a threshold, the probability of improvement the
share of pairs in which one arm beats the other (ties half), averaged over tasks.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from assay.app.report.page_runs import (
    LARGEST_JOURNAL,
    Run,
    find,
    flat,
    messages,
    name_arms,
    parsed,
    plural,
    read,
    settings,
    spaced,
)
from assay.core.store import write_text
from assay.evidence.intervals import mean_interval
from assay.evidence.student import student_quantile
from assay.runs.folder import SAMPLES, plain
from assay.version import __version__

ASSETS = Path(__file__).parent / "page_assets"
MOST_SAMPLES, MOST_BYTES, LONGEST_TEXT = 10_000, 20 * 2**20, 2 * 2**20
MOST_NOTES, THRESHOLDS, STUDENT = 200, 61, 60
ACTIVE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")  # special in HTML, or invalid in UTF-8

Scores: TypeAlias = "dict[str, dict[str, list[float]]]"  # task -> arm -> one score per run


# ---------------------------------------------------------------------------------------------------- gathering
def gather(
    folders: Sequence[Path], verdicts: Sequence[Mapping[str, Any]] = (), comparison: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns all that the page shows, as JSON; `notes` names what could not be read."""
    runs = [read(folder, label) for folder, label in find(folders)] if folders or not (verdicts or comparison) else []
    name_arms(runs)
    arms = list(dict.fromkeys(run.arm for run in runs))
    samples, count, sample_notes = gather_samples(runs)
    given = plain(comparison or {}, "", [])
    notes = [note for run in runs for note in run.notes] + sample_notes + list(repeated(runs))
    return header(runs) | {
        "arms": [arm_facts(arm, [run for run in runs if run.arm == arm]) for arm in arms],
        "tasks": list(dict.fromkeys(run.task for run in runs)),
        "runs": [run_facts(run) for run in runs],
        "comparison": compared(runs) | {"given": bool(given)} | as_shown(given),
        "differences": differences(runs, arms),
        "samples": samples,
        "sample_count": {"shown": len(samples), "total": count},
        "verdicts": plain(list(verdicts), "", []),
        "notes": cut_off(notes),
        "student": [student_quantile(0.975, dof) for dof in range(1, STUDENT + 1)],
        "live": False,
    }


def nothing(note: str) -> dict[str, Any]:
    """Returns the data of a page that shows one sentence."""
    return gather([], [{"name": ""}]) | {"verdicts": [], "notes": [note]}


def header(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns title, time, machines and versions."""
    tasks, methods = (list(dict.fromkeys(getattr(run, name) for run in runs)) for name in ("task", "method"))
    title = f"{listed(methods)} on {listed(tasks)}" if runs else "Report"
    machines = [run.config["machine"] for run in runs if isinstance(run.config.get("machine"), dict)]
    distinct = {json.dumps(plain(machine, "", []), sort_keys=True): machine for machine in machines}
    versions = sorted({str(run.config["assay"])[:50] for run in runs if run.config.get("assay")})
    return {
        "title": title,
        "written": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "assay": __version__,
        "versions": versions,
        "machines": plain(list(distinct.values())[:5], "", []),
    }


def listed(names: Sequence[str]) -> str:
    """Joins names as 'a, b and 3 more'."""
    shown = [name[:40] for name in (names if len(names) <= 3 else names[:2])]
    more = [f"{len(names) - 2} more"] if len(names) > 3 else []
    return " and ".join(filter(None, (", ".join((shown + more)[:-1]), (shown + more)[-1])))


def repeated(runs: Iterable[Run]) -> Iterable[str]:
    """Yields one sentence for each seed that an arm has more than once on a task."""
    seen: dict[tuple[str, str, int], int] = {}
    for run in runs:
        key = run.arm, run.task, run.seed
        seen[key] = seen.get(key, 0) + 1
    for (arm, task, seed), count in seen.items():
        if count > 1:
            yield f"{arm} on {task} has seed {seed} {count} times: these runs are not independent"


def cut_off(notes: Sequence[str]) -> list[str]:
    """Returns the first notes and the number of the others."""
    more = len(notes) - MOST_NOTES
    return [note[:1000] for note in notes[:MOST_NOTES]] + ([f"and {plural(more, 'more note')}"] if more > 0 else [])


def run_facts(run: Run) -> dict[str, Any]:
    """Returns one run with its curves as JSON."""
    values = {name: getattr(run, name) for name in ("label", "arm", "task", "seed", "state", "reason", "step", "steps")}
    seconds = run.seconds()
    alarms = [text for record in run.records for text in messages(record)]
    return values | {
        "score": run.score,
        "decisions": run.decisions,
        "seconds": seconds[-1] if seconds else None,
        "phases": run.phases(),
        "curves": run.curves(),
        "alarms": list(dict.fromkeys(alarms))[:20],
    }


def arm_facts(arm: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Returns name, method and full settings of an arm, by task."""
    first = {run.task: run for run in reversed(runs)}
    configs = {task: plain(flat(run.config), "", []) for task, run in first.items()}
    return {"name": arm, "method": runs[0].method, "configs": configs}


def differences(runs: Sequence[Run], arms: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the settings in which arms differ, one value per arm; absent ones are left out."""
    each = [plain(settings(next(run for run in runs if run.arm == arm)), "", []) for arm in arms]
    rows = []
    for name in dict.fromkeys(name for one in each for name in one):
        texts = {json.dumps(one[name]) if name in one else "" for one in each}
        if len(texts) > 1 and name not in ("method", "recipe.name"):
            values = {arm: one[name] for arm, one in zip(arms, each, strict=True) if name in one}
            rows.append({"setting": name, "values": values})
    return rows


# ---------------------------------------------------------------------------------------------------- comparison
def compared(runs: Sequence[Run]) -> dict[str, Any]:
    """Computes rows, profiles and the improvement matrix from the last evaluations of the runs."""
    scores: Scores = {}
    for run in runs:
        values = scores.setdefault(run.task, {}).setdefault(run.arm, [])
        values += [run.score] if run.score is not None else []
    rows = [row(task, arm, scores[task], runs) for task in scores for arm in scores[task]]
    profiles = [profile(task, arms) for task, arms in scores.items() if any(arms.values())]
    return {"rows": rows, "profiles": profiles, "improvement": improvement(scores)}


def row(task: str, arm: str, scores: Mapping[str, Sequence[float]], runs: Sequence[Run]) -> dict[str, Any]:
    """Returns one row of the comparison table; improvement is over the first arm of the task."""
    mine = [run for run in runs if run.arm == arm and run.task == task]
    first = next(iter(scores))
    estimate = mean_interval(scores[arm], binary=False)
    seconds = [total for run in mine for total in run.seconds()[-1:]]
    decisions = [run.decisions for run in mine if run.decisions is not None]
    failed = [{"run": run.label, "seed": run.seed, "reason": run.reason} for run in mine if run.state == "stopped"]
    return {
        "arm": arm,
        "task": task,
        "estimate": known(estimate.value),
        "low": known(estimate.low),
        "high": known(estimate.high),
        "scores": list(scores[arm]),
        "improvement": None if arm == first else better(scores[arm], scores[first]),
        "over": first,
        "seconds": sum(seconds) / len(seconds) if seconds else None,
        "decisions": sum(decisions) / len(decisions) if decisions else None,
        "seeds": len(mine),
        "finished": sum(run.state == "finished" for run in mine),
        "running": sum(run.state == "running" for run in mine),
        "failed": failed,
    }


def known(value: float) -> float | None:
    """Returns the number, or None if it is NaN or infinite."""
    return value if math.isfinite(value) else None


def better(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Computes the share of pairs in which `a` is larger, ties half."""
    if not a or not b:
        return None
    gaps = np.sign(np.subtract.outer(np.asarray(a, dtype=float), np.asarray(b, dtype=float)))
    return float((gaps.mean() + 1) / 2)


def profile(task: str, scores: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Computes the share of runs at or above each threshold, with Wilson's interval."""
    every = [value for values in scores.values() for value in values]
    low, high = min(every), max(every)
    pad = (high - low) * 0.05 or abs(low) * 0.1 or 1.0
    thresholds = [float(f"{value:.6g}") for value in np.linspace(low - pad, high + pad, THRESHOLDS)]
    arms = {}
    for arm, values in scores.items():
        shares = [mean_interval([value >= tau for value in values], binary=True) for tau in thresholds if values]
        arms[arm] = [[round(getattr(each, name), 5) for each in shares] for name in ("value", "low", "high")]
    return {"task": task, "thresholds": thresholds, "arms": {arm: lines for arm, lines in arms.items() if lines[0]}}


def improvement(scores: Scores) -> dict[str, Any]:
    """Computes P(row beats column), the mean over the tasks on which both have scores."""
    arms = list(dict.fromkeys(arm for each in scores.values() for arm in each))
    matrix: list[list[float | None]] = []
    for one in arms:
        shares = [[better(each.get(one, ()), each.get(two, ())) for each in scores.values()] for two in arms]
        found = [[share for share in column if share is not None] for column in shares]
        matrix.append([sum(column) / len(column) if column else None for column in found])
    return {"arms": arms, "matrix": matrix, "low": None, "high": None}


def as_shown(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a comparison from outside in the form of `compared`, without the fields that it lacks."""
    shown = {name: given[name] for name in ("rows", "improvement", "ablation") if given.get(name)}
    if given.get("profile"):
        shown["profiles"] = [{"task": ""} | given["profile"]]
    return shown


# ---------------------------------------------------------------------------------------------------- samples
def gather_samples(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], int, list[str]]:
    """Returns samples of all runs within the limits, evenly spaced over each run; their total number; notes."""
    notes: list[str] = []
    indexes = [sample_lines(run, notes) for run in runs]
    quota = min(MOST_SAMPLES, max(map(len, indexes), default=0))
    while quota:
        chosen = [spaced(range(len(index)), quota) for index in indexes]
        sizes = [
            min(index[place][1], LONGEST_TEXT) for index, some in zip(indexes, chosen, strict=True) for place in some
        ]
        if len(sizes) <= MOST_SAMPLES and sum(sizes) <= MOST_BYTES:
            break
        quota = min(quota - 1, quota * 9 // 10)
    samples: list[dict[str, Any]] = []
    for number, (run, index) in enumerate(zip(runs, indexes, strict=True)):
        bad = 0
        for record in read_chosen(run, [index[place] for place in spaced(range(len(index)), quota)]):
            bad += record is None
            samples += [shortened(record) | {"run": number}] if record is not None else []
        if bad:
            notes.append(f"{run.label}/{SAMPLES}: {plural(bad, 'damaged line')} left out")
    return samples, sum(map(len, indexes)), notes


def sample_lines(run: Run, notes: list[str]) -> list[tuple[int, int]]:
    """Returns offset and length of each line of samples.jsonl, without an incomplete last line."""
    lines, offset = [], 0
    try:
        with (run.folder / SAMPLES).open("rb") as file:
            for line in file:
                if line.strip() and (line.endswith(b"\n") or parsed(line) is not None):
                    lines.append((offset, len(line)))
                offset += len(line)
                if offset > LARGEST_JOURNAL:
                    notes.append(f"{run.label}/{SAMPLES} was read up to {LARGEST_JOURNAL >> 20} MB only")
                    break
    except FileNotFoundError:
        return []
    except OSError as error:
        notes.append(f"{run.label}/{SAMPLES} cannot be read ({error.strerror})")
    return lines


def read_chosen(run: Run, places: Sequence[tuple[int, int]]) -> Iterable[dict[str, Any] | None]:
    """Returns the records at these offsets, None for a damaged one."""
    if not places:
        return
    with (run.folder / SAMPLES).open("rb") as file:
        for offset, length in places:
            file.seek(offset)
            yield parsed(file.read(length))


def shortened(value: Any) -> Any:
    """Returns the value with long texts cut; the text then says how much."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[:LONGEST_TEXT] + f"\n(+{len(value) - LONGEST_TEXT:,} characters that are not in this page)"
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return value


# ---------------------------------------------------------------------------------------------------- writing
def encoded(data: Mapping[str, Any]) -> str:
    """Returns JSON that is safe inside a script element and valid UTF-8."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@functools.lru_cache(maxsize=8)
def asset(name: str) -> str:
    """Returns the text of one file of page_assets."""
    return (ASSETS / name).read_text(encoding="utf-8")


@functools.lru_cache(maxsize=2)
def policy(*, live: bool) -> str:
    """Returns the Content-Security-Policy: this style and this script only; a live page may also ask its own server."""
    hashes = [hashlib.sha256(asset(name).encode()).digest() for name in ("page.css", "page.js")]
    style, script = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
    connect = "'self'" if live else "'none'"
    closed = "base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; style-src {style}; script-src {script}; img-src data:; connect-src {connect}; {closed}"


def document(data: Mapping[str, Any]) -> str:
    """Returns the whole page."""
    parts = {
        "policy": policy(live=bool(data.get("live"))),
        "style": asset("page.css"),
        "script": asset("page.js"),
        "payload": encoded(data),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], asset("page.html"))


def write(data: Mapping[str, Any], path: Path) -> Path:
    """Writes the page atomically: a reader sees the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, document(data))
    return path
