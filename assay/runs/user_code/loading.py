"""Loads own code as a module, leaving Python's search path and other modules as they were."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from assay.core.errors import AssayError
from assay.core.exits import kept_alive
from assay.core.faults import STAMP, at_place, error_name
from assay.runs.user_code.addresses import Address
from assay.runs.user_code.files import NOT_LOCAL, digests, file_of, local_files
from assay.runs.user_code.objects import given_module, is_given

PREFIX = "own_"
"""Names of modules from files begin with it; the rest is the file's stem and a hash of its path."""
WHOLE = "__assay_whole__"
"""Name in a module that was loaded from a file: the digest of all of it, claims included."""


def load(source: str) -> ModuleType:
    """Returns the module of a source: a file's absolute path, or a module's name.

    A file that is loaded and unchanged is not run again. AssayError in one sentence if loading fails.
    """
    if is_given(source):
        return given_module(source)
    if not source.endswith(".py"):
        return imported(source)
    path, stamp = file_of(source), {"source": source, "files": digests(source)}
    name = f"{PREFIX}{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    known, whole = sys.modules.get(name), sha256(path.read_bytes()).hexdigest()
    if known is not None and vars(known).get(STAMP) == stamp and vars(known).get(WHOLE) == whole:
        return known
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceLoader(name, str(path)))
    assert spec is not None, "a .py file has a spec"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up here
    try:
        with local_modules(path.parent, name), kept_alive():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise failed(str(path), error) from error
    setattr(module, STAMP, stamp)
    setattr(module, WHOLE, whole)
    return module


def imported(name: str) -> ModuleType:
    """Imports a module by name; AssayError if that fails."""
    stamp = {"source": name, "files": digests(name)}
    try:
        with kept_alive():
            module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise failed(f"module '{name}'", error) from error
    setattr(module, STAMP, stamp)
    return module


def failed(what: str, error: BaseException) -> AssayError:
    """Returns the error of code that cannot be loaded."""
    if isinstance(error, AssayError):
        return error
    if isinstance(error, SystemExit):
        where = at_place(error)
        return AssayError(f"{what} cannot be loaded: it raises SystemExit{where}. Remove the call of sys.exit.")
    return AssayError(f"{what} cannot be loaded: it raises {error_name(error)}{at_place(error)}")


def stamped_sources(modules: Iterable[str]) -> dict[str, dict[str, str]]:
    """Returns source and digests of those of these modules that are own code, or local modules of own code."""
    owners = {owner for name in modules for owner in (name, name.partition(".")[0])}
    stamps = [vars(sys.modules[name]).get(STAMP) for name in owners if name in sys.modules]
    return {stamp["source"]: stamp["files"] for stamp in stamps if stamp is not None}


# ---------------------------------------------------------------------------------------------------- local modules
class SourceLoader(SourceFileLoader):
    """Compiles a file from its text, never from Python's cache, and writes none.

    The cache counts as valid if the file's size and its time in whole seconds are those that it was made from: a number
    that is edited twice within a second would keep its old value.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Returns the code of the file as it is now."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


@dataclass(frozen=True)
class LocalFinder:
    """Finds top-level modules in one folder, except those that are never local."""

    folder: Path

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns the spec of a module of the folder; None leaves the name to Python's other finders."""
        if path is not None or not local_files(name, self.folder, None):
            return None
        spec = PathFinder.find_spec(name, [str(self.folder)])
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = SourceLoader(spec.loader.name, spec.loader.path)
        return spec


@contextmanager
def local_modules(folder: Path, owner: str) -> Iterator[None]:
    """Makes the modules of a folder importable in the block, under their own names.

    After it they are known as OWNER.NAME only, so that files of two folders may each have a module `rewards_text`; a
    module of another origin that had such a name has it back.
    """
    finder = LocalFinder(folder)
    names = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    names -= {*NOT_LOCAL, *(name for name in names if is_in(sys.modules.get(name), folder))}
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] in names]:
            rename(sys.modules.pop(name), name, f"{owner}.{name}")
        sys.modules.update(hidden)


def is_in(module: ModuleType | None, folder: Path) -> bool:
    """Returns whether a module was imported from a folder already, for instance as an installed package."""
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(folder)


def rename(module: ModuleType, old: str, name: str) -> None:
    """Gives a module another name, so that its classes and functions can be pickled under it."""
    sys.modules[name] = module
    module.__name__ = name
    for value in vars(module).values():
        if getattr(value, "__module__", None) == old and isinstance(value, type | type(rename)):
            value.__module__ = name


def value_of(address: Address) -> Any:
    """Returns the value that an address names; AssayError with the names that there are if it is missing."""
    module = load(address.source)
    found = vars(module)
    if address.name not in found:
        own = [name for name, value in found.items() if is_public(name, value) and is_of(value, module)]
        raise AssayError(f"{address.source} has no '{address.name}'. It has: {', '.join(own) or 'nothing'}.")
    return found[address.name]


def is_of(value: Any, module: ModuleType) -> bool:
    """Returns whether a module defines a value; of other values than classes and functions that is not known: True."""
    return not isinstance(value, type | type(is_of)) or value.__module__ == module.__name__


def is_public(name: str, value: Any) -> bool:
    """Returns whether a name of a module is worth suggesting: not private, no module."""
    return not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
