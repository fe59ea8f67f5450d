"""Tables of a report as files: CSV for programs, LaTeX for a paper (needs \\usepackage{booktabs})."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.store import write_text
from assay.report.estimates import even_ends, with_ends
from assay.runs.terminal_curves import printable
from assay.statistics.intervals import digits

COLUMNS = (
    "arm", "task", "unit", "score", "low", "high", "seeds", "finished", "failed", "missing", "running", "difference",
    "difference_low", "difference_high", "over", "improvement", "steps", "decisions", "seconds", "scores",
)  # fmt: skip
SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\symbol{34}",
}  # fmt: skip
"""Characters that LaTeX would read as commands, or print as others."""
LONGEST = 400
ACCENTED = set("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿ")


# ---------------------------------------------------------------------------------------------------- csv
def csv_text(comparison: Mapping[str, Any]) -> str:
    """Returns the rows of a comparison as CSV: numbers in full, single scores separated by spaces."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in comparison["rows"]:
        minus, better = row["difference"] or {}, row["improvement"] or {}
        writer.writerow(
            {name: plain_cell(row[name]) for name in COLUMNS if name in row}
            | {
                "unit": comparison["units"][row["task"]],
                "score": plain_cell(row["estimate"]),
                "difference": plain_cell(minus.get("value")),
                "difference_low": plain_cell(minus.get("low")),
                "difference_high": plain_cell(minus.get("high")),
                "improvement": plain_cell(better.get("value")),
                "failed": len(row["failed"]),
                "missing": len(row["missing"]),
                "over": row["over"] if minus else "",
                "scores": " ".join(map(repr, row["scores"])),
            }
        )
    return stream.getvalue()


def plain_cell(value: Any) -> Any:
    """Returns a cell of a CSV file: text that a spreadsheet would run as a formula gets a quote in front."""
    if isinstance(value, str):
        shown = printable(value, 200)
        return f"'{shown}" if shown[:1] in "=+-@" else shown
    return "" if value is None else value


# ---------------------------------------------------------------------------------------------------- latex
def latex_text(comparison: Mapping[str, Any], methods: str) -> str:
    """Returns a table environment with a group for each task and a row for each arm."""
    rows = comparison["rows"]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    several = len({row["arm"] for row in rows}) > 1
    minus = ["Difference"] if several else []
    heads = ["Arm", "Score", *minus, "Seeds", "Steps", "Decisions", "Fail.", "Miss."]
    lines = [
        r"% \usepackage{booktabs} is needed in the preamble",
        r"\begin{table}[t]",
        r"  \centering\footnotesize\setlength{\tabcolsep}{3.5pt}",
        rf"  \caption{{{escaped(caption(comparison))}}}",
        r"  \label{tab:results}",
        rf"  \begin{{tabular}}{{ll{'l' if several else ''}rrrrr}}",
        r"    \toprule",
        f"    {' & '.join(map(escaped, heads))} \\\\",
    ]
    for task in tasks:
        lines.append(r"    \midrule")
        lines.append(rf"    \multicolumn{{{len(heads)}}}{{l}}{{\emph{{{escaped(task)}}}}} \\")
        here = [one for one in rows if one["task"] == task]
        places = even_ends(score_of(row) for row in here)
        apart = even_ends(row["difference"] or {} for row in here)
        for row in here:
            so_far = r" (so far)" if row["so_far"] else ""
            cells = [escaped(row["arm"]), estimated(score_of(row), places) + so_far]
            is_first = row["over"] == row["arm"]
            cells += ["baseline" if is_first else estimated(row["difference"], apart, signed=True)] if several else []
            lines.append(f"    {' & '.join(cells + counts(row))} \\\\")
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join([*lines, *commented(methods)]) + "\n"


def caption(comparison: Mapping[str, Any]) -> str:
    """Returns what the table shows."""
    what = "; ".join(dict.fromkeys(comparison["units"].values()))
    return (
        f"Mean over seeds of finished runs with its 95% confidence interval: {what}. Differences are from the "
        "baseline, paired by seed. Steps and decisions are per run. Failed and missing runs are not in the scores."
    )


def score_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the score of a row with its interval."""
    return {"value": row["estimate"], "low": row["low"], "high": row["high"]}


def estimated(estimate: Mapping[str, Any] | None, decimals: int | None = None, *, signed: bool = False) -> str:
    """Returns an estimate as '$0.42$ [$0.37$, $0.47$]', with the decimals of its column; a dash without a value."""
    three = None if estimate is None else with_ends(estimate)
    if three is None:
        return "--"
    value, low, high = map(formula, digits(three, signed=signed, decimals=decimals))
    return f"{value} [{low}, {high}]" if math.isfinite(three.low + three.high) else value


def formula(number: str) -> str:
    """Returns a number in math mode, powers of ten as such."""
    return re.sub(r"e([+-])0*(\d+)", lambda one: rf" \times 10^{{{one[1].strip('+')}{one[2]}}}", f"${number}$")


def counts(row: Mapping[str, Any]) -> list[str]:
    """Returns the last cells of a row."""
    numbers = (row["finished"], row["steps"], row["decisions"], len(row["failed"]), len(row["missing"]))
    return ["--" if value is None else f"{value:,.0f}".replace(",", r"\,") for value in numbers]


def escaped(text: str) -> str:
    """Returns text that LaTeX prints as it is; characters that its standard fonts lack become their code point."""
    shown = "".join(SPECIAL.get(one) or (one if is_plain(one) else f"U+{ord(one):04X}") for one in text[:LONGEST])
    return re.sub("([-'`])(?=[-'`])", r"\1{}", shown)  # -- would be a dash, '' a quote


def is_plain(character: str) -> bool:
    """Returns whether pdflatex prints a character without further packages."""
    return character in ACCENTED or (character.isascii() and character.isprintable())


def commented(text: str, width: int = 110) -> list[str]:
    """Returns the methods paragraph as comments below the table."""
    found = ["% Methods, to paste:"]
    for word in printable(text, 10_000).split():
        if len(found) == 1 or len(found[-1]) + len(word) > width:
            found.append("%")
        found[-1] += f" {word}"
    return found if text else []


# ---------------------------------------------------------------------------------------------------- files
def save(path: Path, text: str) -> Path:
    """Writes a text file, and the folder it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path
