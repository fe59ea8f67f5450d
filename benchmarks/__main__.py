"""Speed as ratios to peers: tables, and JSON of every number. Ends with status 1 if an arm fails."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import grpo_tokens, off_policy, ppo_cartpole
from benchmarks.arms import machine, show

BENCHMARKS = {
    "ppo_cartpole": ppo_cartpole.measure,
    "off_policy": off_policy.measure,
    "grpo_tokens": grpo_tokens.measure,
}


def main(words: Sequence[str] | None = None) -> int:
    """Runs the named benchmarks, all of them by default; how many arms failed, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], help="which to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--toy", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.json"))
    options = parser.parse_args(words)
    results, failed = {"machine": machine()}, []
    for name in options.names or BENCHMARKS:
        rows = BENCHMARKS[name](options.quick, options.toy)
        failed += [f"{name}, {row['arm']}: {row['error'][0]}" for row in rows if "error" in row]
        show(name, rows)
        results[name] = rows
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"all numbers: {options.out}")
    print("\n".join(f"failed: {each}" for each in failed), file=sys.stderr, end="\n" if failed else "")
    return min(1, len(failed))


if __name__ == "__main__":
    raise SystemExit(main())
