"""The cost of a worker process: one call of a reward with 256 rows of 1 kB, in a worker and in this process.

    python -m benchmarks.worker_overhead

Prints the median and the 90th percentile of 200 calls in milliseconds, and what starting a worker takes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.core.calls import rewards_of
from assay.runs.user_code.addresses import Address
from assay.runs.user_code.loading import value_of
from assay.runs.user_code.workers.crew import close_all
from assay.runs.user_code.workers.process import Limits
from assay.runs.user_code.workers.remote import remote_function

ROWS, CALLS = 256, 200
FILE = """
def equal(completions, answer):
    return [float(said == right) for said, right in zip(completions, answer)]
"""


def milliseconds(call: Callable[[], Any], num: int = CALLS) -> tuple[float, float]:
    """Returns the median and the 90th percentile of the time of a call."""
    found = []
    for _ in range(num):
        begin = time.perf_counter()
        call()
        found.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(found), sorted(found)[int(0.9 * num)]


def main() -> None:
    """Prints the times."""
    rows = [{"prompt": "p" * 900, "completion": f"{place:0100}", "answer": str(place)} for place in range(ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mine.py")
        file.write_text(FILE)
        address = Address(str(file), "equal")
        local, remote = value_of(address), remote_function(address, "equal", Limits())
        assert remote is not None
        begin = time.perf_counter()
        first = remote.rewards(rows, "reward equal", 60.0)
        started = time.perf_counter() - begin
        assert first == rewards_of(local, rows, "reward equal", 60.0)
        there = milliseconds(lambda: remote.rewards(rows, "reward equal", 60.0))
        here = milliseconds(lambda: rewards_of(local, rows, "reward equal", 60.0))
        close_all()
    print(f"first call, with the start of the worker: {started:.2f} s")
    for name, (median, high) in {"worker": there, "in process": here}.items():
        print(f"{name:12} median {median:6.2f} ms   90 % {high:6.2f} ms")
    print(f"overhead     median {there[0] - here[0]:6.2f} ms")


if __name__ == "__main__":
    main()
