"""Parses arithmetic and answers written by a model: computed exactly, compared as values, never executed.

    expression = product (("+" | "-") product)*
    product    = atom (("*" | "/") atom)*
    atom       = digits | "(" expression ")"

Limits are checked before any work is done, so that every text costs at most a fraction of a millisecond.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from assay.core.record import Outcome, PolicyFault, Score

MAX_CHARACTERS = 200
MAX_DEPTH = 20
MAX_DIGITS = 6
WHITESPACE = " \t\r\n"
FINAL = "####"

DIGITS = "0123456789"
OPEN, CLOSE = "(", ")"
TOKEN = re.compile(r"[0-9]+|[^0-9 ]")
NUMBER = re.compile(r"[-+]?([0-9]{1,3}(,[0-9]{3})+|[0-9]+)(\.[0-9]+)?")
STATED = re.compile(r"((?<![\w.)])-)?(?<![\d.])([0-9]{1,3}(,[0-9]{3})+(?![0-9])|[0-9]+)(\.[0-9]+)?")
OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: Fraction(left) / right,
}
RANKS: Mapping[str, int] = {OPEN: 0, CLOSE: 1, "+": 1, "-": 1, "*": 2, "/": 2}


def evaluated(text: str) -> tuple[Fraction | None, tuple[int, ...], str]:
    """Returns (value, numbers in their order, "") of an expression, or (None, (), reason) if the text is not one.

    Exact rationals; spaces separate and mean nothing else; a number is ASCII digits, without a sign of its own.
    At most 200 characters, 20 open brackets and 6 digits a number. Division by zero has no value. Never raises.
    """
    if len(text) > MAX_CHARACTERS:
        return None, (), f"longer than {MAX_CHARACTERS} characters"
    tokens = TOKEN.findall(text)
    mistake = first_mistake(tokens)
    if mistake:
        return None, (), mistake
    try:
        value = value_of(tokens)
    except ZeroDivisionError:
        return None, (), "division by zero"
    return value, tuple(int(token) for token in tokens if token[0] in DIGITS), ""


def first_mistake(tokens: Sequence[str]) -> str:
    """Returns why these tokens are not an expression, or "" if they are."""
    depth, needs_number = 0, True
    for token in tokens:
        starts = token == OPEN or token[0] in DIGITS
        if not starts and token not in RANKS:
            return f"the character {token!a} is not arithmetic"
        if len(token) > MAX_DIGITS:
            return f"a number of more than {MAX_DIGITS} digits"
        if starts != needs_number:
            return f"'{token}' follows where {'a number' if needs_number else 'an operator'} is expected"
        depth += (token == OPEN) - (token == CLOSE)
        if depth < 0:
            return "a bracket is closed but was never opened"
        if depth > MAX_DEPTH:
            return f"more than {MAX_DEPTH} nested brackets"
        needs_number = token == OPEN or token in OPERATORS
    if needs_number:
        return "ends where a number is expected" if tokens else "the text is empty"
    return "a bracket is not closed" if depth else ""


def value_of(tokens: Sequence[str]) -> Fraction:
    """Computes a well-formed expression with two stacks (Dijkstra's shunting yard); equal ranks go left to right.

    Raises ZeroDivisionError if the expression divides by zero.
    """
    values: list[int | Fraction] = []
    pending: list[str] = []
    for token in (OPEN, *tokens, CLOSE):
        if token[0] in DIGITS:
            values.append(int(token))
            continue
        while token != OPEN and RANKS[pending[-1]] >= RANKS[token]:
            right, left = values.pop(), values.pop()
            values.append(OPERATORS[pending.pop()](left, right))
        if token == CLOSE:
            pending.pop()
        else:
            pending.append(token)
    return Fraction(values[0])


def plain_number(text: str) -> Fraction | None:
    """Returns the number that the whole text is: "-3", "1,250", "0.50"; None for other text or over 40 characters.

    No exponents: "1e999999999" is text.
    """
    if len(text) > 40 or NUMBER.fullmatch(text) is None:
        return None
    return Fraction(text.replace(",", ""))


def final_answer(text: str) -> str | None:
    """Returns the text after "####", or the whole text if that mark is missing, stripped of whitespace.

    Returns None if the mark occurs more than once: several final answers do not count.
    """
    parts = text.split(FINAL, 2)
    return None if len(parts) > 2 else parts[-1].strip(WHITESPACE)


def is_same_answer(given: str, answer: str) -> bool:
    """Returns whether two answers are equal as text, or as numbers if both are plain: "1,250.0" is "1250"."""
    if given == answer:
        return True
    number = plain_number(given)
    return number is not None and number == plain_number(answer)


def stated_numbers(text: str) -> list[str]:
    """Returns the plain numbers in the last 400 characters: "so she makes $1,250." states 1,250.

    A sign counts if no digit, letter or bracket precedes it: "5-3" states 5 and 3, "is -3" states -3.
    """
    return [match[0] for match in STATED.finditer(text[-400:])]


def exact_match(answer: str, completion: str) -> Outcome:
    """Returns 1 for the answer and nothing else, 0 otherwise; ignores whitespace before and after, but not inside."""
    given = completion.strip(WHITESPACE)
    return Score(float(given == answer)) if given else PolicyFault("no answer")


def match_after(mark: str, answer: str, completion: str) -> Outcome:
    """Returns 1 for the answer after the only mark, 0 for all else."""
    parts = completion.split(mark)
    return exact_match(answer, parts[1]) if len(parts) == 2 else PolicyFault(f"{len(parts) - 1} marks")
