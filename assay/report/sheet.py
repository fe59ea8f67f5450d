"""What a command prints, as blocks of JSON: kept in a file and drawn at any width without torch.

A block is a dict with a `kind`: panel, line, bullets, table or note. A cell is a list of spans (text, style).
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

BORDERS = 4
"""Columns that a panel's frame and padding take."""
Block: TypeAlias = dict[str, Any]
Cell: TypeAlias = list[list[str]]


def cell(text: str | Text, style: str = "") -> Cell:
    """Returns a text as a cell."""
    if isinstance(text, str):
        return [[text, style]]
    cuts = sorted({0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))})
    found = []
    for begin, end in zip(cuts, cuts[1:], strict=False):
        styles = [str(one.style) for one in text.spans if one.start <= begin < one.end]
        found.append([text.plain[begin:end], " ".join([str(text.style), *styles]).strip()])
    return found


def text_of(one: Cell) -> Text:
    """Returns a cell as a text."""
    return Text.assemble(*((words, style) for words, style in one))


def line(heading: str, text: str) -> Block:
    """Returns a heading and its text."""
    return {"kind": "line", "heading": heading, "text": text}


def bullets(lines: Sequence[str]) -> Block:
    """Returns a list whose long lines are indented."""
    return {"kind": "bullets", "lines": list(lines)}


def note(text: str, style: str = "") -> Block:
    """Returns a line of its own."""
    return {"kind": "note", "text": text, "style": style}


def table(title: str | Text, headings: Sequence[str], rows: Sequence[Sequence[Cell]], **more: Any) -> Block:
    """Returns a table; `whole`: the first column is not wrapped on 80 columns and more; `caption`, a line below it."""
    shown = {"title": cell(title), "headings": list(headings), "rows": [list(row) for row in rows]}
    return {"kind": "table", **shown, **more}


def draw(out: Console, blocks: Sequence[Mapping[str, Any]]) -> None:
    """Prints blocks to a console."""
    for block in blocks:
        kind = block["kind"]
        if kind == "panel":
            title, text = text_of(block["title"]), Text(folded(block["text"], out.width - BORDERS))
            out.print(Panel(text, title=title, title_align="left", expand=False))
        elif kind == "line":
            out.print(Text.assemble((f"{block['heading']}  ", "bold"), block["text"]))
        elif kind == "bullets" and block["lines"]:
            listed = Table.grid(padding=(0, 1))
            for one in block["lines"]:
                listed.add_row("  -", Text(one))
            out.print(listed)
        elif kind == "table":
            out.print(drawn_table(block, out.width))
        elif kind == "note":
            out.print(Text(block["text"], style=block["style"]))


def folded(text: str, width: int) -> str:
    """Returns the text with indented lines, formulas, cut between words; what follows stands further in."""
    found: list[str] = []
    for row in text.split("\n"):
        indent = row[: len(row) - len(row.lstrip())]
        is_long = bool(indent) and len(row) > width
        found += textwrap.wrap(row, width, subsequent_indent=indent + "    ") if is_long else [row]
    return "\n".join(found)


def drawn_table(block: Mapping[str, Any], width: int) -> Table:
    """Returns a block as a table for a console of this width."""
    title = text_of(block["title"])
    drawn = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    whole = block.get("whole", False) and width >= 80
    for place, heading in enumerate(block["headings"]):
        dim = "dim" if "whole" in block else "table.header"
        drawn.add_column(heading, overflow="fold", header_style=dim, no_wrap=whole and place == 0)
    for row in block["rows"]:
        drawn.add_row(*map(text_of, row))
    if block.get("caption"):
        drawn.caption, drawn.caption_justify = Text(block["caption"], style="dim"), "left"
    return drawn
