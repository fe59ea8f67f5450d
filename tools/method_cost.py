"""What a method costs: all lines that only this method uses, wherever they stand.

    python tools/method_cost.py

The lines of a method are those of its file or folder and of its claims, and those of shared modules (parts, models,
recipes, probes, tasks) and of shared part classes that no other method reaches. A method reaches the modules that its
files import, what these import, and the classes of the parts in its recipes. Lines count code and docstrings, no blank
lines and no comments. Then come the whole files, as a reader sees them: all lines of a method and of its claims, and
the lines of its import statements. Last comes what has fewer than two users: shared parts that belong into a method's
file or that no recipe uses. A part that a base of `assay.recipes` names is shared with all that is derived from the
base, so it is not among them.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from assay.claims.discover import classes_of, modules_of  # noqa: E402
from assay.claims.find import find_claims  # noqa: E402
from assay.core.settings import children  # noqa: E402
from assay.runs import catalogue, method_index  # noqa: E402
from assay.runs.code import homes_in, imported_by, source_of  # noqa: E402

SHARED = ("assay.parts.", "assay.models.", "assay.recipes.", "assay.tasks.", "assay.claims.")
"""Where lines stand that methods share."""
LARGEST = 800
"""What the largest method may cost; there is no budget for a median, which would be steered to."""


# ---------------------------------------------------------------------------------------------------- lines
@cache
def counted(module: str) -> frozenset[int]:
    """The numbers of a module's lines that hold code or docstrings."""
    lines = source_of(module).splitlines()
    return frozenset(place for place, line in enumerate(lines, 1) if line.strip() and not line.strip().startswith("#"))


@cache
def class_lines(module: str) -> Mapping[str, frozenset[int]]:
    """The lines of each class of a module."""
    found = (node for node in ast.parse(source_of(module)).body if isinstance(node, ast.ClassDef))
    spans = {node.name: range(first_line(node), (node.end_lineno or node.lineno) + 1) for node in found}
    return {name: counted(module) & set(span) for name, span in spans.items()}


def first_line(node: ast.ClassDef) -> int:
    """The first line of a class, its decorators included."""
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


# ---------------------------------------------------------------------------------------------------- who uses what
def own_modules(method: str) -> set[str]:
    """The modules of a method: its file or folder, and its claims."""
    entry = method_index.entries()[method]
    claims = f"assay.claims.{method_index.stem_of(method)}"
    if entry.file.stem != "__init__":
        return {entry.module, claims}
    inner = (path.stem for path in entry.file.parent.glob("*.py"))
    return {claims, *(entry.module if stem == "__init__" else f"{entry.module}.{stem}" for stem in inner)}


def reached(modules: Iterable[str]) -> set[str]:
    """The shared modules that these import, directly or through one another."""
    found: set[str] = set()
    todo = [name for module in modules for name in imported_by(module)]
    while todo:
        name = todo.pop()
        if name not in found and f"{name}.".startswith(SHARED):
            found.add(name)
            todo += imported_by(name)
    return found


def named_classes(modules: Iterable[str]) -> set[tuple[str, str]]:
    """(module, class) of all shared classes that the statements of these modules name in an import."""
    found = set()
    for module in modules:
        for node in ast.walk(ast.parse(source_of(module))):
            if isinstance(node, ast.ImportFrom) and node.module:
                homes = homes_in(node.module)
                found |= {(homes.get(alias.name, node.module), alias.name) for alias in node.names}
    return {one for one in found if f"{one[0]}.".startswith(SHARED)}


def part_classes(value: Any) -> set[tuple[str, str]]:
    """(module, class) of all parts of a recipe."""
    own = {(type(value).__module__, type(value).__qualname__)} if is_dataclass(value) else set()
    return own.union(*(part_classes(item) for _, item in children(value)))


def uses(method: str) -> set[tuple[str, str]]:
    """(module, class) of all shared classes that a method uses: in its recipes, or by name in its folder."""
    found = catalogue.methods()[method]
    makers = [found.recipe, *found.variants.values()]
    sides = [one for claim in find_claims(method).measured for one in (claim.ours, claim.theirs) if is_dataclass(one)]
    recipes = [maker(world) for maker in makers for world in found.presets]
    used = set().union(*(part_classes(recipe) for recipe in [*recipes, *sides]))
    return {one for one in used | named_classes(own_modules(method)) if f"{one[0]}.".startswith(SHARED)}


def users_of_parts() -> dict[tuple[str, str], set[str]]:
    """The methods that use each shared part, by (module, class); parts that none uses have an empty set."""
    users: dict[tuple[str, str], set[str]] = {
        (cls.__module__, cls.__qualname__): set() for place in ("parts", "models") for cls in classes_of(place)
    }
    for method in catalogue.methods():
        for one in uses(method) & set(users):
            users[one].add(method)
    return users


def few_users() -> dict[str, str]:
    """Shared parts that no base recipe names and with fewer than two users: their names, and the user or '-'."""
    of_bases = named_classes(module.__name__ for module in modules_of("recipes"))
    return {
        f"{module}.{name}": min(methods, default="-")
        for (module, name), methods in sorted(users_of_parts().items())
        if len(methods) < 2 and (module, name) not in of_bases
    }


def costs() -> dict[str, int]:
    """All lines that only one method uses, by method."""
    modules = {method: reached(own_modules(method)) for method in catalogue.methods()}
    users = users_of_parts()
    found = {}
    for method, mine in modules.items():
        own = sum(len(counted(module)) for module in own_modules(method))
        others = set().union(*(theirs for other, theirs in modules.items() if other != method))
        alone = mine - others
        own += sum(len(counted(module)) for module in alone)
        parts = [one for one, methods in users.items() if methods == {method} and one[0] not in alone]
        found[method] = own + sum(len(class_lines(module)[name]) for module, name in parts)
    return found


def whole_files(method: str) -> tuple[int, int, int]:
    """All lines of a method's files, of its claims, and of the import statements of its main file."""
    claims = f"assay.claims.{method_index.stem_of(method)}"
    own = sum(len(source_of(module).splitlines()) for module in own_modules(method) - {claims})
    tree = ast.parse(method_index.entries()[method].file.read_text())
    spans = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in tree.body if is_import(node)]
    return own, len(source_of(claims).splitlines()), sum(spans)


def is_import(node: ast.stmt) -> bool:
    """Whether a statement is an import."""
    return isinstance(node, ast.Import | ast.ImportFrom)


def main() -> int:
    """Prints the table."""
    found, files = costs(), {method: whole_files(method) for method in catalogue.methods()}
    print(f"{'method':28}{'lines that only it uses':>24}{'file':>8}{'claims':>8}{'both':>8}{'imports':>9}")
    for method, lines in sorted(found.items(), key=lambda each: each[1]):
        own, claims, imports = files[method]
        print(f"{method:28}{lines:24}{own:8}{claims:8}{own + claims:8}{imports:9}")
    columns = list(found.values()), *([one[place] for one in files.values()] for place in (0, 1, 2))
    for title, column in zip(("lines that only it uses", "file", "claims", "imports"), columns, strict=True):
        ordered = sorted(column)
        print(f"{title:24} median {statistics.median(ordered):g}, p90 {ordered[int(0.9 * len(ordered))]}, "
              f"largest {ordered[-1]}")
    both = sorted(own + claims for own, claims, _ in files.values())
    print(f"{'file and claims':24} median {statistics.median(both):g}, largest {both[-1]}")
    print("\nshared parts with fewer than two users")
    for name, user in few_users().items():
        print(f"  {name:60}{user}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
