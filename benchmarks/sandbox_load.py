"""The sandbox under load: 32 programs at a time, a tenth of them hostile.

    python benchmarks/sandbox_load.py --seconds 600

Prints runs a second, processor time of a run, waiting times, the number of faults of the sandbox (each would be a row
lost, never a reward), hostile programs that were rewarded, honest ones that were not, zombies, descriptors and memory
of the supervisor at the beginning and at the end. Waiting times count from the moment at which a job is handed over.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assay.sandbox.grading import Graded
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.probes import check
from assay.sandbox.values import Limits
from tests.sandbox.attacks import BOMBS, CONTROLS, HACKS

TESTS = ("assert secret_sum(17, 25) == 42", "assert secret_sum([1, 2], [3]) == [1, 2, 3]")
LIMITS = Limits(seconds=2.0, cpu_seconds=0.3)


class Load:
    """Counts of what happened, shared by the threads that hand over jobs."""

    def __init__(self, seconds: float) -> None:
        self.until, self.lock, self.place = time.monotonic() + seconds, threading.Lock(), 0
        self.times: list[float] = []
        self.honest_times: list[float] = []
        self.counts: Counter[str] = Counter()
        honest = [CONTROLS[name] for name in ("plain", "with imports", "with output")]
        hostile = [*HACKS.values(), *BOMBS.values()]
        self.programs = [
            (place % 10 != 9, (honest[place % len(honest)] if place % 10 != 9 else hostile[place // 10 % len(hostile)]))
            for place in range(10 * len(hostile))
        ]

    def work(self, sandbox: LocalSandbox) -> None:
        """Hands over one job after the other until the time is over."""
        while time.monotonic() < self.until:
            with self.lock:
                is_honest, code = self.programs[self.place % len(self.programs)]
                self.place += 1
            program = Graded(code, TESTS)
            began = time.monotonic()
            results = sandbox.run_all(program.jobs(LIMITS))
            took, grade = time.monotonic() - began, program.grade(results)
            with self.lock:
                self.times.append(took)
                self.honest_times += [took] if is_honest else []
                self.counts["runs"] += 1
                self.counts["sandbox faults"] += grade.passed is None
                self.counts["hostile"] += not is_honest
                self.counts["hostile rewarded"] += not is_honest and grade.is_right
                self.counts["honest refused"] += is_honest and grade.passed is not None and not grade.is_right
                self.counts["faults of programs"] += bool(grade.fault) and grade.passed is not None


def state_of(pid: int) -> dict[str, int]:
    """Returns descriptors, memory in kB and zombies of a supervisor."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    states = [Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2][0] for child in children]
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return {
        "cpu ms": sum(map(int, numbers[11:15])) * 1000 // os.sysconf("SC_CLK_TCK"),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "kB": int(status["VmRSS"].split()[0]),
        "zombies": states.count("Z"),
    }


def main() -> None:
    """Runs the load and prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--parallel", type=int, default=32)
    given = parser.parse_args()
    sandbox = LocalSandbox(num_slots=given.parallel)
    check(sandbox)
    assert sandbox.process is not None
    before, load, began = state_of(sandbox.process.pid), Load(given.seconds), time.monotonic()
    threads = [threading.Thread(target=load.work, args=(sandbox,)) for _ in range(given.parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(given.seconds + 600)
    took = time.monotonic() - began
    time.sleep(0.5)
    after, ordered = state_of(sandbox.process.pid), sorted(load.times)
    waits = {
        f"p{share}": round(ordered[min(len(ordered) - 1, len(ordered) * share // 100)], 3) for share in (50, 90, 99)
    }
    honest = sorted(load.honest_times)
    each = (after["cpu ms"] - before["cpu ms"]) / load.counts["runs"]
    found = {
        "cpu ms a run": round(each, 1),
        "runs a second": round(load.counts["runs"] / took, 1), **waits, "largest": round(ordered[-1], 3),
        "p99 of honest": round(honest[len(honest) * 99 // 100], 3), **load.counts, "seconds": round(took, 1),
        "before": before, "after": after, "load average": os.getloadavg()[0],
    }  # fmt: skip
    print(json.dumps(found))
    sandbox.close()


if __name__ == "__main__":
    main()
