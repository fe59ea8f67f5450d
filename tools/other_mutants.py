"""Tries a random sample of mutants by other rules than those of `assay.claims.mutants`, which claims are written for.

    python tools/other_mutants.py                    # all methods
    python tools/other_mutants.py grpo ppo --each 4

| rule | change |
|---|---|
| constant | a number c becomes c + 1, a fraction c / 2 |
| operator | * and /, // and % are exchanged, a + b and a ** b become a * b |
| boundary | < and <=, > and >= are exchanged |
| logic | `and` and `or`, & and | are exchanged; a condition is always true, or never |
| function | exp, log, abs, sigmoid and others are left out; sum and mean, floor and ceil, any and all are exchanged |
| arguments | the first two arguments of a call are exchanged |
| keyword | an argument given by name is left out |
| statement | a statement that changes something is left out |

Of each method mutants are drawn in a random order that the seed and its name decide, in turn one of its own code and
one of shared code that it uses, until `--each` of them had an effect on its exact claims or on a short training run.
Mutants without an effect (a message, a metric, a branch that is not taken) are counted and not judged.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from assay.claims.mutants.edits import compiled, installed, tree_of  # noqa: E402
from assay.claims.mutants.find import Mutant, functions_of, is_other, own_module  # noqa: E402
from assay.claims.mutants.rules import text, variants  # noqa: E402
from assay.claims.mutants.trial import CAUGHT, SURVIVED, Result, trials  # noqa: E402
from assay.recipes.method import Method  # noqa: E402
from assay.runs import catalogue  # noqa: E402

FILE = ROOT / "benchmarks" / "other_mutants.json"
"""Where the result of a trial of all methods is kept."""
OPERATORS = {
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mod, ast.Mod: ast.FloorDiv, ast.Add: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
LEFT_OUT = (
    "exp", "log", "log1p", "expm1", "abs", "sqrt", "sigmoid", "logsigmoid", "tanh", "softplus", "relu", "softmax",
    "log_softmax", "cumsum", "flip", "sign", "round", "sorted", "reversed", "set", "mean",
)  # fmt: skip
PAIRS = (("sum", "mean"), ("floor", "ceil"), ("any", "all"), ("std", "var"), ("argsort", "sort"), ("first", "last"))
MODULES = ("torch", "F", "np", "math")
EXCHANGED = {**dict(PAIRS), **{b: a for a, b in PAIRS}}
Site = tuple[str, str, ast.AST]


def sites(node: ast.AST) -> Iterator[Site]:
    """Yields rule, description and replacement of each change of one expression or statement."""
    for rule, new in changes(node):
        shown = "nothing" if isinstance(new, ast.Pass) else text(new)
        yield rule, f"{text(node)} -> {shown}", new


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yields rule and replacement of each change."""
    match node:
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int() as number):
            yield "constant", ast.Constant(number + 1)
        case ast.Constant(value=float() as number):
            yield "constant", ast.Constant(number / 2 if number else 1.0)
        case ast.BinOp(left, op, right) if type(op) in OPERATORS and not is_sequence(left, right):
            logic = isinstance(op, ast.BitAnd | ast.BitOr)
            yield "logic" if logic else "operator", ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.Compare(left, [op], comparators) if type(op) in BOUNDARIES:
            yield "boundary", ast.Compare(left, [BOUNDARIES[type(op)]()], comparators)
        case ast.BoolOp(op, values):
            yield "logic", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.IfExp(_, body, orelse):
            yield from (("logic", one) for one in (body, orelse))
        case ast.If(_, body, orelse) if not holds(body, ast.Raise):
            yield from (("logic", ast.If(ast.Constant(sure), body, orelse)) for sure in (True, False))
        case ast.Call():
            yield from calls(node)
        case ast.AugAssign():
            yield "statement", ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if any(
            isinstance(one, ast.Name) and one.id == name for one in ast.walk(value)
        ):
            yield "statement", ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield "statement", ast.Pass()


def calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    """Yields the changes of a call."""
    function, args, keywords = node.func, node.args, node.keywords
    on_module = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") in MODULES
    name = getattr(function, "attr", None) or getattr(function, "id", "")
    if name in LEFT_OUT:
        if isinstance(function, ast.Attribute) and not on_module:
            yield "function", function.value
        elif args:
            yield "function", args[0]
    if name in EXCHANGED:
        other = EXCHANGED[name]
        called = (
            ast.Attribute(function.value, other, ast.Load())
            if isinstance(function, ast.Attribute)
            else ast.Name(other, ast.Load())
        )
        yield "function", ast.Call(called, args, keywords)
    plain = len(args) > 1 and not any(isinstance(one, ast.Starred) for one in args[:2])
    if plain and name not in ("isinstance", "cast"):
        yield "arguments", ast.Call(function, [args[1], args[0], *args[2:]], keywords)
    for place, keyword in enumerate(keywords):
        if keyword.arg is not None:
            yield "keyword", ast.Call(function, args, [*keywords[:place], *keywords[place + 1 :]])


def is_sequence(*sides: ast.expr) -> bool:
    """Returns whether one of the sides is a list, a tuple or a text."""
    return any(
        isinstance(side, ast.Tuple | ast.List | ast.JoinedStr | ast.ListComp | ast.Dict)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def holds(body: Sequence[ast.stmt], kind: type[ast.AST]) -> bool:
    """Returns whether statements hold a node of a kind."""
    return any(isinstance(node, kind) for statement in body for node in ast.walk(statement))


def others(key: str, method: Method, seed: int) -> list[Mutant]:
    """Returns the mutants of a method in random order, in turn one of its own code and one of shared code."""
    own = own_module(key)
    found: dict[bool, list[Mutant]] = {True: [], False: []}
    for name, function in functions_of(key, method).items():
        for rule, told, changed in variants(tree_of(function), sites):
            code = compiled(function, changed)
            if code is not None and is_other(code, function.__code__):
                mutant = Mutant(rule, f"{name}: {told}", partial(installed, function, code), function.__code__)
                found[f"{function.__module__}.".startswith(f"{own}.")].append(mutant)
    for each in found.values():
        random.Random(f"{seed} {key}").shuffle(each)
    return [one for one in chain(*zip_longest(found[True], found[False])) if one is not None]


def tried(each: int, seed: int, seconds: float, key: str) -> tuple[str, list[Result]]:
    """Returns the results of a method's mutants, up to `each` that had an effect; begins none after `seconds`."""
    _, method = catalogue.find_method(key)
    begin, effective, results = time.process_time(), 0, []
    for result in trials(key, lambda _: others(key, method, seed)):
        results.append(result)
        effective += result.outcome in (CAUGHT, SURVIVED)
        if effective == each or time.process_time() - begin > seconds:
            break
    return key, results


def summary(found: dict[str, list[Result]], seed: int) -> dict[str, Any]:
    """Returns the counts of all methods and by rule, the counts of each method, and those that survived."""
    results = [one for each in found.values() for one in each]
    rules = {rule: [one for one in results if one.rule == rule] for rule in sorted({one.rule for one in results})}
    return {
        "seed": seed,
        "outcomes": dict(sorted(Counter(one.outcome for one in results).items())),
        "caught_by_rule": {rule: counts for rule, some in rules.items() if any(counts := caught_of(some))},
        "methods": {key: caught_of(some) for key, some in sorted(found.items())},
        "survived": {
            key: names for key, each in sorted(found.items())
            if (names := [f"{one.rule}, {one.name}" for one in each if one.outcome == SURVIVED])
        },
    }  # fmt: skip


def caught_of(results: Sequence[Result]) -> list[int]:
    """Returns how many were caught, and how many had an effect."""
    return [sum(one.outcome in outcomes for one in results) for outcomes in ((CAUGHT,), (CAUGHT, SURVIVED))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each method, then the counts; writes them if all methods were tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--each", type=int, default=3, help="mutants with an effect of each method")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=300, help="of computing a method, after which no mutant begins"
    )
    chosen = parser.parse_args(arguments)
    keys = chosen.methods or sorted(catalogue.methods())
    found: dict[str, list[Result]] = {}
    with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn")) as pool:
        for key, results in pool.map(partial(tried, chosen.each, chosen.seed, chosen.seconds), keys):
            found[key] = results
            counts = Counter(one.outcome for one in results)
            print(f"{key:28}{dict(counts)}", flush=True)
            for one in results:
                if one.outcome == SURVIVED:
                    print(f"    survived: {one.rule}, {one.name}", flush=True)
    told = summary(found, chosen.seed)
    print(json.dumps({name: told[name] for name in ("outcomes", "caught_by_rule")}))
    if not chosen.methods:
        FILE.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
