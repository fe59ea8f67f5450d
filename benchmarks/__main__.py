"""Speed as ratios to peers: tables, and JSON of every number."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import grpo_tokens, off_policy, ppo_cartpole
from benchmarks.arms import machine, show

BENCHMARKS = {
    "ppo_cartpole": ppo_cartpole.measure,
    "off_policy": off_policy.measure,
    "grpo_tokens": grpo_tokens.measure,
}


def main() -> None:
    """Runs the named benchmarks, all of them by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], help="which to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.json"))
    options = parser.parse_args()
    results = {"machine": machine()}
    for name in options.names or BENCHMARKS:
        rows = BENCHMARKS[name](options.quick)
        show(name, rows)
        results[name] = rows
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"all numbers: {options.out}")


if __name__ == "__main__":
    main()
