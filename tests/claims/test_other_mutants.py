"""The sample of mutants by other rules: what the rules change, and what is kept of a trial."""

from __future__ import annotations

import ast

import pytest

from assay.claims.mutants.rules import variants
from assay.claims.mutants.trial import CAUGHT, NO_EFFECT, SURVIVED, Result
from tools import other_mutants


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 2", {"return 3"}),
        ("return 0.5", {"return 0.25"}),
        ("return True", set()),
        ("return a * b", {"return a / b"}),
        ("return [a] + b", set()),
        ("return a < b", {"return a <= b"}),
        ("return a and b", {"return a or b"}),
        ("return a.exp()", {"return a"}),
        ("return torch.log(a)", {"return a"}),
        ("return a.sum(1)", {"return a.mean(1)", "return a.sum(2)"}),
        ("return f(a, b)", {"return f(b, a)"}),
        ("return f(a, dim=b)", {"return f(a)"}),
        ("a += b\n    return a", {"pass\n    return a"}),
        ("a = a.view(b)\n    return a", {"pass\n    return a"}),
        ("if a:\n        b()", {"if True:\n        b()", "if False:\n        b()", "if a:\n        pass"}),
        ("if a:\n        raise b(1)", set()),
    ],
)
def test_rules_change_one_thing(body: str, expected: set[str]) -> None:
    tree = ast.parse(f"def go(a, b):\n    {body}").body[0]
    assert isinstance(tree, ast.FunctionDef)
    found = [ast.unparse(ast.fix_missing_locations(new)) for _, _, new in variants(tree, other_mutants.sites)]
    assert sorted(found) == sorted(f"def go(a, b):\n    {one}" for one in expected)
    assert ast.unparse(tree) == f"def go(a, b):\n    {body}"


def test_mutants_without_an_effect_are_not_judged() -> None:
    results = [Result("constant", "f: 1 -> 2", one) for one in (CAUGHT, SURVIVED, NO_EFFECT)]
    told = other_mutants.summary({"grpo": results, "ppo": results[:1]}, seed=3)
    assert told["outcomes"] == {CAUGHT: 2, SURVIVED: 1, NO_EFFECT: 1}
    assert told["caught_by_rule"] == {"constant": [2, 3]}
    assert told["methods"] == {"grpo": [1, 2], "ppo": [1, 1]}
    assert told["survived"] == {"grpo": ["constant, f: 1 -> 2"]}
