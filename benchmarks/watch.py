"""cpu-seconds and memory of `assay watch`: a page of many runs, and one run with a very long journal.

    python -m benchmarks.watch                      200 runs of 300 steps; one journal of 200 MB
    python -m benchmarks.watch --runs 20 --megabytes 5

Each measurement is a process of its own. A refresh is what a browser's poll costs: `first` reads everything, `same`
finds nothing changed, `one` finds one line appended to one run. Peak memory includes the import of PyTorch.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = [f"{group}/{name}" for group in ("loss", "gradient_norm", "time_of") for name in "abcdefgh"]


def record(step: int) -> str:
    """Returns one line of metrics.jsonl as a run writes it: 24 metrics, a score every tenth step."""
    values: dict[str, Any] = {"step": step, "decisions_total": 2048 * step, "reward": 1 / (step + 1)}
    values |= {name: (step * 7919 % 1000) / 997 + place for place, name in enumerate(NAMES)}
    values |= {"evaluation": step / 7.0} if step % 10 == 0 else {}
    return json.dumps(values | {"time": {"at": 1.79e9 + step, "sample": 0.4, "update": 0.5}}) + "\n"


def make_run(folder: Path, method: str, seed: int, steps: int, megabytes: float = 0.0) -> None:
    """Writes a run folder with this many steps, or with a journal of this size."""
    folder.mkdir(parents=True)
    parts = {f"part-{place}": {"part": "Part", "weight": 0.1 * place} for place in range(40)}
    config = {"method": method, "task": "task", "seed": seed, "steps": 10**9 if megabytes else steps}
    (folder / "config.json").write_text(json.dumps(config | {"recipe": {"name": method} | parts}))
    with (folder / "metrics.jsonl").open("w") as file:
        step = size = 0
        while step <= steps or size < megabytes * 2**20:
            size += file.write(record(step))
            step += 1


def refreshed(source: Any) -> float:
    """Returns the cpu-seconds of one refresh, the page's JSON included."""
    source.cost = 0.0
    begun = time.process_time()
    source.current()
    return time.process_time() - begun


def measure(folder: Path) -> dict[str, float]:
    """Returns cpu-seconds of three refreshes, megabytes of JSON, and the peak memory of this process in MB."""
    from assay.report.watch import PageSource

    source = PageSource(folder)
    found = {"first": refreshed(source), "same": refreshed(source)}
    journal = next(iter(sorted(folder.rglob("metrics.jsonl"))))
    with journal.open("a") as file:
        file.write(record(10**8))
    found["one"] = refreshed(source)
    found["json_mb"] = len(source.text) / 2**20
    return found | {"peak_mb": peak_mb()}


def peak_mb() -> float:
    """Returns the peak memory of this process. Linux counts the memory of the process that started this one in
    `ru_maxrss`, so VmHWM is read where there is one.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.is_file() else None
    return (int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


def measured_apart(folder: Path) -> dict[str, float]:
    """Measures a folder in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, "-m", "benchmarks.watch", "--measure", str(folder.resolve())]
    root = Path(__file__).parents[1]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout)


def main() -> None:
    """Makes the folders, measures and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="runs of the first folder")
    parser.add_argument("--steps", type=int, default=300, help="steps of each of them")
    parser.add_argument("--megabytes", type=float, default=200.0, help="size of the long journal")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as base:
        many, long = Path(base) / "many", Path(base) / "long"
        for place in range(options.runs):
            arm, seed = f"arm-{place // 10}", place % 10
            make_run(many / arm / f"seed-{seed}", arm, seed, options.steps)
        make_run(long, "arm", 0, 1, options.megabytes)
        for name, folder in ((f"{options.runs} runs", many), (f"a journal of {options.megabytes:g} MB", long)):
            found = measured_apart(folder)
            cpu = ", ".join(f"{what} {found[what]:.2f}" for what in ("first", "same", "one"))
            print(f"{name}: cpu-seconds {cpu}; JSON {found['json_mb']:.1f} MB; peak {found['peak_mb']:.0f} MB")


if __name__ == "__main__":
    main()
