"""The built-in methods without importing them: which files there are, and the names that each can be called by.

A method is `assay/methods/KEY.py` or the folder `KEY/`. Its key, aliases, variants and family are read from the call
`METHOD = Method(...)` in its text, so that looking up one method imports no other, and a list of names needs no torch.
A test holds this index against the imported methods.
"""

from __future__ import annotations

import ast
import importlib
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import assay.methods
from assay.core.errors import AssayError

if TYPE_CHECKING:
    from assay.recipes.method import Method

ROOT = Path(assay.methods.__path__[0])
BEGIN = "\nMETHOD = Method("


class Entry(NamedTuple):
    """A method's file, and what its text says: names, family, the recipe that it is derived from, the first line of its
    docstring, what to start with it for ("" unless it is one of the few to start with), and whether its paper is
    studied only.
    """

    file: Path
    key: str
    aliases: tuple[str, ...]
    variants: tuple[str, ...]
    family: str
    base: str
    summary: str
    start_for: str
    studied: bool = False

    @property
    def module(self) -> str:
        """The name of the method's module."""
        return f"{assay.methods.__name__}.{stem_of(self.key)}"


def stem_of(key: str) -> str:
    """Returns the name of a method's file without its ending."""
    return key.replace("-", "_").replace(".", "_")


def file_of_method(key: str) -> Path | None:
    """Returns the file of a built-in method; None if there is no such method."""
    stem = stem_of(key)
    files = (ROOT / f"{stem}.py", ROOT / stem / "__init__.py")
    return next((file for file in files if stem.isidentifier() and file.is_file()), None)


@cache
def entries() -> Mapping[str, Entry]:
    """Returns all built-in methods by key, in alphabetical order."""
    files = [*(file for file in ROOT.glob("*.py") if file.stem != "__init__"), *ROOT.glob("*/__init__.py")]
    found = [entry_of(file) for file in files]
    return {entry.key: entry for entry in sorted(found, key=lambda entry: stem_of(entry.key))}


@cache
def entry_of(file: Path) -> Entry:
    """Returns the entry of a method's file; one that cannot be parsed has its file's name and no other."""
    stem = file.parent.name if file.stem == "__init__" else file.stem
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        call = ast.parse(text[text.index(BEGIN) :]).body[0].value  # type: ignore[attr-defined]
        found = {str(one.arg): texts_in(one.value) for one in call.keywords}
        base = "".join(ast.unparse(one.value).rpartition(".")[2] for one in call.keywords if one.arg == "base")
    except (ValueError, SyntaxError, AttributeError):
        found, base = {}, ""  # importing it says what is wrong
    key = "".join(found.get("key", ())) or stem.replace("_", "-")
    family, start_for = ("".join(found.get(name, ())) for name in ("family", "start_for"))
    summary = text.partition("\n")[0].strip('"').partition(": ")[2]
    aliases, variants = (found.get(name, ()) for name in ("aliases", "variants"))
    return Entry(file, key, aliases, variants, family, base, summary, start_for, "studied" in found)


def texts_in(node: Any) -> tuple[str, ...]:
    """Returns the texts of a literal: itself, the items of a tuple, the names of a dict."""
    nodes = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [node])
    return tuple(one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str))


@cache
def names() -> Mapping[str, str]:
    """Returns every name that a built-in method can be called by: KEY, aliases and METHOD:VARIANT; each means one.

    AssayError for a name that means two.
    """
    found: dict[str, str] = {}
    for entry in entries().values():
        own = {entry.key: entry.key} | dict.fromkeys(entry.aliases, entry.key)
        own |= {full: full for full in (f"{entry.key}:{variant}" for variant in entry.variants)}
        for name, meant in own.items():
            if found.setdefault(name, meant) != meant:
                raise AssayError(f"'{name}' is a name of {found[name]} and of {meant}. Rename one of them.")
    return found


def key_of(name: str) -> str | None:
    """Returns the key of a built-in method by key or alias, '-' as '_' and any capitals; None for another name."""
    asked = name.lower().replace("_", "-")
    file = file_of_method(asked)
    if file is not None:
        key = entry_of(file).key
        if asked in (key, key.replace(".", "-")):
            return key
    return names().get(asked) if ":" not in asked else None


def import_method(key: str) -> Method:
    """Returns a built-in method; imports its module and no other method. AssayError names a file that is broken."""
    file = file_of_method(key)
    assert file is not None, key
    try:
        method: Method = importlib.import_module(entry_of(file).module).METHOD
    except Exception as error:  # whatever is wrong with one file, the others work
        raise AssayError(f"method '{key}' cannot be imported: {place_of(error, file)}") from error
    return method


def place_of(error: Exception, file: Path) -> str:
    """Returns, as text, the error and the last line of the method's file that led to it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(file) else (lines or [None])[-1]
    where = f"{file.relative_to(ROOT.parents[1])}" + (f", line {line}" if line else "")
    return f"{where}: {type(error).__name__}: {error}. Fix the file"


@cache
def methods() -> Mapping[str, Method]:
    """Returns every built-in method that can be imported, by key."""
    return {key: import_method(key) for key in entries() if key not in broken_methods()}


@cache
def broken_methods() -> Mapping[str, str]:
    """Returns the built-in methods that cannot be imported, and why."""
    found = {}
    for key in entries():
        try:
            import_method(key)
        except AssayError as error:
            found[key] = str(error)
    return found
