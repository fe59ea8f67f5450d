"""Tables and the figure of docs/peers_control.md from the rows of `peers_control` and `peers_offline`.

python -m benchmarks.peers_page                              from the committed rows
python -m benchmarks.peers_page --rows FILE --rows FILE      takes the rows of these files over first, rounded
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from assay.statistics.intervals import Estimate, difference_interval, mean_interval
from benchmarks import peers_control, peers_offline
from benchmarks.peers_runs import finished

FOLDER = Path(__file__).parent
ROWS = {"control": FOLDER / "peers_control.jsonl", "offline": FOLDER / "peers_offline.jsonl"}
DOCS = FOLDER.parent / "docs"
PAGE = DOCS / "peers_control.md"
Row = dict[str, Any]
Cell = tuple[str, ...]


def kept(row: Row) -> Row:
    """Returns a row with as many digits as mean something."""
    return json.loads(json.dumps(row), parse_float=lambda text: round(float(text), 2))


def take_over(files: Sequence[Path]) -> None:
    """Adds the rows of results to the committed ones, in order of their keys; a key that is there is replaced."""
    for path in files:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            name = "offline" if str(row.get("key", "")).startswith(("data", "d3rlpy")) or "kind" in row else "control"
            if "key" in row:
                known = finished(ROWS[name]) | {row["key"]: kept(row)}
                text = "".join(json.dumps(known[key]) + "\n" for key in sorted(known))
                ROWS[name].write_text(text)


def score(row: Row) -> float:
    """Returns the held-out return at the end."""
    return float(row["score"])


def area(row: Row) -> float:
    """Returns the mean of the learning curve."""
    return sum(value for _, value in row["curve"]) / len(row["curve"])


def shown(found: Estimate, signed: bool = False) -> str:
    """Returns mean and interval in whole numbers."""
    sign = "+" if signed else ""
    if found.count < 2:
        return f"{found.value:{sign},.0f}"
    return f"{found.value:{sign},.0f} [{found.low:{sign},.0f}, {found.high:{sign},.0f}]"


def verdict(found: Estimate) -> str:
    """Returns what the interval of a difference says."""
    return "above" if found.low > 0 else "below" if found.high < 0 else "no clear difference"


def compared(ours: Sequence[Row], theirs: Sequence[Row], measure: Callable[[Row], float]) -> tuple[str, str, str, str]:
    """Returns both means, the difference and the verdict; a verdict takes two seeds on each side."""
    a, b = [measure(row) for row in ours], [measure(row) for row in theirs]
    means = [shown(mean_interval(side, binary=False)) for side in (a, b)]
    if min(len(a), len(b)) < 2:
        return means[0], means[1], "", ""
    gap = difference_interval(a, b, paired=False)
    return means[0], means[1], shown(gap, signed=True), verdict(gap)


def cells(
    rows: Mapping[str, Row], names: Sequence[str], sides: Sequence[str]
) -> Iterator[tuple[Cell, list[list[Row]]]]:
    """Yields (what is compared, rows of both sides), where both sides have rows."""
    every = [row for row in rows.values() if "side" in row]
    for cell in dict.fromkeys(tuple(str(row[name]) for name in names) for row in every):
        both = [
            [row for row in every if row["side"] == side and tuple(str(row[name]) for name in names) == cell]
            for side in sides
        ]
        if all(both):
            yield cell, both


def mean(rows: Sequence[Row], name: str) -> float:
    """Returns the mean of a column."""
    return sum(float(row[name]) for row in rows) / len(rows)


def table(rows: Mapping[str, Row], names: Sequence[str], sides: Sequence[str], count: str) -> Iterator[str]:
    """Yields the lines of a markdown table."""
    more = ("difference", "reading", "over the run", count, "cpu-seconds")
    yield f"| {' | '.join((*names, 'seeds', *sides, *more))} |"
    yield "|---" * (len(names) + 8) + "|"
    for cell, (ours, theirs) in sorted(cells(rows, names, sides)):
        end, curve = compared(ours, theirs, score), compared(ours, theirs, area)
        done = " / ".join(f"{mean(side, count):,.0f}" for side in (ours, theirs))
        spent = " / ".join(f"{mean(side, 'cpu'):.0f}" for side in (ours, theirs))
        seeds = str(len(ours)) if len(ours) == len(theirs) else f"{len(ours)} / {len(theirs)}"
        yield f"| {' | '.join(cell)} | {seeds} | {' | '.join(end)} | {curve[2]} {curve[3]} | {done} | {spent} |"


def data_table(rows: Mapping[str, Row]) -> Iterator[str]:
    """Yields the lines of the table of datasets."""
    yield "| task | agent: random, end | dataset | rows | episodes | mean return [10 %, 90 %] |"
    yield "|---|---|---|---|---|---|"
    for row in (row for key, row in sorted(rows.items()) if key.startswith("data/")):
        ends = f"{row['agent']['random']:,.0f}, {row['score']:,.0f}"
        for kind, data in row["data"].items():
            spread = f"[{data['returns']['0.1']:,.0f}, {data['returns']['0.9']:,.0f}]"
            facts = f"{data['rows']:,} | {data['episodes']} | {data['mean_return']:,.0f} {spread}"
            yield f"| {row['task']} | {ends} | {kind} | {facts} |"


def figure(path: Path, rows: Mapping[str, Row], sides: Sequence[str]) -> None:
    """Draws the learning curves: a panel for each method and task, mean and 95 % interval of the seeds."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from assay.runs.plot import COLOURS, STYLE

    methods, tasks = ("ppo", "sac", "td3"), peers_control.TASKS
    with rc_context(STYLE | {"font.size": 7.5}):
        drawn = Figure(figsize=(8.4, 5.7), dpi=100, facecolor="white", layout="constrained")
        grid = drawn.subplots(len(methods), len(tasks), squeeze=False)
        for (i, method), (j, task) in product(enumerate(methods), enumerate(tasks)):
            axes = grid[i][j]
            axes.set_title(f"{method} {task}", fontsize=7.5)
            axes.spines[["top", "right"]].set_visible(False)
            own = [row for row in rows.values() if (row["method"], row["task"]) == (method, task)]
            for side, colour in zip(sides, COLOURS, strict=False):
                draw(axes, [row["curve"] for row in own if row["side"] == side], side, colour)
        lines = {line.get_label(): line for panel in grid.flat for line in panel.lines}
        drawn.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=max(1, len(lines)), frameon=False)
        drawn.savefig(path, metadata={"Software": None})


def draw(axes: Any, curves: Sequence[Sequence[Sequence[float]]], name: str, colour: str) -> None:
    """Draws one side: points are joined by their place, since decisions differ by a few."""
    if not curves:
        return
    length = min(map(len, curves))
    found = [mean_interval([curve[place][1] for curve in curves], binary=False) for place in range(length)]
    x = [sum(curve[place][0] for curve in curves) / len(curves) for place in range(length)]
    axes.plot(x, [one.value for one in found], color=colour, label=name, linewidth=1.3)
    if len(curves) > 2:  # of two seeds the interval is wider than the panel
        axes.fill_between(x, [one.low for one in found], [one.high for one in found], color=colour, alpha=0.15, lw=0)


def write(page: Path, name: str, lines: Iterator[str]) -> None:
    """Replaces a table of the page."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.read_text().partition(begin)
    text = "\n".join(lines)
    page.write_text(f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}")


def main(words: Sequence[str] | None = None) -> int:
    """Writes tables and the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers_page", description=__doc__)
    parser.add_argument("--rows", type=Path, action="append", default=[], help="results to take over first")
    options = parser.parse_args(words)
    take_over(options.rows)
    control, offline = finished(ROWS["control"]), finished(ROWS["offline"])
    write(PAGE, "control", table(control, ("method", "task"), peers_control.SIDES, "decisions"))
    for side, (method, _) in peers_control.VARIANTS.items():
        own = {key: row for key, row in control.items() if row["method"] == method}
        write(PAGE, side, table(own, ("method", "task"), (side, peers_control.SIDES[1]), "decisions"))
    write(PAGE, "data", data_table(offline))
    write(PAGE, "offline", table(offline, ("method", "task", "kind"), peers_offline.SIDES, "updates"))
    figure(DOCS / "peers_control.png", control, (*peers_control.SIDES, *peers_control.VARIANTS))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
