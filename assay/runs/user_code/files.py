"""The files of own code: a file and all local modules that it imports, with a digest of each. Nothing is imported.

Local are the modules beside a file, and those of a module's own package. What an import inside a string or by a
computed name reaches is not seen.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from assay.core.errors import AssayError
from assay.runs.user_code.addresses import module_file
from assay.runs.user_code.objects import function_digest, is_given

NOT_LOCAL = {*sys.stdlib_module_names, "assay"}
"""Names of modules that a file beside the own one does not replace."""


def digests(source: str) -> dict[str, str]:
    """Returns sixteen hex digits of the SHA-256 of each file of a source, by its path relative to the source's folder.

    Claims in a file are left out (see `without_claims`): what a method promises does not change its runs. AssayError if
    a file cannot be read or is not Python.
    """
    if is_given(source):
        return function_digest(source)
    root, only = place_of(source)
    return {
        str(path.relative_to(root)): hashlib.sha256(without_claims(path)).hexdigest()[:16]
        for path in sorted(closure(file_of(source), root, only))
    }


def without_claims(path: Path) -> bytes:
    """Returns a file's bytes without the lines of statements CLAIMS = ... and NAME = Measured(...), or another call of
    what the file imports from assay.claims, at the top level; one that shares a line with another statement stays.
    """
    text = path.read_bytes()
    body = ast.parse(text, str(path)).body if b"CLAIMS" in text else []
    lines = text.split(b"\n")
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "assay.claims"]
    makers = {alias.asname or alias.name for node in imports for alias in node.names}
    for node in reversed(body):
        rows = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        is_alone = not any(other is not node and {other.lineno, other.end_lineno} & set(rows) for other in body)
        if is_alone and isinstance(node, ast.Assign) and states_claims(node, makers):
            del lines[rows.start - 1 : rows.stop - 1]
    return b"\n".join(lines)


def states_claims(node: ast.Assign, makers: set[str]) -> bool:
    """Returns whether an assignment names claims: it is that of CLAIMS, or of a call of one of these functions."""
    names = [one.id for one in node.targets if isinstance(one, ast.Name)]
    maker = node.value.func if isinstance(node.value, ast.Call) else None
    return names == ["CLAIMS"] or (isinstance(maker, ast.Name) and maker.id in makers)


def file_of(source: str) -> Path:
    """Returns the file of a source; AssayError if it does not exist."""
    path = Path(source) if source.endswith(".py") else module_file(source)
    if path is None or not path.is_file():
        raise AssayError(f"own code '{source}' does not exist on this machine. Restore it at this place.")
    return path.resolve()


def place_of(source: str) -> tuple[Path, str | None]:
    """Returns the folder that local modules are searched in, and the package that alone is local (None: any)."""
    file = file_of(source)
    if source.endswith(".py"):
        return file.parent, None
    names = source.split(".")
    depth = len(names) - (file.name != "__init__.py")
    return file.parents[depth], names[0]


def closure(file: Path, root: Path, only: str | None) -> set[Path]:
    """Returns a file and every local file that it imports, directly or not."""
    found: set[Path] = set()
    todo = [file, *(above for above in packages_above(file, root) if only is not None)]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += imported(path, root, only)
    return found


def packages_above(file: Path, root: Path) -> Iterator[Path]:
    """Yields the __init__.py of the packages that contain a file, which an import of it runs."""
    for folder in file.parents:
        if folder == root:
            return
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"


def imported(path: Path, root: Path, only: str | None) -> list[Path]:
    """Returns the local files that a file's import statements name."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else error
        raise AssayError(f"{path}{line}: {what}. Fix the syntax.") from None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = above(path, root, node.level) + (node.module or "")
            names.update(f"{base}.{alias.name}".strip(".") for alias in node.names)
    return [file for name in names for file in local_files(name, root, only)]


def above(path: Path, root: Path, level: int) -> str:
    """Returns the package that a relative import starts from, with a dot after it; "" for an absolute one."""
    if level == 0:
        return ""
    parts = path.relative_to(root).parts[:-1]
    kept = parts[: len(parts) - level + 1]
    return ".".join(kept) + "." if kept else ""


def local_files(name: str, root: Path, only: str | None) -> list[Path]:
    """Returns the files that an import of a dotted name runs, if they are local; its last word may be a value."""
    words = name.split(".")
    if words[0] in NOT_LOCAL or only not in (None, words[0]):
        return []
    found, folder = [], root
    for word in words:
        init, module = folder / word / "__init__.py", folder / f"{word}.py"
        if init.is_file():
            found.append(init)
        elif module.is_file():
            return [*found, module]
        folder = folder / word
        if not folder.is_dir():
            break
    return found
