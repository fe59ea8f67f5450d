"""One page that shows runs: comparison, learning curves, profiles, time, settings, samples and verdicts in one file.

`gather` makes JSON of run folders, `write` puts it with the style and the script of page_assets into one HTML file that
makes no network request. Samples and names are text: they enter the file as escaped JSON, the script sets them as text
content, and a Content-Security-Policy lets only this style and this script run.

What is read is kept in `Known`, so that a page which refreshes reads and encodes again only runs that have changed.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.store import write_text
from assay.report import claims as claim_tables
from assay.report.arms import in_order, name_arms, name_tasks, read_at_levels, read_plans
from assay.report.journal import POINTS, plural, spaced
from assay.report.methods_text import methods_text
from assay.report.page_runs import Reader, Run, find, flat
from assay.report.results import Results, compare_results, results_of
from assay.report.units import METRIC_UNITS
from assay.report.videos import gather_videos
from assay.runs.folder import plain
from assay.runs.ranges import Range
from assay.statistics.student import student_quantile
from assay.version import __version__

ASSETS = Path(__file__).parent / "page_assets"
MOST_SAMPLES, MOST_BYTES, LONGEST_TEXT = 10_000, 20 * 2**20, 2 * 2**20
MOST_NOTES, STUDENT = 200, 60
MOST_POINTS, FEWEST_POINTS = 16_000, 60  # points of one metric over all runs, and of one run at least
ACTIVE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")  # special in HTML, or invalid in UTF-8


@dataclass
class Known:
    """What was read and encoded so far: a reader for each run folder, and the JSON of what the page shows of it."""

    readers: dict[Path, Reader] = field(default_factory=dict)
    texts: dict[int, tuple[Any, str]] = field(default_factory=dict)
    """JSON by the identity of a value, which is kept so that its identity stays its own."""

    def read(self, folders: Sequence[Path], only: Collection[Path] | None) -> list[Run]:
        """Returns the runs of the folders, or only those of `only`."""
        found = [(path, label) for path, label in find(folders) if only is None or path in only]
        self.readers = {path: self.readers.get(path) or Reader(path, label) for path, label in found}
        return [reader.read() for reader in self.readers.values()]


# ---------------------------------------------------------------------------------------------------- gathering
def gather(
    folders: Sequence[Path],
    verdicts: Sequence[Mapping[str, Any]] = (),
    *,
    ablation: Mapping[str, Any] | None = None,
    ranges: Mapping[str, Range] | None = None,
    only: Collection[Path] | None = None,
    known: Known | None = None,
    films: bool = False,
) -> dict[str, Any]:
    """Returns all that the page shows, as JSON; `notes` names what could not be read.

    `ranges` are lowest and highest possible scores of tasks, besides those that are known; `only` leaves out all other
    run folders. With `films` the films of held-out episodes are part of the page.
    """
    known = Known() if known is None else known
    results = read_results(folders, ranges, only, known) if folders or not verdicts else Results(())
    runs = list(results.runs)
    samples, count, sample_notes = gather_samples(runs, known)
    points = max(FEWEST_POINTS, min(POINTS, MOST_POINTS // max(1, len(runs))))
    videos, video_notes = gather_videos(runs) if films else ([], [])
    notes = [note for run in runs for note in run.notes] + sample_notes + video_notes + list(repeated(runs))
    comparison = compare_results(results)
    return header(runs) | {
        "arms": [arm_facts(arm, [run for run in runs if run.arm == arm]) for arm in results.arms],
        "tasks": results.tasks,
        "runs": [run_facts(run, points, known) for run in runs],
        "comparison": plain(comparison | ({"ablation": dict(ablation)} if ablation else {}), "", []),
        "differences": differences(runs, results.arms),
        "samples": samples,
        "sample_count": {"shown": len(samples), "total": count},
        "videos": videos,
        "verdicts": plain(list(verdicts), "", []),
        "meanings": claim_tables.MEANINGS,
        "methods_text": methods_text(results, comparison) if runs else "",
        "metric_units": METRIC_UNITS,
        "notes": cut_off(notes),
        "student": [student_quantile(0.975, dof) for dof in range(1, STUDENT + 1)],
        "live": False,
    }


def read_results(
    folders: Sequence[Path],
    ranges: Mapping[str, Range] | None = None,
    only: Collection[Path] | None = None,
    known: Known | None = None,
) -> Results:
    """Returns the runs in and below the folders with their arms named, and what a comparison planned besides them."""
    runs = (Known() if known is None else known).read(folders, only)
    plans = read_plans(folders, runs)
    name_tasks(runs, plans)
    read_at_levels(runs, plans)
    runs = in_order(runs, plans)
    name_arms(runs, plans.names)
    return results_of(runs, plans, ranges)


def nothing(note: str) -> dict[str, Any]:
    """Returns the data of a page that shows one sentence."""
    return gather([], [{"name": ""}]) | {"verdicts": [], "notes": [note]}


def header(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns title, time, machines and versions."""
    tasks, arms = (list(dict.fromkeys(getattr(run, name) for run in runs)) for name in ("task", "arm"))
    title = f"{list_names(arms)} on {list_names(tasks)}" if runs else "Report"
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


def list_names(names: Sequence[str]) -> str:
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


def run_facts(run: Run, points: int, known: Known) -> dict[str, Any]:
    """Returns one run with its curves as JSON; the same object as before if nothing of it has changed."""
    reader, key = known.readers[run.folder], (run.version, run.arm, points)
    if key not in reader.facts:
        names = ("label", "arm", "task", "seed", "state", "reason", "step", "steps", "score", "decisions", "seconds")
        facts = {name: getattr(run, name) for name in names}
        curves = run.journal.curves(points)
        reader.facts = {key: facts | {"phases": run.phases(), "curves": curves, "alarms": list(run.journal.alarms)}}
    return reader.facts[key]


def arm_facts(arm: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Returns name, method and full settings of an arm, by task."""
    first = {run.task: run for run in reversed(runs)}
    configs = {task: plain(flat(run.config), "", []) for task, run in first.items()}
    return {"name": arm, "method": runs[0].method if runs else arm, "configs": configs}


def differences(runs: Sequence[Run], arms: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the settings in which arms differ, one value per arm; absent ones are left out."""
    first = {run.arm: run for run in reversed(runs)}
    each = {arm: plain(first[arm].settings, "", []) for arm in arms if arm in first}
    rows = []
    for name in dict.fromkeys(name for one in each.values() for name in one):
        texts = {json.dumps(one[name]) if name in one else "" for one in each.values()}
        if len(texts) > 1:
            rows.append({"setting": name, "values": {arm: one[name] for arm, one in each.items() if name in one}})
    return rows


# ---------------------------------------------------------------------------------------------------- samples
def gather_samples(runs: Sequence[Run], known: Known) -> tuple[list[dict[str, Any]], int, list[str]]:
    """Returns samples of all runs within the limits, evenly spaced over each run; their total number; notes."""
    indexes = [known.readers[run.folder].samples for run in runs]
    for index in indexes:
        index.read()
    quota = fitting([[length for _, length in index.places] for index in indexes])
    samples: list[dict[str, Any]] = []
    notes: list[str] = []
    for number, (run, index) in enumerate(zip(runs, indexes, strict=True)):
        found = list(index.chosen(spaced(range(len(index.places)), quota)))
        samples += [shortened(record) | {"run": number} for record in found if record is not None]
        notes += index.notes(run.label, sum(record is None for record in found))
    return samples, sum(len(index.places) for index in indexes), notes


def fitting(sizes: Sequence[Sequence[int]]) -> int:
    """Returns the most samples of each run that are within the limits together, by halving the interval."""
    low, high = 0, min(MOST_SAMPLES, max(map(len, sizes), default=0))
    while low < high:
        middle = (low + high + 1) // 2
        chosen = [min(one[place], LONGEST_TEXT) for one in sizes for place in spaced(range(len(one)), middle)]
        is_within = len(chosen) <= MOST_SAMPLES and sum(chosen) <= MOST_BYTES
        low, high = (middle, high) if is_within else (low, middle - 1)
    return low


def shortened(value: Any) -> Any:
    """Returns the value with long texts cut; the text then says how much."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[:LONGEST_TEXT] + f"\n(+{len(value) - LONGEST_TEXT:,} characters that are not in this page)"
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return value


# ---------------------------------------------------------------------------------------------------- writing
def encoded(data: Mapping[str, Any], known: Known | None = None) -> str:
    """Returns JSON that is safe inside a script element and valid UTF-8; what is `known` is not encoded again."""
    if known is None:
        return safe(data)
    before, known.texts = known.texts, {}
    for run in data["runs"]:
        known.texts[id(run)] = before.get(id(run)) or (run, safe(run))
    runs = ",".join(known.texts[id(run)][1] for run in data["runs"])
    rest = safe({name: value for name, value in data.items() if name != "runs"})
    return f'{rest[:-1]},"runs":[{runs}]}}'


def safe(value: Any) -> str:
    """Returns JSON with everything escaped that could end a script element, or that UTF-8 does not have."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
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
    closed, media = "base-uri 'none'; form-action 'none'", "img-src data:; media-src data:"
    return f"default-src 'none'; style-src {style}; script-src {script}; {media}; connect-src {connect}; {closed}"


def document(data: Mapping[str, Any], payload: str | None = None) -> str:
    """Returns the whole page; `payload` is its data as JSON if that was encoded already."""
    parts = {
        "policy": policy(live=bool(data.get("live"))),
        "style": asset("page.css"),
        "script": asset("page.js"),
        "payload": encoded(data) if payload is None else payload,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], asset("page.html"))


def write(data: Mapping[str, Any], path: Path) -> Path:
    """Writes the page atomically: a reader sees the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, document(data))
    return path
