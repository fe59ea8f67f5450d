"""The numbers of the review table (docs/review.md) that a walk over syntax trees gives.

    python tools/review_numbers.py

Modules and functions by lines (functions without docstrings), modules that mention tensors and say their axes, public
names with a docstring (their own, or that of the slot that they implement), comments by lines of code, tests at the
path of what they test, and the methods that share most lines: of file and claims together, without blank lines,
imports and the frame that every such file has. Other rows of the table are held by tests, or read.
"""

from __future__ import annotations

import ast
import importlib
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "assay"
sys.path.insert(0, str(ROOT))

AXES = re.compile(
    r"\bAxes\b|\bShapes?:|[Tt]ensors? (have|are)|shapes? of (the )?param|one shape|one entry|are flat|single"
)
"""What the docstring of a module says of its tensors: their axes, or that they have none of their own."""
FRAME = re.compile(
    r"^[\])}(\[{,]*$|^(METHOD = Method\(|CLAIMS = Claims\(|(claims|mutants|departures|pilots|results)=\(|"
    r'@dataclass\(frozen=True\)|"""|recipe=recipe,)$'
)
"""Lines that every file of a method or of claims has."""
NO_COMMENT = re.compile(r"#\s*(noqa|type:|fmt:|ruff|pragma|-{5,}|={5,})")
LONG = 40
"""Functions with more lines are listed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def spread(numbers: Iterable[int]) -> str:
    """Returns median, 90 % quantile and largest."""
    ordered = sorted(numbers)
    return f"median {median(ordered):g}, p90 {ordered[int(0.9 * len(ordered))]}, largest {ordered[-1]}"


def docstring_lines(tree: ast.AST) -> set[int]:
    """Returns the lines of all docstrings."""
    owners = [one for one in ast.walk(tree) if isinstance(one, ast.Module | ast.ClassDef | Function)]
    texts = [one.body[0] for one in owners if ast.get_docstring(one, clean=False) is not None]
    return {line for one in texts for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}


def code_lines(function: Function) -> int:
    """Returns the lines of a function without its docstring."""
    first = function.body[0]
    has_text = ast.get_docstring(function, clean=False) is not None
    text = (first.end_lineno or first.lineno) - first.lineno + 1 if has_text else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - text


def comments(text: str) -> int:
    """Returns the number of comments that say something."""
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(one.type == tokenize.COMMENT and not NO_COMMENT.match(one.string) for one in found)


def density(texts: Sequence[str]) -> str:
    """Returns comments, lines of code, and the comments of 100 of them."""
    num = sum(map(comments, texts))
    code = 0
    for text in texts:
        without = docstring_lines(ast.parse(text))
        lines = enumerate(text.splitlines(), 1)
        code += sum(bool(line.strip()) and line.strip()[0] != "#" and place not in without for place, line in lines)
    return f"{num} comments in {code} lines of code, {100 * num / code:.1f} of 100"


# ---------------------------------------------------------------------------------------------------- public names
def public_names(path: Path) -> Iterator[tuple[str, bool]]:
    """Yields the public functions, classes and members that a module defines, and whether each has a docstring."""
    place = path.relative_to(ROOT).with_suffix("")
    module = importlib.import_module(".".join(place.parts).removesuffix(".__init__"))
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type):
            yield f"{module.__name__}.{name}", bool(value.__doc__)
            for own in vars(value):
                if not own.startswith("_") and callable(function := function_of(vars(value)[own])):
                    yield f"{module.__name__}.{name}.{own}", is_documented(value, own, function)
        elif callable(value) and getattr(value, "__name__", "") == name:
            yield f"{module.__name__}.{name}", bool(value.__doc__)


def function_of(member: Any) -> Any:
    """Returns the function behind a property, a static or a class method; None of a value."""
    inner = getattr(member, "fget", None) or getattr(member, "__func__", None) or getattr(member, "func", None)
    found = inner or member
    return found if hasattr(found, "__code__") and "<lambda>" not in found.__qualname__ else None


def is_documented(cls: type, name: str, function: Any) -> bool:
    """Returns whether a member, or the one that it implements, has a docstring."""
    others = (function_of(vars(base).get(name)) for base in cls.__mro__[1:])
    return any(getattr(one, "__doc__", None) for one in (function, *others))


# ---------------------------------------------------------------------------------------------------- shared lines
def own_lines(path: Path) -> list[str]:
    """Returns the lines of a file of a method or of claims that say something."""
    text = path.read_text()
    imports = [one for one in ast.parse(text).body if isinstance(one, ast.Import | ast.ImportFrom)]
    left_out = {line for one in imports for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    lines = (line.strip() for place, line in enumerate(text.splitlines(), 1) if place not in left_out)
    return [line for line in lines if not FRAME.match(line)]


def closest(num: int = 3) -> list[str]:
    """Returns the pairs of methods that share the largest part of the smaller one's lines."""
    folder, found = PACKAGE / "methods", dict[str, list[str]]()
    for path in sorted(one for one in folder.iterdir() if not one.name.startswith("__")):
        files = [path] if path.suffix else sorted(path.glob("*.py"))
        found[path.stem] = [line for one in (*files, PACKAGE / "claims" / f"{path.stem}.py") for line in own_lines(one)]
    bounds = []
    for one, other in combinations(found, 2):
        common = (Counter(found[one]) & Counter(found[other])).total()
        bounds.append((common / min(len(found[one]), len(found[other])), one, other))
    pairs = []
    for _, one, other in sorted(bounds, reverse=True)[:100]:  # an upper bound: lines in any order
        sides = found[one], found[other]
        shared = sum(block.size for block in SequenceMatcher(None, *sides, autojunk=False).get_matching_blocks())
        words = f"{one} and {other}: {shared} of {len(sides[0])} and {len(sides[1])}"
        pairs.append((shared / min(map(len, sides)), words))
    return [f"{100 * share:.0f} %, {words}" for share, words in sorted(pairs, reverse=True)[:num]]


def main() -> int:
    """Prints the numbers."""
    texts = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    sizes = {path: len(text.splitlines()) for path, text in texts.items()}
    many = sum(num >= 380 for num in sizes.values())
    print(f"modules: {len(sizes)}, {spread(sizes.values())}; {many} of 380 or more")
    functions = [
        (code_lines(one), f"{path.relative_to(PACKAGE)} {one.name}")
        for path, tree in trees.items()
        for one in ast.walk(tree)
        if isinstance(one, Function)
    ]
    print(f"functions: {len(functions)}, {spread(num for num, _ in functions)}")
    print(*(f"  {num} {name}\n" for num, name in sorted(functions, reverse=True) if num > LONG), sep="", end="")
    tensors = [path for path, text in texts.items() if re.search(r"\bTensor\b", text)]
    silent = [path for path in tensors if not AXES.search(ast.get_docstring(trees[path]) or "")]
    print(f"tensors: {len(tensors)} modules, {len(silent)} without axes", *map(str, silent))
    hand = {path for path, text in texts.items() if path.parent.name == "claims" and "\nCLAIMS = Claims(" in text}
    others = (path for path in texts if path not in hand and "triton" not in path.name and path.stem != "__main__")
    names = dict(one for path in others for one in public_names(path))
    bare = [name for name, has_text in names.items() if not has_text]
    print(f"public names beside formulas by hand: {len(names)}, {len(bare)} without a docstring", *bare)
    for unit in ("engine", "decoding", ""):
        print(f"{unit or 'all'}: {density([text for path, text in texts.items() if unit in path.parts or not unit])}")
    tests = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    inner = [path.relative_to(PACKAGE) for path in texts if path.stem != "__init__"]
    there = sum(path.with_name(f"test_{path.name}") in tests for path in inner)
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py"))
    print(f"tests: {lines} lines of {sum(sizes.values())}; {there} of {len(inner)} modules have one at their path")
    print("closest methods:", *(f"  {one}" for one in closest()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
