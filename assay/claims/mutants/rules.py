"""Rules that change one expression of a function into a plausible mistake.

| rule | change |
|---|---|
| sign | a + b, a - b and -a get the other sign |
| extreme | minimum and maximum, min and max, argmin and argmax are exchanged |
| dropped | a factor, a divisor, a clamp or a power is left out: a coefficient, a discount, a weight is ignored |
| gradient | .detach() is left out |
| comparison | < and >=, > and <=, == and != are exchanged; ~a becomes a |
| branches | torch.where takes the other value |
| terminal | a truncated step is treated as terminal |
| mask | every column counts as a decision |
| old logp | the recorded log-probability is ignored |
| time | [1:] and [:-1], `now` and `after` are exchanged |
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

EXTREMES = {"minimum": "maximum", "min": "max", "amin": "amax", "argmin": "argmax", "fmin": "fmax", "cummin": "cummax"}
OPPOSITE = EXTREMES | {b: a for a, b in EXTREMES.items()}
NEGATED = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
RECORDS = {"batch", "experience", "rows", "record", "now", "pairs", "fresh"}
"""Names of variables that hold recorded experience."""
Site = tuple[str, str, ast.AST]
"""Rule, description, and the node to put in place."""


def variants(
    tree: ast.FunctionDef, rules: Callable[[ast.AST], Iterator[Site]] | None = None
) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Yields (rule, description, changed tree) for every node of the body that a rule applies to: those of `sites`
    without `rules`.
    """
    nodes = list(ast.walk(tree))
    skipped = {id(inner) for node in nodes if isinstance(node, SILENT) for inner in ast.walk(node)}
    skipped |= {id(inner) for one in (*tree.decorator_list, tree.args, tree.returns) if one for inner in ast.walk(one)}
    places = {id(child): (parent, name, place) for parent in nodes for name, place, child in children_of(parent)}
    for node in nodes:
        if id(node) not in skipped and node is not tree:
            for rule, told, new in (rules or sites)(node):
                yield rule, told, with_node(tree, places, node, new)


SILENT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.AnnAssign)
"""Nodes whose inside is not changed: messages and annotations. A plain assignment is changed."""


Place = tuple[ast.AST, str, int | None]
"""Where a node is: its parent, the field, and the number in it where the field is a list."""


def children_of(parent: ast.AST) -> Iterator[tuple[str, int | None, Any]]:
    """Yields the field, the place in it and the node of every child."""
    for name, value in ast.iter_fields(parent):
        if isinstance(value, list):
            yield from ((name, place, item) for place, item in enumerate(value))
        else:
            yield name, None, value


def with_node(tree: ast.FunctionDef, places: Mapping[int, Place], old: ast.AST, new: ast.AST) -> ast.FunctionDef:
    """Returns the tree with one expression replaced. What holds the expression is copied, the rest is shared."""
    while old is not tree:
        parent, name, place = places[id(old)]
        holder = copy.copy(parent)
        value: Any = new
        if place is not None:
            value = [*getattr(parent, name)]
            value[place] = new
        setattr(holder, name, value)
        old, new = parent, holder
    assert isinstance(new, ast.FunctionDef)
    return new


def sites(node: ast.AST) -> Iterator[Site]:
    """Yields the changes of one expression."""
    if isinstance(node, ast.BinOp):
        yield from arithmetic(node)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        if isinstance(node.op, ast.USub):
            yield "sign", f"{text(node)} -> {text(node.operand)}", node.operand
        elif isinstance(node.op, ast.Invert | ast.Not):
            yield "comparison", f"{text(node)} -> {text(node.operand)}", node.operand
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in NEGATED:
        if not any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in ast.walk(node)):
            new = ast.Compare(node.left, [NEGATED[type(node.ops[0])]()], node.comparators)
            yield "comparison", f"{text(node)} -> {text(new)}", new
    elif isinstance(node, ast.Call):
        yield from called(node)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield from columns(node)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield from shifted(node)


def arithmetic(node: ast.BinOp) -> Iterator[Site]:
    """Yields other signs and dropped factors."""
    sides = (node.left, node.right)
    if any(isinstance(side, ast.Tuple | ast.List | ast.JoinedStr) or is_text(side) for side in sides):
        return
    if isinstance(node.op, ast.Add | ast.Sub):
        new = ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
        yield "sign", f"{text(node)} -> {text(new)}", new
    elif isinstance(node.op, ast.Mult):
        for side in sides:
            yield "dropped", f"{text(node)} -> {text(side)}", side
    elif isinstance(node.op, ast.Div | ast.Pow):
        yield "dropped", f"{text(node)} -> {text(node.left)}", node.left


def called(node: ast.Call) -> Iterator[Site]:
    """Yields other extremes, dropped clamps and detachments, exchanged branches."""
    function = node.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    if name in OPPOSITE:
        new: ast.expr
        if isinstance(function, ast.Attribute):
            new = ast.Call(ast.Attribute(function.value, OPPOSITE[name], ast.Load()), node.args, node.keywords)
        else:
            new = ast.Call(ast.Name(OPPOSITE[name], ast.Load()), node.args, node.keywords)
        yield "extreme", f"{text(node)} -> {text(new)}", new
    if isinstance(function, ast.Attribute):
        on_module = isinstance(function.value, ast.Name) and function.value.id in ("torch", "F", "np")
        if name == "detach":
            yield "gradient", f"{text(node)} -> {text(function.value)}", function.value
        if name in ("clamp", "clip", "square") and not is_guard(node):
            inside = node.args[0] if on_module and node.args else function.value
            yield "dropped", f"{text(node)} -> {text(inside)}", inside
        if name == "where" and on_module and len(node.args) == 3:
            new = ast.Call(function, [node.args[0], node.args[2], node.args[1]], node.keywords)
            yield "branches", f"{text(node)} -> {text(new)}", new


def is_guard(node: ast.Call) -> bool:
    """Returns whether a clamp only avoids a division by zero: one constant bound."""
    bounds = [*node.args, *(one.value for one in node.keywords)]
    return len(bounds) == 1 and isinstance(bounds[0], ast.Constant)


def columns(node: ast.Attribute) -> Iterator[Site]:
    """Yields misread columns of the record."""
    if node.attr == "terminal":
        other = ast.Attribute(node.value, "truncated", ast.Load())
        yield "terminal", f"{text(node)} -> also truncated", ast.BinOp(node, ast.BitOr(), other)
    elif node.attr == "mask":
        yield "mask", f"{text(node)} -> every column", ast.BinOp(node, ast.BitOr(), ast.Constant(True))
    elif node.attr == "weight" and is_record(node.value):
        ones = ast.BinOp(ast.BinOp(node, ast.Mult(), ast.Constant(0)), ast.Add(), ast.Constant(1))
        yield "mask", f"{text(node)} -> every column", ones
    elif node.attr == "logp" and is_record(node.value):
        yield "old logp", f"{text(node)} -> 0", ast.BinOp(node, ast.Mult(), ast.Constant(0))
    elif node.attr in ("now", "after") and is_record(node.value):
        other = ast.Attribute(node.value, "after" if node.attr == "now" else "now", ast.Load())
        yield "time", f"{text(node)} -> {text(other)}", other


def shifted(node: ast.Subscript) -> Iterator[Site]:
    """Yields slices that are one step off in time."""
    index = node.slice
    pieces = list(index.elts) if isinstance(index, ast.Tuple) else [index]
    for place, piece in enumerate(pieces):
        new = other_slice(piece)
        if new is not None:
            parts: list[ast.expr] = [new if k == place else one for k, one in enumerate(pieces)]
            whole = ast.Tuple(parts, ast.Load()) if isinstance(index, ast.Tuple) else new
            told = ast.Subscript(node.value, whole, ast.Load())
            yield "time", f"{text(node)} -> {text(told)}", told


def other_slice(piece: ast.expr) -> ast.Slice | None:
    """Returns [:-1] for [1:] and [1:] for [:-1]; None for another slice."""
    if not isinstance(piece, ast.Slice) or piece.step is not None:
        return None
    if piece.upper is None and isinstance(piece.lower, ast.Constant) and piece.lower.value == 1:
        return ast.Slice(None, ast.UnaryOp(ast.USub(), ast.Constant(1)))
    if piece.lower is None and piece.upper is not None and ast.unparse(piece.upper) == "-1":
        return ast.Slice(ast.Constant(1))
    return None


def is_record(node: ast.expr) -> bool:
    """Returns whether an expression is recorded experience, by the name of the variable or property."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in RECORDS


def is_text(node: ast.expr) -> bool:
    """Returns whether an expression is a text constant."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def text(node: ast.AST) -> str:
    """Returns an expression as source text, shortened."""
    whole = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return whole if len(whole) <= 60 else f"{whole[:57]}..."
