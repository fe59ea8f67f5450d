"""Text as Markdown for generated pages: escaped, in tables, in lists, with formulas typeset."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from assay.runs import method_index
from tools.docs_formulas import formula

BREAKS = re.compile(r"(?<=[.,(=])(?=\w)")
"""Where long code in a table may be broken."""
SPECIAL = re.compile(r"([*_`\[\]\\])")


def plain(text: Any) -> str:
    """Returns a text whose characters mean nothing to Markdown, to HTML or to a table, but for code in backticks."""
    pieces = re.split(r"`([^`\n]+)`", str(text))
    return "".join(code(piece) if place % 2 else literal(piece) for place, piece in enumerate(pieces))


def literal(text: str) -> str:
    """Returns a text without code whose characters mean nothing to Markdown, to HTML or to a table."""
    return SPECIAL.sub(r"\\\1", escape(text, quote=False)).replace("|", "&#124;").replace("\n", " ")


def capital(text: str) -> str:
    """Returns a sentence as text of HTML, with a capital unless it begins with the name of a method."""
    begins = re.split(r"[\s:,']", text, maxsplit=1)[0] in method_index.names()
    return escape(text if begins else text[:1].upper() + text[1:], quote=False).replace("|", "&#124;")


def code(text: Any) -> str:
    """Returns a text as code inside a line or a table; - for an empty one."""
    words = escape(str(text), quote=False).replace("|", "&#124;").replace("*", "&#42;").replace("_", "&#95;")
    return f"<code>{BREAKS.sub('<wbr>', words)}</code>" if words else "-"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table whose cells are Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    """Returns a list."""
    return "\n".join(f"- {plain(line)}" for line in lines)


def prose(text: str) -> str:
    """Returns a docstring as Markdown: indented paragraphs are formulas (see `docs_formulas`); lists stay lists."""
    done = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith("    "):
            done.append(formula("\n".join(lines)))
        elif lines[0].startswith("- "):
            done.append("\n".join(f"- {plain(line[2:])}" if line.startswith("- ") else plain(line) for line in lines))
        else:
            done.append("\n".join(map(plain, lines)))
    return "\n\n".join(done)
