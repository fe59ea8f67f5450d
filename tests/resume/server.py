"""A warm process that kills forks of itself on request: one JSON request a line in, one JSON answer a line out."""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any

from tests.resume import drops, kills


def answer(work: str, case: str) -> dict[str, Any]:
    """The result of kills in a row ("row"), of these and each kind of kill alone ("each"), of forgetting every leaf
    ("leaves") or every leaf and branch ("drops") of one case.
    """
    start = time.monotonic()
    with kills.scratch() as base:
        if work in ("leaves", "drops"):
            found: Any = drops.drops(case, base / "case", branches=work == "drops")
        else:
            found = kills.killed(case, base / "case", each=work == "each")
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
