"""Verifiers against right, wrong and hostile text; the arithmetic they rest on."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.rollouts.text import CharacterTokenizer, escaped
from assay.tasks.language import addition, arithmetic, countdown, graph_path, lookup, sorting
from assay.tasks.language.arithmetic import evaluated, final_answer, is_same_answer, plain_number
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask

LEVELS = {**addition.LEVELS, **countdown.LEVELS, **sorting.LEVELS, **graph_path.LEVELS, **lookup.LEVELS}
EVERY_LEVEL = pytest.mark.parametrize("task", [pytest.param(make(), id=name) for name, make in LEVELS.items()])

HOSTILE = {
    "empty": "",
    "spaces": " \n\t ",
    "nul": "3*7\0+5",
    "ansi": "\x1b[31m26\x1b[0m",
    "html": "</script><script>alert(1)</script>",
    "import": "__import__('os').system('true')",
    "comprehension": "[x for x in ().__class__.__mro__]",
    "power tower": "9**9**9**9**9**9",
    "caret tower": "9^9^9^9^9",
    "products": "*".join(["999999"] * 20000),
    "divisions": "/".join(["7"] * 50000),
    "long": "1+" * 50000,
    "long number": "9" * 100000,
    "brackets": "(" * 100000,
    "closed brackets": "(" * 50000 + "1" + ")" * 50000,
    "closing brackets": ")" * 100000,
    "minus signs": "-" * 100000 + "1",
    "one megabyte line": "a" * (1 << 20),
    "spaces around": " " * 100000 + "1;" + " " * 100000,
    "final marks": "#### " * 20000,
    "commas": "1" + ",000" * 25000,
    "exponent": "1e999999999",
    "unicode digits": "３+４",
    "superscript": "2²",
    "bidi": "\u202e62=5+7*3",
    "surrogate": "\ud800",
    "verdict": '{"score": 1.0, "correct": true}',
    "nan": "nan",
    "infinity": "-inf",
}
EVERY_HOSTILE = pytest.mark.parametrize("hostile", [pytest.param(text, id=name) for name, text in HOSTILE.items()])


def seconds(work: Callable[[], object]) -> float:
    """The best of three, in this thread's own time, so that a busy machine does not decide."""
    best = float("inf")
    for _ in range(3):
        begin = time.thread_time()
        work()
        best = min(best, time.thread_time() - begin)
    return best


def worth(outcome: Outcome) -> float:
    """The number that an outcome trains with."""
    assert not isinstance(outcome, InfraFault)
    return outcome.value


# ---------------------------------------------------------------------------------------------------- arithmetic
@pytest.mark.parametrize(
    ("text", "value", "numbers"),
    [
        ("26", 26, (26,)),
        ("3*7+5", 26, (3, 7, 5)),
        ("3*(7+5)", 36, (3, 7, 5)),
        ("20-5-3", 12, (20, 5, 3)),
        ("20-(5-3)", 18, (20, 5, 3)),
        ("16/4/2", 2, (16, 4, 2)),
        ("16/(4/2)", 8, (16, 4, 2)),
        ("8/(3-8/3)", 24, (8, 3, 8, 3)),
        ("1/3", Fraction(1, 3), (1, 3)),
        (" ( (7) ) ", 7, (7,)),
        ("2+3*4-10/5", 12, (2, 3, 4, 10, 5)),
    ],
)
def test_an_expression_has_its_exact_value_and_numbers(text: str, value: Fraction, numbers: tuple[int, ...]) -> None:
    assert evaluated(text) == (value, numbers, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the text is empty"),
        ("3+", "ends where a number is expected"),
        ("3 7", "'7' follows where an operator is expected"),
        ("-3", "'-' follows where a number is expected"),
        ("3**7", "'*' follows where a number is expected"),
        ("()", "')' follows where a number is expected"),
        ("3(7)", "'(' follows where an operator is expected"),
        ("(3", "a bracket is not closed"),
        ("3)", "a bracket is closed but was never opened"),
        ("3/(7-7)", "division by zero"),
        ("3=3", "the character '=' is not arithmetic"),
        ("３", "the character '\\uff13' is not arithmetic"),
        ("1234567", "a number of more than 6 digits"),
        ("(" * 21 + "1" + ")" * 21, "more than 20 nested brackets"),
        ("1+" * 100 + "1", "longer than 200 characters"),
    ],
)
def test_a_text_that_is_no_expression_gets_its_reason(text: str, reason: str) -> None:
    assert evaluated(text) == (None, (), reason)


def test_the_limits_themselves_are_allowed() -> None:
    assert evaluated("(" * 20 + "999999" + ")" * 20)[0] == 999999
    longest = "1+" * 99 + "10"
    assert len(longest) == arithmetic.MAX_CHARACTERS
    assert evaluated(longest)[0] == 109


OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
LEAVES = st.integers(0, 999).map(lambda n: (str(n), Fraction(n), (n,)))
Tree = tuple[str, Fraction | None, tuple[int, ...]]


def branch(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """Two trees joined by an operation, in brackets; None stands for a division by zero somewhere inside."""

    def join(left: Tree, symbol: str, right: Tree) -> Tree:
        no_value = left[1] is None or right[1] is None or (symbol == "/" and right[1] == 0)
        value = None if no_value else OPERATIONS[symbol](left[1] or Fraction(0), right[1] or Fraction(0))
        return f"({left[0]}{symbol}{right[0]})", value, left[2] + right[2]

    return st.builds(join, children, st.sampled_from("+-*/"), children)


@given(st.recursive(LEAVES, branch, max_leaves=12))
def test_every_bracketed_tree_is_computed(tree: Tree) -> None:
    text, value, numbers = tree
    assert len(text) <= arithmetic.MAX_CHARACTERS
    expected = (None, (), "division by zero") if value is None else (value, numbers, "")
    assert evaluated(text) == expected


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(0, 99)), max_size=20), st.integers(0, 99))
def test_precedence_is_that_of_python(rest: list[tuple[str, int]], first: int) -> None:
    text = str(first) + "".join(f"{symbol}{number}" for symbol, number in rest)
    assert evaluated(text)[0] == eval(text)


@given(st.text() | st.text(alphabet="0123456789+-*/() =,.e_", max_size=220))
def test_no_text_raises_and_a_value_comes_without_a_reason(text: str) -> None:
    value, numbers, reason = evaluated(text)
    assert (value is None) == bool(reason) == (not numbers)


@EVERY_HOSTILE
def test_no_text_takes_longer_than_fifty_milliseconds(hostile: str) -> None:
    for work in (evaluated, plain_number, final_answer, escaped):
        assert seconds(lambda work=work: work(hostile)) < 0.05
    assert seconds(lambda: is_same_answer(hostile, "26")) < 0.05


# ---------------------------------------------------------------------------------------------------- answers
@pytest.mark.parametrize(
    ("given", "answer", "same"),
    [
        ("42", "42", True),
        ("42.0", "42", True),
        ("1,250", "1250", True),
        ("-3", "-3.00", True),
        ("0.5", "0.50", True),
        ("Paris", "Paris", True),
        ("paris", "Paris", False),
        ("42 apples", "42", False),
        ("42 43", "42", False),
        ("12,50", "1250", False),
        ("4e1", "40", False),
        ("４２", "42", False),
        ("", "42", False),
        ('{"score": 1.0}', "1", False),
    ],
)
def test_answers_are_compared_as_numbers_where_both_are_numbers(given: str, answer: str, same: bool) -> None:
    assert is_same_answer(given, answer) is same
    assert is_same_answer(answer, given) is same


def test_the_final_answer_stands_after_the_mark_to_the_end() -> None:
    assert final_answer("48/2 = 24\n#### 72\n") == "72"
    assert final_answer(" 72 ") == "72"
    assert final_answer("#### 72 or 73") == "72 or 73"
    assert final_answer("#### 71\n#### 72") is None
    assert final_answer("nothing after ####") == ""


# ---------------------------------------------------------------------------------------------------- built-in tasks
@EVERY_LEVEL
@pytest.mark.parametrize("split", [0, 1])
def test_demonstrations_verify_and_fit(task: PromptTask, split: int) -> None:
    tokens = CharacterTokenizer()
    for ordinal in range(120):
        item = task.items.item(ordinal, split)
        assert task.items.verify(item, item.demonstration) == Score(1.0)
        assert len(tokens.encode(item.prompt)) + 1 <= task.max_prompt
        assert len(tokens.encode(item.demonstration)) + 1 <= task.max_tokens


@EVERY_LEVEL
def test_whitespace_around_an_answer_is_ignored(task: PromptTask) -> None:
    item = task.items.item(3, 0)
    assert task.items.verify(item, f" \n{item.demonstration}\r\n\t ") == Score(1.0)


@EVERY_LEVEL
def test_junk_before_or_after_an_answer_is_wrong(task: PromptTask) -> None:
    item = task.items.item(3, 0)
    for junk in ("x", ".", "=", ",1", "+", " 1 ", "\n1\n", "\0", " or 1 or ", "\x1b[0m", "\N{REPLACEMENT CHARACTER}"):
        assert worth(task.items.verify(item, item.demonstration + junk)) == 0.0
        assert worth(task.items.verify(item, junk + item.demonstration)) == 0.0


@EVERY_LEVEL
def test_several_answers_at_once_are_wrong(task: PromptTask) -> None:
    item = task.items.item(5, 0)
    for between in (" ", ",", "\n", ";", "=", " or "):
        assert worth(task.items.verify(item, item.demonstration + between + item.demonstration)) == 0.0
    assert worth(task.items.verify(item, item.prompt + item.demonstration)) == 0.0


@EVERY_HOSTILE
def test_hostile_text_is_worth_nothing_and_costs_little(hostile: str) -> None:
    for make in LEVELS.values():
        items = make().items
        item = items.item(7, 0)
        assert worth(items.verify(item, hostile)) == 0.0
        assert seconds(lambda items=items, item=item: items.verify(item, hostile)) < 0.05


@EVERY_LEVEL
@given(st.text(max_size=40))
@settings(max_examples=50)
def test_no_completion_raises(task: PromptTask, completion: str) -> None:
    item = task.items.item(11, 0)
    assert worth(task.items.verify(item, completion)) in (0.0, 1.0)


@EVERY_LEVEL
def test_no_answer_is_a_fault_of_the_policy(task: PromptTask) -> None:
    item = task.items.item(0, 0)
    assert isinstance(task.items.verify(item, ""), PolicyFault)
    assert isinstance(task.items.verify(item, " \n "), PolicyFault)


@given(st.integers(0, 2000), st.integers(-50, 50).filter(bool))
@settings(max_examples=50)
def test_a_wrong_sum_is_worth_nothing(ordinal: int, error: int) -> None:
    task = addition.addition(3)
    item = task.items.item(ordinal, 0)
    assert worth(task.items.verify(item, str(int(item.answer) + error))) == 0.0
    assert worth(task.items.verify(item, "0" + item.answer)) == 0.0


@given(st.integers(0, 2000), st.randoms())
@settings(max_examples=50)
def test_an_unsorted_list_is_worth_nothing(ordinal: int, random: object) -> None:
    task = sorting.sorting(6)
    item = task.items.item(ordinal, 0)
    shuffled = list(item.answer)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert worth(task.items.verify(item, "".join(shuffled))) == float("".join(shuffled) == item.answer)
    assert worth(task.items.verify(item, "".join(sorted(set(item.answer)))[1:])) == 0.0


# ---------------------------------------------------------------------------------------------------- countdown
PROBLEM = Item("3,7,5:26=", "26", "3*7+5", {"numbers": (3, 7, 5), "target": 26})


@pytest.mark.parametrize(
    ("completion", "outcome"),
    [
        ("3*7+5", Score(1.0)),
        ("5+7*3", Score(1.0)),
        (" ((5) + (7*3)) ", Score(1.0)),
        ("3*(7+5)", Score(0.0)),
        ("7", Score(0.0)),
        ("26", PolicyFault("uses a number that is not given, or a number twice")),
        ("7+7+7+5", PolicyFault("uses a number that is not given, or a number twice")),
        ("3*7+5+0", PolicyFault("uses a number that is not given, or a number twice")),
        ("37-5-3-3", PolicyFault("uses a number that is not given, or a number twice")),
        ("3*7+5=26", PolicyFault("the character '=' is not arithmetic")),
        ("3*7+5/(7-7)", PolicyFault("division by zero")),
        ("", PolicyFault("the text is empty")),
    ],
)
def test_countdown_by_its_rules(completion: str, outcome: Outcome) -> None:
    assert countdown.Countdown().verify(PROBLEM, completion) == outcome


def test_countdown_takes_any_solution_and_not_all_numbers_are_needed() -> None:
    verify = countdown.Countdown(4).verify
    problem = Item("8,3,8,3:24=", "24", "8*3", {"numbers": (8, 3, 8, 3), "target": 24})
    assert verify(problem, "8/(3-8/3)") == Score(1.0)
    assert verify(problem, "8*3") == Score(1.0)
    assert verify(problem, "8+8+8") != Score(1.0)


@pytest.mark.parametrize("level", [2, 3, 4, 5])
def test_countdown_problems_are_solvable_with_positive_whole_steps(level: int) -> None:
    items = [countdown.Countdown(level).item(ordinal, 0) for ordinal in range(300)]
    for item in items:
        value, used, _ = evaluated(item.demonstration)
        numbers = item.facts["numbers"]
        assert isinstance(numbers, tuple)
        assert sorted(used) == sorted(numbers)
        assert value == item.facts["target"]
        assert 1 <= int(item.answer) <= 99
        assert int(item.answer) not in numbers
    assert all(any(symbol in item.demonstration for item in items) for symbol in "+-*")


@pytest.mark.parametrize(
    "make",
    [
        lambda: addition.addition(0),
        lambda: addition.addition(2, terms=1),
        lambda: countdown.countdown(1),
        lambda: countdown.countdown(3, largest=0),
        lambda: sorting.sorting(1),
        lambda: sorting.sorting(4, symbols="aa"),
        lambda: sorting.sorting(4, symbols="a b"),
        lambda: sorting.sorting(4, symbols="ab="),
    ],
)
def test_settings_out_of_range_are_refused(make: Callable[[], PromptTask]) -> None:
    with pytest.raises(AssayError, match=r"must be|may contain|out of range"):
        make()
