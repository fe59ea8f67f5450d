"""Installs a changed function for a while: every caller sees it, whatever name it was imported under.

Only the code object of the function is exchanged, so classes, closures, defaults and references stay as they are.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

from assay.core.errors import AssayError

STAND_IN = "assay_mutant_stand_in"
"""The global name under which a replaced function finds its replacement."""


def raw(value: Any) -> FunctionType | None:
    """Returns the function behind a method, property or decorated function; None if there is no Python function."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    elif isinstance(value, classmethod | staticmethod):
        value = value.__func__
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Returns the syntax tree of a function with the line numbers of its file."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    ast.increment_lineno(tree, first - 1)
    return tree


def compiled(function: FunctionType, tree: ast.FunctionDef) -> CodeType | None:
    """Returns the code of a changed tree; None if it cannot replace the function's (other captured variables)."""
    tree.decorator_list = []
    free = function.__code__.co_freevars
    names = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in free]
    outer = ast.parse("def outer(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [*names, tree]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    future = function.__code__.co_flags & 0x1000000  # `from __future__ import annotations`
    code: Any = compile(module, function.__code__.co_filename, "exec", flags=future, dont_inherit=True)
    for name in ("outer", tree.name):
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    return code if code.co_freevars == free else None


@contextmanager
def installed(function: FunctionType, code: CodeType) -> Iterator[None]:
    """Runs the function with other code inside the block."""
    old = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = old


@contextmanager
def replaced(function: FunctionType, change: Callable[[Any, tuple[Any, ...]], Any]) -> Iterator[None]:
    """Makes the function return `change(result, positional arguments)` instead of its result inside the block."""
    own = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    own.__kwdefaults__ = function.__kwdefaults__
    free = function.__code__.co_freevars
    head = "".join(f"    {name} = None\n" for name in free)
    body = f"def outer():\n{head}    def stand_in(*args, **settings):\n        {', '.join(free) or 'pass'}\n"
    code: Any = compile(f"{body}        return {STAND_IN}[0](*args, **settings)\n", "<mutant>", "exec")
    for name in ("outer", "stand_in"):
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    stack = function.__globals__.setdefault(STAND_IN, [])
    stack.insert(0, lambda *args, **settings: change(own(*args, **settings), args))
    try:
        with installed(function, code):
            yield
    finally:
        stack.pop(0)


def edited(function: Any, old: str, new: str) -> tuple[FunctionType, CodeType]:
    """Returns a function and its code with one piece of source text replaced; AssayError unless it occurs once."""
    plain = raw(function)
    if plain is None:
        raise AssayError(f"{function} is not a Python function, so it cannot be edited")
    source = textwrap.dedent(inspect.getsource(plain))
    if source.count(old) != 1:
        raise AssayError(
            f"'{old}' occurs {source.count(old)} times in {plain.__qualname__}. Give text that occurs once"
        )
    tree = ast.parse(source.replace(old, new)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    code = compiled(plain, tree)
    if code is None:
        raise AssayError(f"the edit of {plain.__qualname__} adds or removes a captured variable")
    return plain, code
