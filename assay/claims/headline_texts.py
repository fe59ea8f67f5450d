"""The verdict of a method's headline from texts alone: its claims file, parsed, and its record.

`headline.headline_word` says the same of imported claims; a test holds the two together. Here nothing is imported, so
that a summary of all methods takes a fraction of a second.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.claims.records import FOLDER, read_record
from assay.runs.method_index import entries, stem_of

NO_HEADLINE = "no headline"
"""No measured claim is about what the paper promises, or none of them has been measured."""
STUDIED = "studied"
"""What the paper promises does not act in a run here (`METHOD.studied`): no verdict is one of it."""
HEADLINE = "headline"
SHARED = {"learns_faster": HEADLINE}
"""Functions of `comparisons` that make a measured claim, and what that is about."""
WORST = ("fails", "inconclusive", "holds")
"""Verdicts, the worst first: that of a method is the worst of its headline's claims."""


def headline_verdict(key: str) -> str:
    """Returns the worst recorded verdict of a built-in method's claims about its headline; `no headline` if none is
    measured, `studied` for a method that is only that.
    """
    if is_studied(key):
        return STUDIED
    stem = stem_of(key)
    record = read_record(FOLDER / f"{stem}.json")
    measured = [one for one in record.get("claims", ()) if one.get("kind") == "measured"]
    file = FOLDER.with_name(f"{stem}.py")
    found = stated(file) if measured and file.is_file() else {}
    words = {one["verdict"] for one in measured if is_headline(one, found)}
    return next((word for word in WORST if word in words), NO_HEADLINE)


def is_studied(key: str) -> bool:
    """Returns whether a built-in method is listed as studied, and not counted."""
    return key in entries() and entries()[key].studied


def is_headline(entry: Mapping[str, Any], found: Mapping[str | None, str]) -> bool:
    """Returns whether a recorded claim is about the headline, by the file's present text; a name that is composed there
    is that of a claim whose name the text does not have.
    """
    name = entry["name"]
    return (found[name] if name in found else found.get(None, "")) == HEADLINE


def stated(file: Path) -> dict[str | None, str]:
    """Returns what each measured claim of a file is about, by its name; None stands for names that are composed."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except SyntaxError:
        return {}  # importing the file says what is wrong
    own = {name: about for call in calls(tree, "Measured") for name, about in (claim_of(call),)}
    return own | {claim_of(call)[0]: about for made, about in SHARED.items() for call in calls(tree, made)}


def calls(tree: ast.AST, function: str) -> Iterator[ast.Call]:
    """Yields the calls of a function by its bare name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            yield node


def claim_of(call: ast.Call) -> tuple[str | None, str]:
    """Returns a claim's name, None if it is composed, and what it is about: "mechanism" unless it says so."""
    given = {one.arg: one.value for one in call.keywords}
    name = call.args[0] if call.args else given.get("name")
    about = given.get("about")
    word = about.attr.lower() if isinstance(about, ast.Attribute) else "mechanism"
    is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return (str(name.value) if is_text else None), word  # type: ignore[union-attr]
