"""What a method costs: all lines that only this method uses, wherever they stand.

    python tools/method_cost.py

The lines of a method are those of its own folder, and those of shared modules and of shared part classes that no other
method reaches. A method reaches the modules that its folder imports, what these import, and the classes of the parts
in its recipes. Lines count code and docstrings, no blank lines and no comments. Last comes what has fewer than two
users: shared parts that belong into a method's folder or that no recipe uses. A part that a base of `assay.recipes`
names is shared with all that is derived from the base, so it is not among them.
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
from assay.core.settings import children  # noqa: E402
from assay.runs import catalogue  # noqa: E402
from assay.runs.code import imported_by, source_of  # noqa: E402

SHARED = ("assay.parts.", "assay.models.", "assay.recipes.", "assay.claims.")
"""Where lines stand that methods share."""
MEDIAN, LARGEST = 150, 500
"""What the median method and the largest one may cost."""
VERIFIABLE = (
    "lite-ppo", "nsr", "ace", "a-grae", "progrpo", "mathforge", "etr", "pacs", "real", "oreal", "kimi-k1.5",
    "direct-advantage-po", "p3o", "r2vpo", "dph-rl", "self-interference", "siren", "dsdr", "lp-reg", "prerl-dsrl",
    "repexp", "laser", "lhrm-hgpo", "wgrpo-pairing", "remax", "policy-cliff", "rlsp", "echo-chamber", "simplerl-zoo",
)  # fmt: skip
"""Systems of learning from verifiable rewards."""
MEDIAN_VERIFIABLE = 100
"""What the median of them may cost."""


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
def folder_modules(method: str) -> set[str]:
    """The modules of a method's own folder."""
    folder = catalogue.folder_of(method)
    own = f"assay.methods.{folder.name}"
    return {own if path.stem == "__init__" else f"{own}.{path.stem}" for path in folder.glob("*.py")}


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
            if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(SHARED):
                found |= {(node.module, alias.name) for alias in node.names}
    return found


def part_classes(value: Any) -> set[tuple[str, str]]:
    """(module, class) of all parts of a recipe."""
    own = {(type(value).__module__, type(value).__qualname__)} if is_dataclass(value) else set()
    return own.union(*(part_classes(item) for _, item in children(value)))


def uses(method: str) -> set[tuple[str, str]]:
    """(module, class) of all shared classes that a method uses: in its recipes, or by name in its folder."""
    found = catalogue.methods()[method]
    makers = [found.recipe, *found.variants.values()]
    sides = [one for claim in found.measured for one in (claim.ours, claim.theirs) if is_dataclass(one)]
    recipes = [maker(world) for maker in makers for world in found.worlds]
    used = set().union(*(part_classes(recipe) for recipe in [*recipes, *sides]))
    return {one for one in used | named_classes(folder_modules(method)) if f"{one[0]}.".startswith(SHARED)}


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
    modules = {method: reached(folder_modules(method)) for method in catalogue.methods()}
    users = users_of_parts()
    found = {}
    for method, mine in modules.items():
        own = sum(len(counted(module)) for module in folder_modules(method))
        others = set().union(*(theirs for other, theirs in modules.items() if other != method))
        alone = mine - others
        own += sum(len(counted(module)) for module in alone)
        parts = [one for one, methods in users.items() if methods == {method} and one[0] not in alone]
        found[method] = own + sum(len(class_lines(module)[name]) for module, name in parts)
    return found


def main() -> int:
    """Prints the table."""
    found = costs()
    print(f"{'method':28}{'lines that only it uses':>24}")
    for method, lines in sorted(found.items(), key=lambda each: each[1]):
        print(f"{method:28}{lines:24}")
    ordered = sorted(found.values())
    print(f"\nmedian   {statistics.median(ordered):g} (budget {MEDIAN})")
    print(f"p90      {ordered[int(0.9 * len(ordered))]}")
    print(f"largest  {ordered[-1]} (budget {LARGEST})")
    verifiable = statistics.median(found[name] for name in VERIFIABLE)
    print(f"median of systems with verifiable rewards  {verifiable:g} (budget {MEDIAN_VERIFIABLE})")
    print("\nshared parts with fewer than two users")
    for name, user in few_users().items():
        print(f"  {name:60}{user}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
