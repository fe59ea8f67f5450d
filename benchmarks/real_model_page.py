"""Tables and the figure of docs/measurements.md from the runs of `real_model`.

python -m benchmarks.real_model_page                            from the committed runs
python -m benchmarks.real_model_page --take FOLDER --part NAME  takes the results of a folder over first, as this part
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.statistics.intervals import mean_interval
from benchmarks.peers_page import DOCS, FOLDER, draw, write
from benchmarks.real_model import METHODS, QUESTIONS

RUNS = FOLDER / "real_model.json"
PAGE = DOCS / "measurements.md"
PART = "compared"
"""The runs of the tables; `again` are some of them run a second time, with the number of sampled tokens."""
Run = dict[str, Any]


def rounded(run: Run) -> Run:
    """Returns a run with as many digits as mean something."""
    times = {key: round(value, 1) for key, value in run.get("time", {}).items()}
    short: Run = json.loads(json.dumps(run), parse_float=lambda text: round(float(text), 4))
    return short | {"seconds": round(run["seconds"], 1)} | ({"time": times} if times else {})


def take_over(folder: Path, part: str, runs: Path = RUNS) -> None:
    """Puts the results of a folder in place of those of this part, and sorts all by part, task, method and seed."""
    known = [run for run in json.loads(runs.read_text()) if run["part"] != part]
    known += [rounded(json.loads(path.read_text())) | {"part": part} for path in folder.glob("*/result.json")]
    known.sort(key=lambda run: (run["part"], run["task"], run["method"], run["seed"]))
    runs.write_text("[\n" + ",\n".join(json.dumps(run) for run in known) + "\n]\n")


def over_the_run(run: Run) -> float:
    """Returns the mean of the held-out scores of a run, the first included."""
    return sum(score for _, score in run["curve"]) / len(run["curve"])


def spread(values: Sequence[float], sign: str = "") -> str:
    """Returns a mean with the 95 % interval of Student's t; of scores, which have no sign, inside 0 and 1."""
    one = mean_interval(values, binary=False)
    low, high = (one.low, one.high) if sign else (max(0.0, one.low), min(1.0, one.high))
    return f"{one.value:{sign}.2f} [{low:{sign}.2f}, {high:{sign}.2f}]"


def table(runs: Sequence[Run], task: str) -> Iterator[str]:
    """Yields the table of a task, the best method first; differences are between equal seeds."""
    own = {method: [run for run in runs if (run["task"], run["method"]) == (task, method)] for method in METHODS}
    found = {method: sorted(some, key=lambda run: run["seed"]) for method, some in own.items() if len(some) > 1}
    yield "| method | seeds 0, 1, 2 | mean | minus grpo | mean over the run, minus grpo | content | s |"
    yield "|---|---|---|---|---|---|---|"
    base = found["grpo"]
    for method, mine in sorted(found.items(), key=lambda pair: -sum(run["strict"] for run in pair[1])):
        ends, pairs = [run["strict"] for run in mine], list(zip(mine, base, strict=True))
        minus = [spread([run["strict"] - other["strict"] for run, other in pairs], "+")]
        minus += [spread([over_the_run(run) - over_the_run(other) for run, other in pairs], "+")]
        content, seconds = (sum(run[key] for run in mine) / len(mine) for key in ("content", "seconds"))
        cells = [method, ", ".join(f"{one:.2f}" for one in ends), spread(ends)]
        cells += ["", ""] if method == "grpo" else minus
        yield f"| {' | '.join([*cells, f'{content:.2f}', f'{seconds:.0f}'])} |"


def figure(path: Path, runs: Sequence[Run]) -> None:
    """Draws the held-out scores over steps: a panel for each task, the mean of the seeds with its interval."""
    from matplotlib import colormaps, rc_context
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

    from assay.runs.plot import STYLE

    tasks = [task for task in QUESTIONS if any(run["task"] == task for run in runs)]
    with rc_context(STYLE | {"font.size": 7.5}):
        drawn = Figure(figsize=(8.4, 3.4), dpi=100, facecolor="white", layout="constrained")
        panels = drawn.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for axes, task in zip(panels, tasks, strict=True):
            axes.set_title(task, fontsize=7.5)
            axes.set_xlabel("steps")
            axes.spines[["top", "right"]].set_visible(False)
            for place, method in enumerate(METHODS):
                curves = [run["curve"] for run in runs if (run["task"], run["method"]) == (task, method)]
                draw(axes, curves, method, to_hex(colormaps["tab10"](place)))
        lines = {line.get_label(): line for axes in panels for line in axes.lines}
        drawn.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines) or 1, frameon=False)
        drawn.savefig(path, metadata={"Software": None})


def main(words: Sequence[str] | None = None, page: Path = PAGE) -> int:
    """Writes tables and the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_model_page", description=__doc__)
    parser.add_argument("--take", type=Path, help="folder of results to take over first")
    parser.add_argument("--part", default=PART)
    options = parser.parse_args(words)
    if options.take:
        take_over(options.take, options.part)
    runs = [run for run in json.loads(RUNS.read_text()) if run["part"] == PART]
    for task in dict.fromkeys(run["task"] for run in runs):
        write(page, f"real model, {task}", table(runs, task))
    figure(page.with_name("real_model.png"), runs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
