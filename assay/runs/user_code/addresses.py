"""Addresses of own code: FILE.py, FILE.py:NAME, package.module:NAME, or a name that an installed package declares."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from assay.core.errors import AssayError

PYTHON = "python:"
"""Begins the source of a function that was given as an object (see `user_code.objects`)."""
METHODS, TASKS, MODELS = "assay.methods", "assay.tasks", "assay.models"
"""Groups of entry points by which an installed package brings methods, tasks and models under names of its own."""
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Address:
    """Where own code is: `source` is the absolute path of a file or the name of a module, `name` is what is meant in
    it ("" for what the file is about).
    """

    source: str
    name: str = ""

    @property
    def is_file(self) -> bool:
        """Whether the source is a file."""
        return self.source.endswith(".py")

    @property
    def stem(self) -> str:
        """The last word of the source: of my_method.py and of pkg.my_method, my_method."""
        return Path(self.source).stem if self.is_file else self.source.rpartition(".")[2]

    def __str__(self) -> str:
        if self.source.startswith(PYTHON):
            return self.source
        return f"{self.source}:{self.name}" if self.name else self.source


def parsed_address(text: str) -> Address | None:
    """Returns the address that a text is, with an absolute path; None for any other word.

    A text with .py before its first ':' is a file, which must exist. A dotted name before ':' is a module if Python
    finds one of that name; nothing is imported to find it.
    """
    if text.startswith(PYTHON):
        return Address(text, text.removeprefix(PYTHON))
    source, _, name = text.partition(":")
    if source.endswith(".py"):
        path = Path(source)
        if not path.is_file():
            raise AssayError(f"there is no file '{source}'. Check the path (relative to {Path.cwd()}).")
        return Address(str(path.resolve()), name)
    if not name or not DOTTED.fullmatch(source) or module_file(source) is None:
        return None
    return Address(source, name)


def installed_address(group: str, name: str) -> Address | None:
    """Returns the address that an installed package declares under a name in a group, such as
    `[project.entry-points."assay.methods"]`; None if no package does. NAME:REST is a variant of a method or the
    settings of a task.

    A method declared by its module alone is the METHOD in it. AssayError if two packages declare a name.
    """
    key, _, rest = name.partition(":")
    points = {point.value: point for point in metadata.entry_points(group=group, name=key)}
    if len(points) > 1:
        raise AssayError(f"'{key}' is declared by several packages: {', '.join(points)}. Use one of these paths")
    for point in points.values():
        names = [rest or point.attr or "METHOD"] if group == METHODS else [one for one in (point.attr, rest) if one]
        return Address(point.module, ":".join(names))
    return None


def needed_address(text: str, option: str, group: str = "") -> Address:
    """Returns the address that an option names, possibly by a name that a package declares in a group; AssayError if it
    is not one.
    """
    found = (installed_address(group, text) if group else None) or parsed_address(text)
    if found is None:
        hint = "Use FILE.py:NAME, or package.module:NAME of an importable module"
        raise AssayError(f"{option} {text}: '{text.partition(':')[0]}' is neither a Python file nor a module. {hint}.")
    return found


def module_file(module: str) -> Path | None:
    """Returns the source file of a module without importing it or its package; None if Python finds no such file."""
    top, *below = module.split(".")
    if top in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for name in below:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # by the last word alone: of a whole name Python looks up the packages above, which are not imported
        spec = importlib.machinery.PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
