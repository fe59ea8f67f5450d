"""Laws of a user's reward function of rows."""

from __future__ import annotations
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
import torch
from assay.claims.laws.laws import (
    LOOSE,
    Contract,
    gap,
    law,
    other_streams,
    raised,
)
from assay.core import calls
from assay.core.score_range import declared_range, is_inside
from assay.core.settings import children

Rows = Sequence[Mapping[str, Any]]
HOSTILE = ("", " ", "\n\n", "\x00", "12" * 500, "∑ 数 🙂", "nan", "1e999", "((((((((", "</s>", "-0", "None")


FORMS = ("{}", "#### {}", "<answer>{}</answer>", "the answer is {}.", "The answer is {}.", "\\boxed{{{}}}")
"""How a completion may state its answer."""
PLAIN_FORMS = FORMS[:4]
"""Those that the tokenizer of the small tasks can write."""
STRIDE = 4
"""Steps of a run between those at which a reward with a state is tried: it may change something every ten."""


def is_certain(part: Any) -> bool:
    """Returns whether the reward does not declare chance."""
    return not getattr(part, "stochastic", False)


def compares_group(part: Any) -> bool:
    """Returns whether the reward, or a part inside it, declares that it compares the rows of a group."""
    own = bool(getattr(part, "compares_group", False))
    return own or any(compares_group(below) for _, below in children(part))


def of_rows(part: Any) -> bool:
    """Returns whether the reward declares neither chance nor that it compares the rows of a group."""
    return is_certain(part) and not compares_group(part)


def lists_win(
    score: Callable[[list[str]], Sequence[float]], answer: str, forms: Sequence[str] = FORMS
) -> Iterator[str]:
    """Yields a list of all candidates that scores no less than the right answer alone. Only forms in which the right
    answer beats every wrong one count: a reward of length, format or style does not judge answers."""
    others = [str(int(answer) + step) for step in (-3, -2, -1, 1, 2, 3, 4)]
    candidates = [*others[:3], answer, *others[3:]]
    for form in forms:
        lists = [" ".join(form.format(one) for one in candidates), form.format(", ".join(candidates))]
        found = score([form.format(one) for one in (answer, *others)] + lists)
        right, wrong, listed = found[0], max(found[1:-2]), max(found[-2:])
        if right > wrong and listed >= right:
            said = lists[list(found[-2:]).index(listed)]
            yield f"'{form.format(answer)}' gets {right:g} and '{said}' gets {listed:g}"


# ---------------------------------------------------------------------------------------------------- functions
@dataclass(frozen=True)
class RowsCase:
    """Descriptions of sequences, as a reward function gets them."""

    name: str
    rows: Rows


def text_row(completion: str, prompt: str = "1+2=", answer: str = "3") -> dict[str, Any]:
    """Returns one completion, as a prompt task describes it."""
    return {"prompt": prompt, "completion": completion, "answer": answer, "reward": 0.0, "cut": False, "fault": None}


def control_row(total: float, length: int) -> dict[str, Any]:
    """Returns one episode, as a stepping task describes it."""
    return {
        "return": total,
        "length": length,
        "ending": ["terminal"],
        "actions": [0, 1, 0],
        "rewards": [0.0, 0.0, total],
    }


TEXT_CASES = (
    RowsCase(
        "four completions, two of them the same",
        [text_row("3"), text_row("4"), text_row("3"), text_row("30", "10+20=", "30")],
    ),
    RowsCase("one completion", [text_row("3")]),
    RowsCase("unexpected completions: empty, huge, not ASCII, special tokens", [text_row(text) for text in HOSTILE]),
)
CONTROL_CASES = (
    RowsCase(
        "three episodes, two of them the same", [control_row(10.0, 10), control_row(-3.5, 4), control_row(10.0, 10)]
    ),
    RowsCase("one episode", [control_row(0.0, 1)]),
)


@dataclass(frozen=True, eq=False)
class RewardFunction:
    """A plain function as a reward: of `rows`, or of columns (see `assay.core.calls`), called as a run calls it.

    A column that is not known here stands for the answer. A None counts as 0.
    """

    function: Callable[..., Any]

    @property
    def stochastic(self) -> bool:
        """Returns the function's attribute."""
        return bool(getattr(self.function, "stochastic", False))

    @property
    def compares_group(self) -> bool:
        """Returns the function's attribute: it compares the completions of one prompt."""
        return bool(getattr(self.function, "compares_group", False))

    @property
    def breaks(self) -> Mapping[str, str]:
        """Returns the function's attribute."""
        return getattr(self.function, "breaks", {})

    def __call__(self, rows: Rows) -> list[float]:
        """Returns the function's numbers; refuses anything but one finite number or None per row."""
        if calls.takes_columns(self.function):
            names = [one.name for one in calls.named_arguments(self.function) if one.default is one.empty]
            known = {*rows[0], *calls.PLURALS} if rows else set()
            missing = [name for name in names if name not in known]
            rows = [{**dict.fromkeys(missing, row["answer"]), **row} for row in rows]
        return [0.0 if number is None else number for number in calls.rewards_of(self.function, rows, "it")]


def rows_cases(part: RewardFunction) -> Sequence[RowsCase]:
    """Returns texts, or control episodes if the function takes what texts lack; both if it takes both."""
    if calls.takes_columns(part.function):
        return TEXT_CASES
    try:
        calls.called(part.function, copy.deepcopy(CONTROL_CASES[1].rows))
    except (Exception, SystemExit):
        return TEXT_CASES
    try:
        calls.called(part.function, copy.deepcopy(TEXT_CASES[1].rows))
    except KeyError:
        return CONTROL_CASES
    except (Exception, SystemExit) as error:
        return TEXT_CASES if raised(error) else ()
    return (*TEXT_CASES, *CONTROL_CASES)


@law("it returns one finite number for each row")
def numbers(part: RewardFunction, case: RowsCase) -> Iterator[str]:
    """Or None where it does not apply; no text, no nan, no single number for all; whatever the text is. A function with
    an attribute `range` stays inside of it.
    """
    values, bounds = part(copy.deepcopy(case.rows)), declared_range(part.function, "it")
    for place, value in enumerate(values):
        if bounds is not None and not is_inside(value, bounds):
            yield f"row {place} got {value:g}, outside of its range {bounds[0]:g} to {bounds[1]:g}"


@law("the same rows get the same rewards", is_certain)
def same_again(part: RewardFunction, case: RowsCase) -> Iterator[str]:
    """Two calls, with the global random streams at different places; and equal rows within one call."""
    with other_streams(1):
        first = part(copy.deepcopy(case.rows))
    with other_streams(2):
        second = part(copy.deepcopy(case.rows))
    if first != second:
        yield f"two calls gave {first[:4]} and {second[:4]}; declare `stochastic = True` if chance is meant"
    for one, row in enumerate(case.rows):
        twins = [other for other in range(one) if case.rows[other] == row and first[other] != first[one]]
        yield from (f"rows {other} and {one} are equal and got {first[other]:g} and {first[one]:g}" for other in twins)


@law("permuting rows permutes the rewards", is_certain)
def order(part: RewardFunction, case: RowsCase) -> Iterator[str]:
    """Rows in reverse order."""
    plain, other = part(copy.deepcopy(case.rows)), part(copy.deepcopy(list(reversed(case.rows))))
    if other != plain[::-1]:
        yield f"rewards {plain[:4]} become {other[::-1][:4]} when the rows come in reverse order"


@law("rows are not modified")
def rows_kept(part: RewardFunction, case: RowsCase) -> Iterator[str]:
    """It may read them and no more."""
    rows = copy.deepcopy(case.rows)
    part(rows)
    if rows != case.rows:
        yield "it changed the rows that it was given"


@law("a row's reward does not depend on the other rows", is_certain)
def alone(part: RewardFunction, case: RowsCase) -> Iterator[str]:
    """Each row alone; with `compares_group`, the rows of each prompt alone."""
    whole = part(copy.deepcopy(case.rows))
    label = [row.get("prompt") if part.compares_group else place for place, row in enumerate(case.rows)]
    for one in dict.fromkeys(label):
        places = [place for place, other in enumerate(label) if other == one]
        found = part(copy.deepcopy([case.rows[place] for place in places]))
        if gap(torch.tensor(found), torch.tensor([whole[place] for place in places])) > LOOSE:
            yield (
                f"rows {places} get {found[:4]} alone and {[whole[place] for place in places][:4]} among others; "
                "declare `compares_group = True` if completions of one prompt are compared"
            )


@law("the right answer beats a list of all candidates", of_rows)
def shotgun(part: RewardFunction, case: RowsCase) -> Iterator[str]:
    """Only where the right answer beats each wrong one."""
    for row in case.rows[:1] if "answer" in case.rows[0] else ():

        def score(completions: list[str], row: Mapping[str, Any] = row) -> list[float]:
            return part([{**row, "completion": one} for one in completions])

        yield from lists_win(score, row["answer"])


REWARD_FUNCTION = Contract("reward function", (numbers, same_again, order, rows_kept, alone, shotgun), rows_cases)
