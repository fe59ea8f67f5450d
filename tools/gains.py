"""What each method gained over its start in the runs that its measured claims left: held-out score before and after.

    python tools/gains.py WORK...        folders given to `assay claim --work`

A row is a method on a task: the means over seeds of the first and the last held-out score, and the 95 % interval of the
gain over paired seeds. Phases before and the warm-up of a token policy count as the start; a method that gains nothing
after its own phases is shown with them. Of several settings those on a task of the method's own claims count first,
then those with most seeds, then those that were made last.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assay.claims.find import find_claims
from assay.runs import catalogue
from assay.statistics.intervals import mean_interval


@dataclass(frozen=True)
class Gains:
    """First and last held-out scores of the seeds of one setting."""

    method: str
    task: str
    steps: int
    first: tuple[float, ...]
    last: tuple[float, ...]
    made: float
    first_of_phases: tuple[float, ...]

    @property
    def line(self) -> str:
        """A row of a Markdown table."""
        gain = mean_interval(np.array(self.last) - np.array(self.first))
        if gain.low <= 0 and self.first_of_phases != self.first:
            whole = replace(self, first=self.first_of_phases, task=f"{self.task}, with its phases")
            return whole.line
        change = f"{gain.value:+.3g} [{gain.low:+.3g}, {gain.high:+.3g}]"
        says = "yes" if gain.low > 0 else "no" if gain.high < 0 else "not seen"
        cells = (self.method, self.task, self.steps, len(self.first), np.mean(self.first), np.mean(self.last))
        name, task, steps, seeds, before, after = cells
        return f"| {name} | {task} | {steps:,} | {seeds} | {before:.3g} | {after:.3g} | {change} | {says} |"


def scores_in(run: Path) -> list[float]:
    """Held-out scores of a run or of a phase."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [float(row["evaluation"]) for row in lines if row.get("evaluation") is not None]


def gains_in(folder: Path) -> Gains | None:
    """What the seeds of one claim's side gained; None where none has ended."""
    first, last, made = list[float](), list[float](), 0.0
    begun: list[float] = []
    task, steps = "", 0
    for run in sorted(folder.glob("seed-*")):
        if not (run / "metrics.jsonl").is_file():
            continue
        config = json.loads((run / "config.json").read_text())
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        scores = scores_in(run)
        phases = [phase for phase in sorted(run.glob("phase-*")) if not phase.name.endswith("-warmup")]
        if len(scores) > 1 and lines[-1]["step"] >= config["steps"]:
            first.append(scores[0])
            begun.append(scores_in(phases[0])[0] if phases else scores[0])
            last.append(scores[-1])
            task, steps, made = config["task"], config["steps"], max(made, (run / "metrics.jsonl").stat().st_mtime)
    method = folder.name.rpartition("-")[0]
    return Gains(method, task, steps, tuple(first), tuple(last), made, tuple(begun)) if len(first) > 1 else None


def main() -> None:
    """Prints the table, and which methods have no such runs."""
    parser = argparse.ArgumentParser(prog="python tools/gains.py", description=__doc__)
    parser.add_argument("work", type=Path, nargs="+")
    found: dict[str, Gains] = {}
    tasks = {
        name: {method.default_task, *(claim.task for claim in find_claims(name).measured)}
        for name, method in catalogue.methods().items()
    }

    def rank(gains: Gains) -> tuple[bool, int, float]:
        return gains.task in tasks[gains.method], len(gains.first), gains.made

    for folder in (side for work in parser.parse_args().work for side in sorted(work.iterdir())):
        gains = gains_in(folder)
        if gains is not None and gains.method in tasks:
            found[gains.method] = max(gains, found.get(gains.method, gains), key=rank)
    print("| method | task | steps | seeds | start | end | gain [95 %] | above 0 |\n|---|---|---|---|---|---|---|---|")
    print("\n".join(found[name].line for name in sorted(found)))
    print("\nno runs:", ", ".join(sorted(set(tasks) - set(found))) or "none is missing")


if __name__ == "__main__":
    main()
