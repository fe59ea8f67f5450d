"""A warm process that kills forks of itself on request: one JSON request a line in, one JSON answer a line out."""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any

from tests.resume import drops, kills


def answer(work: str, case: str) -> dict[str, Any]:
    """The result of all kills, or of forgetting everything, of one case."""
    start = time.monotonic()
    with kills.scratch() as base:
        found = kills.killed(case, base / "case") if work == "kills" else drops.drops(case, base / "case")
    facts = {name: sorted(value) if isinstance(value, set) else value for name, value in vars(found).items()}
    return facts | {"seconds": round(time.monotonic() - start, 1)}


def main() -> None:
    kills.warm()
    for line in sys.stdin:
        try:
            found = answer(*json.loads(line))
        except Exception:
            found = {"error": traceback.format_exc()}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
