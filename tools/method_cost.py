"""What a method costs: lines of its file, parts of its own, and what the closest two methods share.

    python tools/method_cost.py

A part belongs to the methods whose recipes hold it; one that a single method holds is its own. Lines are those with
code on them: no blank lines, comments or docstrings.
"""

from __future__ import annotations

import ast
import statistics
import sys
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from assay import catalogue  # noqa: E402
from assay.fingerprints import modules_of  # noqa: E402


def code_lines(path: Path) -> list[str]:
    """Stripped lines that hold code."""
    source = path.read_text()
    words: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            words |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [(number, line.strip()) for number, line in enumerate(source.splitlines(), 1)]
    return [line for number, line in lines if line and not line.startswith("#") and number not in words]


def main() -> None:
    """Prints the table."""
    methods = catalogue.methods()
    folder = ROOT / "assay" / "methods"
    files = {name: code_lines(folder / f"{name.replace('-', '_')}.py") for name in methods}
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
    print(f"\nmedian lines of a method file   {statistics.median(counts):g} (largest {max(counts)})")
    print(f"median files of a method        {statistics.median(own):g} (largest {max(own)})")
    ignored = ("from ", "import ", ")", "(", "METHOD", "paper", "recipe=", "worlds", "home", "departs", "claims")

    def told(name: str) -> set[str]:
        return {line for line in files[name] if not line.startswith(ignored) and len(line) > 12}

    (a, b), shared = max(
        ((pair, told(pair[0]) & told(pair[1])) for pair in combinations(files, 2)), key=lambda each: len(each[1])
    )
    print(f"lines shared by the closest two {len(shared)} ({a} and {b})")


if __name__ == "__main__":
    main()
