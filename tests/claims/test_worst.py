"""A NaN among the errors of an exact claim is seen: `max` may pass over it, and it is above no limit."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

import assay
from assay.claims import probes

PACKAGE = Path(assay.__file__).parent
KEPT = {
    "claims/stream_x.py": 1, "claims/p3o.py": 1, "claims/spo.py": 1, "claims/measuring.py": 1, "laws/certificate.py": 1,
    "methods/limit_of_rlvr.py": 1, "methods/hl_gauss.py": 1, "claims/hl_gauss.py": 1,
    "claims/tqc.py": 1,
}  # fmt: skip
"""Places where `max` or `>` is part of a formula by hand, or of a method."""


@pytest.mark.parametrize("values", [(0.0, math.nan), (math.nan, 0.0), (0.0, math.nan, 1.0)])
def test_an_error_that_is_no_number_is_the_worst(values: tuple[float, ...]) -> None:
    assert probes.worst(*values) == math.inf


def test_otherwise_the_largest_is() -> None:
    assert probes.worst(-1.0, 0.25, 0.125) == 0.25
    assert probes.worst(-math.inf, -2.0) == -2.0


def hides(node: ast.AST) -> bool:
    """Whether this is a call of `max`, or a `>` with a number, of something that contains an absolute value."""
    is_max = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "max"
    is_limit = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Gt)
    if not is_max and not (is_limit and isinstance(node.comparators[0], ast.Constant)):
        return False
    inner = (one for one in ast.walk(node) if isinstance(one, ast.Call) and one is not node)
    return "abs" in {one.func.id if isinstance(one.func, ast.Name) else getattr(one.func, "attr", "") for one in inner}


def test_no_claim_loses_a_nan_among_several_errors() -> None:
    paths = [*PACKAGE.glob("methods/**/*.py"), *PACKAGE.glob("claims/**/*.py")]
    trees = {str(path.relative_to(path.parents[1])): ast.parse(path.read_text()) for path in paths}
    found = {name: sum(map(hides, ast.walk(tree))) for name, tree in trees.items()}
    assert {name: count for name, count in found.items() if count > KEPT.get(name, 0)} == {}
