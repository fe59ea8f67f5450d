"""The code that a recipe runs: its modules, all that they import, and a digest of each.

A comparison that is resumed must not mix runs of two versions of the code; its folder keeps these digests.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import tokenize
from collections.abc import Iterable
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay.core.lazy import homes_of
from assay.core.settings import children

CORE = ("assay.engine.loop", "assay.engine.engine", "assay.engine.evaluation")
"""Modules that every run uses."""
NOT_NUMBERS = (
    "assay.core.slots", "assay.engine.guards", "assay.core.store",
    "assay.version", "assay.runs.folder", "assay.runs.plot", "assay.runs.progress", "assay.runs.terminal",
    "assay.core.extras", "assay.core.metrics",
)  # fmt: skip
"""Modules that cannot change a score: protocols, guards, display."""


def code_of(modules: Iterable[str]) -> dict[str, str]:
    """Returns the digest of every module that these parts run."""
    return {module: code_digest(module) for module in sorted(closure({*CORE, *modules}))}


def modules_of(value: Any) -> set[str]:
    """Returns the modules that define the parts of a tree."""
    own = {type(value).__module__} if is_dataclass(value) else set()
    if callable(value) and not is_dataclass(value):
        own.add(getattr(value, "__module__", "") or "")
    found = own.union(*(modules_of(item) for _, item in children(value)))
    return {module for module in found if module.startswith("assay.") and module != "assay.core.recipe"}


def closure(modules: Iterable[str]) -> set[str]:
    """Returns these modules and all of the package that they import, without those that cannot change a score."""
    found: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module not in found and not module.startswith(NOT_NUMBERS):
            found.add(module)
            todo += imported_by(module)
    return found


@cache
def imported_by(module: str) -> tuple[str, ...]:
    """Returns modules of the package that a module's statements import, or that its stub names."""
    names: set[str] = set(homes_in(module).values())
    for node in ast.walk(ast.parse(source_of(module))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "assay":
            for alias in node.names:
                home = homes_in(node.module).get(alias.name, node.module)
                below = f"{home}.{alias.name}"
                names.add(below if is_module(below) else home)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names if alias.name.startswith("assay."))
    return tuple(sorted(names - {"assay"}))


@cache
def homes_in(module: str) -> dict[str, str]:
    """Returns the modules that the names of a flat namespace such as `assay.method` come from; empty for others."""
    spec = importlib.util.find_spec(module)
    return homes_of(spec.origin) if spec is not None and spec.origin is not None else {}


@cache
def is_module(name: str) -> bool:
    """Returns whether the package has a module of this name."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def source_of(module: str) -> str:
    """Returns the text of a module."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return Path(spec.origin).read_text()


@cache
def code_digest(module: str) -> str:
    """Returns sixteen hex digits of a module's code: comments, docstrings and white space do not count."""
    return hashlib.sha256(bare_code(source_of(module)).encode()).hexdigest()[:16]


def bare_code(source: str) -> str:
    """Returns the text without comments, docstrings and white space; equal on every Python version."""
    lines = [list(line) for line in source.splitlines(keepends=True)]

    def blank(begin: tuple[int, int], end: tuple[int, int]) -> None:
        for row in range(begin[0], end[0] + 1):
            first = begin[1] if row == begin[0] else 0
            last = end[1] if row == end[0] else len(lines[row - 1])
            lines[row - 1][first:last] = " " * (last - first)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            rows = [source.splitlines()[row - 1].encode() for row in (node.lineno, node.end_lineno or node.lineno)]
            first = len(rows[0][: node.col_offset].decode())
            last = len(rows[1][: node.end_col_offset].decode())
            blank((node.lineno, first), (node.end_lineno or node.lineno, last))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            blank(token.start, token.end)
    return "".join("".join(line) for line in lines).translate({ord(c): None for c in " \t\r\n\f"})
