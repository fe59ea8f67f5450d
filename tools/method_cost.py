"""What a method costs: lines of its folder, parts of its own, and what the closest two methods share.

    python tools/method_cost.py

A part belongs to the methods whose recipes hold it; one that a single method holds is its own. Lines are those with
code on them: no blank lines, comments or docstrings. Ends with status 1 where two methods share more than MOST_SHARED.
"""

from __future__ import annotations

import ast
import statistics
import sys
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from assay.proof.fingerprints import modules_of  # noqa: E402
from assay.runs import catalogue  # noqa: E402

METHODS = ROOT / "assay" / "methods"
MOST_SHARED = 8
"""Lines that two method files may have in common: more are a missing part or base."""
FORM = ("from ", "import ", ")", "(", "METHOD", "paper", "recipe=", "worlds", "home", "departs", "claims")
"""How lines begin that every method file has."""


def code_lines(path: Path) -> list[str]:
    """Stripped lines that hold code."""
    source = path.read_text()
    words: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            words |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [(number, line.strip()) for number, line in enumerate(source.splitlines(), 1)]
    return [line for number, line in lines if line and not line.startswith("#") and number not in words]


def closest() -> tuple[set[str], str, str]:
    """The two method files that share most, and the lines."""
    told = {
        path.parent.name: {line for line in code_lines(path) if not line.startswith(FORM) and len(line) > 12}
        for path in sorted(METHODS.glob("*/__init__.py"))
    }
    return max(((told[a] & told[b], a, b) for a, b in combinations(told, 2)), key=lambda each: len(each[0]))


def main() -> int:
    """Prints the table."""
    methods = catalogue.methods()
    folders = {name: sorted((METHODS / name.replace("-", "_")).rglob("*.py")) for name in methods}
    files = {name: [line for path in paths for line in code_lines(path)] for name, paths in folders.items()}
    modules = {
        name: set().union(*(modules_of(method.recipe(world)) for world in method.worlds))
        for name, method in methods.items()
    }
    users: dict[str, int] = {}
    for found in modules.values():
        for module in found:
            users[module] = users.get(module, 0) + 1
    print(f"{'method':26}{'lines':>7}{'part modules':>14}{'its own':>9}")
    for name, lines in files.items():
        own = sum(users[module] == 1 for module in modules[name])
        print(f"{name:26}{len(lines):7}{len(modules[name]):14}{own:9}")
    counts = [len(lines) for lines in files.values()]
    own = [1 + sum(users[module] == 1 for module in found) for found in modules.values()]
    print(f"\nmedian lines of a method folder {statistics.median(counts):g} (largest {max(counts)})")
    print(f"median files of a method        {statistics.median(own):g} (largest {max(own)})")
    shared, a, b = closest()
    print(f"lines shared by the closest two {len(shared)} of at most {MOST_SHARED} ({a} and {b})")
    return int(len(shared) > MOST_SHARED)


if __name__ == "__main__":
    sys.exit(main())
