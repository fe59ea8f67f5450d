"""A warm process that kills forks of itself on request: one JSON request a line in, one JSON answer a line out."""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any

from tests.resume import drops, kills


def answer(work: str, case: str) -> dict[str, Any]:
    """The result of kills in a row ("row"), of these and each kind of kill alone ("each"), or of forgetting everything
    ("drops") of one case.
    """
    start = time.monotonic()
    with kills.scratch() as base:
        forget, folder = work == "drops", base / "case"
        found = drops.drops(case, folder) if forget else kills.killed(case, folder, each=work == "each")
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
