"""Refuses names of methods, rewards and tools that mean nothing before torch is imported, which takes seconds."""

from __future__ import annotations

import argparse
import symtable
from collections.abc import Iterator
from pathlib import Path

from assay.core.errors import AssayError
from assay.core.tool_servers import is_server
from assay.runs.method_names import known_method, method_address
from assay.runs.options.own import BUILT_IN, PARTS
from assay.runs.user_code.addresses import Address, needed_address

METHODS = ("name", "other", "first", "second")
"""Options of commands that name a method."""
VERIFIER = "verifier"
COMPOSED = ("import *", "globals()", "__getattr__", "exec(")
"""What a file may define names with that its text does not show."""
ROWS = (".jsonl", ".parquet", ".csv")
"""How files of rows end that `--task` names."""


def refuse_unknown(options: argparse.Namespace) -> None:
    """Raises AssayError for a method or a file of rows that does not exist, and for a reward, tool or part whose file
    does not or has no such name. Whatever needs the code itself is checked later.
    """
    for name in (vars(options).get(key) for key in METHODS):
        if isinstance(name, str) and name.strip() and method_address(name) is None:
            known_method(name)
    refuse_missing(listed_option(options, "task"))
    for option, word in own_functions(options):
        check_defined(needed_address(word, option, PARTS.get(option.removeprefix("--"), "")))


def refuse_missing(tasks: list[str]) -> None:
    """Raises AssayError if a task is a file of rows, or a list of them, and one is not there."""
    listed = [task.split(",") for task in tasks]
    for path in (Path(path) for paths in listed if all(paths) for path in paths):
        if path.suffix in ROWS and not {":", "*"} & set(str(path)) and not path.exists():
            raise AssayError(f"there is no file '{path}'. Check the path (relative to {Path.cwd()})")


def own_functions(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yields the own functions that options name, without their weights."""
    for word in listed_option(options, "reward"):
        name = word.rpartition("=")[0] or word
        if name != VERIFIER:
            yield "--reward", name
    for option in ("tool", *PARTS):
        for word in listed_option(options, option):
            if word not in BUILT_IN and not (option == "tool" and is_server(word)):
                yield f"--{option}", word


def listed_option(options: argparse.Namespace, key: str) -> list[str]:
    """Returns the values of an option that may be given once, several times or never."""
    found = vars(options).get(key)
    return [] if found is None else [found] if isinstance(found, str) else list(found)


def check_defined(address: Address) -> None:
    """Raises AssayError if a file's text binds no such name at its top level, and lists those that it defines."""
    if not address.is_file or not address.name:
        return
    text = Path(address.source).read_text(encoding="utf-8", errors="replace")
    try:
        table = symtable.symtable(text, address.source, "exec")
    except (SyntaxError, ValueError):
        return  # loading it says where
    bound = [one for one in table.get_symbols() if one.is_assigned() or one.is_imported() or one.is_namespace()]
    if address.name in {one.get_name() for one in bound} or any(word in text for word in COMPOSED):
        return
    own = [one.get_name() for one in bound if not one.is_imported() and not one.get_name().startswith("_")]
    raise AssayError(f"{address.source} has no '{address.name}'. It has: {', '.join(own) or 'nothing'}.")
