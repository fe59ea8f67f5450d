"""Measures again, in parallel, the claims that are new or stale; then merges what was found into the records.

    python tools/measure_again.py --mark                          # which records no longer fit: marks them as stale
    python tools/measure_again.py --plan                          # what would be measured, and for how long
    python tools/measure_again.py --out found --minutes 25        # on a machine with many cores; stops in time, resumes
    python tools/measure_again.py --merge found                   # into assay/claims/records, mutants are kept

`--workers` claims are measured at a time (as many as cores unless given), each with one run at a time. Their expected
cost is that of the last measurement, else the plan of the claim. Claims above `--most` minutes are skipped, and said.
If all fit into the time they start with the longest, else with the shortest, so that most of them are decided.

A record can only be checked on a kind of machine that it has stamps for, so `--mark` runs where the claims were
measured, and `--out` may run elsewhere. `--unknown` also measures claims without a stamp for this kind of machine.
Claims of a method are measured one after the other, since they share runs. Finished claims are in OUT/KEY.json, one
file a method, and are not measured again while they fit; unfinished runs are in OUT/runs/KEY and are resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from assay.claims import measuring, stamps, verdicts  # noqa: E402
from assay.claims.claim import Measured  # noqa: E402
from assay.claims.find import find_claims  # noqa: E402
from assay.claims.records import has_verdict  # noqa: E402
from assay.core import store  # noqa: E402
from assay.core.errors import AssayError  # noqa: E402
from assay.engine.machine import describe_machine  # noqa: E402

GRACE = 15.0
"""Seconds after the time is up in which runs may end by themselves; then they are told to save and stop."""


UNFINISHED = 3
"""Exit code of a claim for which the time did not suffice."""


@dataclass(frozen=True)
class Task:
    """A claim to be measured: why, and the minutes that it should take on one core."""

    method: str
    place: int
    name: str
    why: str
    minutes: float


# ---------------------------------------------------------------------------------------------------- choice
def recorded(method: str) -> dict[Any, dict[str, Any]]:
    """Returns the entries of a method's record by the names of their claims; empty without one."""
    path = verdicts.path_of(method)
    return verdicts.entries_of(verdicts.read(method, path)) if has_verdict(path) else {}


def due(keys: Sequence[str], out: Path | None, unknown: bool) -> Iterator[Task]:
    """Yields the claims that are new, stale or, with `unknown`, without a stamp for this kind of machine; those that
    OUT has already are left out.
    """
    for method in keys:
        entries, done = recorded(method), {} if out is None else found_in(out, method)
        for place, claim in enumerate(find_claims(method).measured):
            old = entries.get(claim.name)
            state = stamps.NEW if old is None else stamps.recorded_state(claim, old)
            is_done = claim.name in done and stamps.state(claim, done[claim.name]) == stamps.FITS
            if not is_done and state in (stamps.NEW, stamps.STALE, *([stamps.UNKNOWN] if unknown else [])):
                yield Task(method, place, claim.name, state, claim.minutes if old is None else old["minutes"])


def ordered(tasks: Sequence[Task], workers: int, minutes: float) -> list[Task]:
    """Returns the longest first if all fit into the time, which ends soonest, else the shortest first."""
    fits = sum(task.minutes for task in tasks) <= 0.8 * workers * minutes
    return sorted(tasks, key=lambda task: -task.minutes if fits else task.minutes)


# ---------------------------------------------------------------------------------------------------- measuring
def measure_one(method: str, place: int, out: Path, minutes: float) -> int:
    """Measures one claim and writes its entry; exit code UNFINISHED if the time was up."""
    claim: Measured = find_claims(method).measured[place]
    deadline = time.monotonic() + 60 * minutes
    entry = measuring.measure(method, claim, out / "runs" / method, deadline=deadline, workers=1)
    if entry is None:
        return UNFINISHED
    store.write_text(part_of(out, method, place), json.dumps(entry))
    return 0


def part_of(out: Path, method: str, place: int) -> Path:
    """Returns the file of one claim; a claim has its own, since several of a method are measured at a time."""
    return out / "parts" / f"{method}-{place}.json"


def found_in(out: Path, method: str) -> dict[str, dict[str, Any]]:
    """Returns the entries of a method that were measured, by the names of their claims."""
    path = out / f"{method}.json"
    kept = {one["name"]: one for one in json.loads(path.read_text())["claims"]} if path.is_file() else {}
    parts = (part_of(out, method, place) for place in range(len(find_claims(method).measured)))
    fresh = (json.loads(part.read_text()) for part in parts if part.is_file())
    return {**kept, **{one["name"]: one for one in fresh}}


def gather(out: Path, method: str) -> None:
    """Writes OUT/KEY.json."""
    if found := found_in(out, method):
        facts = {"name": method, "made": time.strftime("%F"), "machine": describe_machine()}
        store.write_text(out / f"{method}.json", json.dumps({**facts, "claims": list(found.values())}, indent=1))


def next_of(waiting: Sequence[Task], running: Collection[Task]) -> Task | None:
    """Returns the first claim whose method has none that is being measured: claims of a method share runs, and a run's
    folder belongs to one process at a time.
    """
    busy = {task.method for task in running}
    return next((task for task in waiting if task.method not in busy), None)


def run_all(tasks: Sequence[Task], out: Path, workers: int, minutes: float) -> dict[str, list[str]]:
    """Measures claims, `workers` at a time and none begun after the time is up; returns their names by outcome."""
    (out / "parts").mkdir(parents=True, exist_ok=True)
    end, waiting, running = time.monotonic() + 60 * minutes, list(tasks), dict[Task, subprocess.Popen[bytes]]()
    outcome: dict[str, list[str]] = {"measured": [], "unfinished": [], "failed": []}
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    while waiting or running:
        left = (end - time.monotonic()) / 60
        while len(running) < workers and left > 0 and (task := next_of(waiting, running)) is not None:
            waiting.remove(task)
            told = ["--one", task.method, str(task.place), "--out", str(out), "--minutes", f"{left:.3f}"]
            with (out / "parts" / f"{task.method}-{task.place}.log").open("wb") as log:
                command = [sys.executable, __file__, *told]
                running[task] = subprocess.Popen(command, env=one_thread, stdout=log, stderr=log)
        for task, child in list(running.items()):
            is_late = (code := child.poll()) is None and 60 * left < -GRACE
            if is_late:
                child.send_signal(signal.SIGINT)
                code = child.wait()
            if code is not None:
                del running[task]
                word = "unfinished" if is_late or code == UNFINISHED else "failed" if code else "measured"
                outcome[word].append(f"{task.method}: {task.name}")
                gather(out, task.method)
                print(f"{word:<10} {task.method}: {task.name} ({len(running) + len(waiting)} left)", flush=True)
        if left <= 0 and waiting:
            outcome["unfinished"] += [f"{task.method}: {task.name}" for task in waiting]
            waiting = []
        time.sleep(0.2)
    return outcome


# ---------------------------------------------------------------------------------------------------- records
def marked(method: str) -> list[str]:
    """Marks entries that no longer fit as stale, and returns the names of these claims. AssayError if the file has
    problems.
    """
    path, changed = verdicts.path_of(method), []
    if not has_verdict(path):
        return []
    if wrong := verdicts.problems(method, path):
        raise AssayError(wrong[0])
    verdict, memo = verdicts.read(method, path), dict[str, str]()
    entries = verdicts.entries_of(verdict)
    for claim in find_claims(method).measured:
        one = entries.get(claim.name)
        if one is not None and stamps.state(claim, one, memo) == stamps.STALE and not one.get("stale"):
            one["stale"] = time.strftime("%F")
            changed.append(claim.name)
    if changed:
        verdicts.save(path, {name: value for name, value in verdict.items() if name != "digest"})
    return changed


def merge(method: str, found: Mapping[str, Any], folder: Path | None = None) -> Path:
    """Writes the record with these entries in place of the old ones: entries that were not measured stay as they are,
    those of former claims go. Mutants are kept.
    """
    path = verdicts.path_of(method, folder)
    old = verdicts.entries_of(verdicts.read(method, path)) if has_verdict(path) else {}
    fresh = {one["name"]: one for one in found["claims"]}
    claims = find_claims(method)
    entries = [one for claim in claims.measured if (one := fresh.get(claim.name) or old.get(claim.name))]
    wrong = [f"{method}: '{one['name']}' {what}" for one in entries for what in verdicts.entry_problems(one)]
    if wrong:
        raise AssayError(wrong[0])
    exact = [verdicts.exact_entry(claim.run()) for claim in claims.exact]
    facts = {name: found[name] for name in ("name", "made", "machine")}
    minutes = round(sum(one["minutes"] for one in entries), 2)
    whole = {**facts, "verdict": verdicts.overall([*exact, *entries]), "minutes": minutes, "claims": [*entries, *exact]}
    return verdicts.save(path, whole)


# ---------------------------------------------------------------------------------------------------- command
def parsed() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--keys", nargs="*", help="these methods; all that have measured claims unless given")
    parser.add_argument("--out", type=Path, help="folder of what is measured")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=25.0, help="no run is begun after them")
    parser.add_argument("--most", type=float, default=30.0, help="claims that cost more minutes are skipped")
    parser.add_argument("--unknown", action="store_true", help="also claims without a stamp for this machine")
    parser.add_argument("--plan", action="store_true", help="only print what would be measured")
    parser.add_argument("--mark", action="store_true", help="mark the records that no longer fit as stale")
    parser.add_argument("--merge", type=Path, help="write what this folder holds into the records")
    parser.add_argument("--one", nargs=2, metavar=("KEY", "PLACE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Runs the command; exit code 1 if a claim failed to run."""
    told = parsed()
    keys = told.keys or verdicts.with_measured()
    if told.one:
        return measure_one(told.one[0], int(told.one[1]), told.out, told.minutes)
    if told.mark:
        for method in keys:
            for name in marked(method):
                print(f"stale      {method}: {name}", flush=True)
        return 0
    if told.merge:
        for method in keys:
            if (path := told.merge / f"{method}.json").is_file():
                print(f"written    {merge(method, json.loads(path.read_text()))}")
        return 0
    if told.out is None and not told.plan:
        raise SystemExit("--out is missing. Name the folder of what is measured, or use --plan")
    tasks = list(due(keys, told.out, told.unknown))
    skipped = [task for task in tasks if task.minutes > told.most]
    chosen = ordered([task for task in tasks if task not in skipped], told.workers, told.minutes)
    for task in skipped:
        print(f"skipped    {task.method}: {task.name} ({task.minutes:.1f} min, above --most {told.most:g})")
    for task in chosen if told.plan else ():
        print(f"{task.why:<10} {task.minutes:5.1f} min  {task.method}: {task.name}")
    total = sum(task.minutes for task in chosen)
    print(f"{len(chosen)} claims, {total:.0f} min of one core, about {total / told.workers:.0f} min on {told.workers}")
    if told.plan:
        return 0
    outcome = run_all(chosen, told.out, told.workers, told.minutes)
    print(", ".join(f"{len(names)} {word}" for word, names in outcome.items()))
    return int(bool(outcome["failed"]))


if __name__ == "__main__":
    sys.exit(main())
