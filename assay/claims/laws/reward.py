"""Laws of rewards: a user's function of rows, or a part. Axes: B sequences, T decisions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.laws.invariance import Measured, invariances, keeps_inputs
from assay.claims.laws.laws import (
    LOOSE,
    Contract,
    Finding,
    Unsuited,
    gap,
    is_finite,
    law,
    other_streams,
    raised,
    shown,
    suited,
)
from assay.claims.laws.state import continuing
from assay.core import calls
from assay.core.errors import AssayError
from assay.core.score_range import declared_range, is_inside
from assay.core.record import Experience, Need, Progress, Scored, State
from assay.core.settings import children
from assay.core.slots import DemonstratedTask, Scene
from assay.core.slots.scene import OnRows
from assay.rollouts import text
from assay.tasks.language.addition import addition
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.proxy_strings import proxy_strings
from assay.tasks.language.scratch import scratch

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


# ---------------------------------------------------------------------------------------------------- parts
class StandIn:
    """A model that a reward may ask for: critic and actor at once, a smooth function of each column's own numbers."""

    def __call__(self, context: Mapping[str, Tensor], action: Tensor | None = None) -> Tensor:
        """Values [B, T] of contexts, or [1, B, T] of actions in them."""
        seen = [column.double() for name, column in sorted(context.items()) if name != "valid"]
        value = sum((flat(column).cos() for column in seen), torch.zeros(()))
        return value.float() if action is None else (value + flat(action.double()).sin()).float().unsqueeze(0)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the decisions."""
        return Scored(-self(batch.context, batch.action)[0].exp() * batch.mask)


def flat(column: Tensor) -> Tensor:
    """[B, T] of a column [B, T, ...]."""
    return column if column.dim() == 2 else column.flatten(2).sum(-1)


class StandIns:
    """A stand-in for each model that a reward declares in `models`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def model(self, name: str) -> StandIn:
        """Returns a stand-in; AssayError if the reward did not declare the model."""
        if name not in self.names:
            raise AssayError(f"it asks for the model '{name}' and declares {', '.join(self.names) or 'none'}")
        return StandIn()

    def over(self, name: str, experience: Experience, function: OnRows) -> Tensor:
        """All rows at once."""
        with torch.no_grad():
            return function(self.model(name), experience)


@dataclass(frozen=True)
class RewardCase:
    """A task and experience of it, with a row that has left training; models are there for those that declare some."""

    name: str
    task: DemonstratedTask
    batch: Experience

    def rewarded(
        self, part: Any, batch: Experience | None = None, state: State | None = None, step: int = 0
    ) -> Experience:
        """Returns the experience after the reward, with the part's initial state if none is given."""
        scene = Scene(self.task, StandIns(part.models), progress=Progress(step, step + 1))
        after = part(self.batch if batch is None else batch, scene, state)
        if not isinstance(after, Experience):
            raise AssayError(
                f"a reward must return the experience with its rewards; this one returned {type(after).__name__}"
            )
        return after


def suitable_task(part: Any) -> DemonstratedTask:
    """Returns additions, or for a reward that refuses them answers with a mark, or strings with a rubric."""
    tasks: tuple[DemonstratedTask, ...] = (addition(1), scratch(), proxy_strings())
    found = suited(tasks, lambda task: part.init(Scene(task, StandIns(part.models))), "it refuses every task")
    return tasks[0] if isinstance(found[0], Unsuited) else found[0]


def reward_cases(part: Any, task: DemonstratedTask | None = None) -> list[RewardCase]:
    """Returns demonstrations, some of them corrupted, one of them an infrastructure fault; of the first of our tasks
    that the reward accepts, if none is given.
    """
    used = suitable_task(part) if task is None else task
    shown_rows = used.demonstrate(np.array([0, 1, 0, 2, 3, 4]), 0)
    mask = shown_rows.mask.clone()
    mask[4] = False
    action = shown_rows.action.clone()
    if not action.is_floating_point():
        for row in (1, 2):  # row 2 is the wrong one of two answers to one prompt
            action[row] = torch.where(mask[row], action[row].flip(0), action[row])
    batch = replace(shown_rows, mask=mask, action=action, reward=shown_rows.reward * mask)
    return [RewardCase(f"task {used.name}: right and wrong answers, one infrastructure fault", used, batch)]


@law("rewards are finite, one for each decision, and zero where the mask is false")
def rewards(part: Any, case: RewardCase) -> Iterator[str]:
    """The rest of the record is unchanged; a faulty row gets no reward."""
    after, batch = case.rewarded(part), case.batch
    if after.reward.shape != batch.mask.shape or not is_finite(after.reward):
        yield f"rewards have shape {tuple(after.reward.shape)} and are {shown(after.reward)}"
    elif bool((after.reward[~batch.mask] != 0).any()):
        yield f"rewards are {shown(after.reward[~batch.mask])} where the mask is false"
    if after.reward.dtype != batch.reward.dtype:
        yield f"rewards are {after.reward.dtype} in a record of {batch.reward.dtype}"
    for name in ("action", "logp", "terminal", "truncated"):
        if not torch.equal(getattr(after, name), getattr(batch, name)):
            yield f"it rewrites {name}"
    if bool((after.mask & ~batch.mask).any()):
        yield "it brings a row back that has left training"


@law("a row's reward does not depend on the other rows", is_certain)
def alone_in_batch(part: Any, case: RewardCase) -> Iterator[str]:
    """Each row alone; with `compares_group`, each group alone."""
    plain, batch = case.rewarded(part).reward, case.batch
    label = batch.group if compares_group(part) and batch.group is not None else torch.arange(len(batch))
    for one in label.unique():
        rows = (label == one).nonzero().squeeze(1)
        found = case.rewarded(part, batch.rows(rows)).reward
        if gap(found, plain[rows]) > LOOSE:
            yield f"rows {rows.tolist()} get {shown(found.sum(1))} alone and {shown(plain[rows].sum(1))} among others"


@law("the right answer beats a list of all candidates", of_rows)
def shotgun_of_text(part: Any, case: RewardCase) -> Iterator[str]:
    """Only where the task is text, and where the right answer beats each wrong one."""
    task = case.task
    if not isinstance(task, PromptTask):
        return
    item, encode, eos = task.items.item(0, 0), task.tokenizer.encode, task.tokenizer.vocabulary.eos

    def score(completions: list[str]) -> list[float]:
        prompt = [task.tokenizer.vocabulary.bos, *encode(item.prompt)]
        said = [[*encode(one), eos] for one in completions]
        start = torch.zeros(len(said), dtype=torch.int64)
        batch = text.written([prompt] * len(said), said, start, task.tokenizer.vocabulary.pad)
        totals: list[float] = case.rewarded(part, task.judge(batch, 0)).reward.sum(1).tolist()
        return totals

    yield from lists_win(score, item.answer, PLAIN_FORMS)


SAME = invariances(
    lambda part, case, batch: Measured({"the reward": case.rewarded(part, batch).reward}), LOOSE, is_certain
)
KEPT = keeps_inputs(lambda part, case, batch: case.rewarded(part, batch))
STATE = continuing(
    lambda part, case: part.init(Scene(case.task, StandIns(part.models))),
    lambda part, case, state, time: case.rewarded(part, state=state, step=STRIDE * time).reward,
)
LAWS = (rewards, SAME.repeats, KEPT, SAME.padding, SAME.permutation, alone_in_batch, shotgun_of_text, STATE.resumes)
REWARD = Contract("reward", LAWS, reward_cases)


def check_reward(part: Any, task: DemonstratedTask | None = None) -> list[Finding]:
    """Checks the laws of a reward: a part that inherits `Reward`, or a function of rows (or of completions)."""
    is_part = getattr(part, "slot", None) == "reward"
    return REWARD.check(part, reward_cases(part, task)) if is_part else REWARD_FUNCTION.check(RewardFunction(part))
