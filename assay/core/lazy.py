"""Flat namespaces whose names are imported on first use.

The stub beside a module (`method.pyi` for `method.py`) lists the names and their homes, for type checkers and editors
as well as for Python. So a method pays only for the parts that it names, and the list stands in one place.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import Any

STATEMENT = re.compile(r"^from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)
NAME = re.compile(r"(\w+) as \1\b")


def homes_of(file: str) -> dict[str, str]:
    """Returns the home of each name in the stub beside a module's file; empty without a stub."""
    stub = os.path.splitext(file)[0] + ".pyi"
    if not os.path.isfile(stub):
        return {}
    with open(stub, encoding="utf-8") as opened:
        statements = STATEMENT.findall(opened.read())
    return {name: home for home, names in statements for name in NAME.findall(names)}


def attach(name: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` of the module `name` from the stub beside its file.

    `dir` lists the names of the stub and nothing that happens to be imported. The stub holds lines
    `from HOME import NAME as NAME` only; NAME may be a module.
    """
    homes = homes_of(file)

    def import_name(key: str) -> Any:
        if key not in homes:
            raise AttributeError(f"module '{name}' has no attribute '{key}'", name=key, obj=sys.modules[name])
        home = importlib.import_module(homes[key])
        if key not in vars(home):  # a module of the package HOME that was not imported yet
            importlib.import_module(f"{homes[key]}.{key}")
        value = vars(home)[key]
        setattr(sys.modules[name], key, value)
        return value

    def list_names() -> list[str]:
        return sorted({*homes, *(key for key in vars(sys.modules[name]) if key.startswith("__"))})

    return import_name, list_names, sorted(homes)
