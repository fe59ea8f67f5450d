"""Own rewards: functions named by address, with weights, in place of a task's verifier."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from assay.core.calls import OwnCodeError, rewards_of, takes_columns
from assay.core.errors import AssayError
from assay.core.record import InfraFault, Outcome, Score
from assay.core.settings import numbered
from assay.core.slots import JudgeReader, Task
from assay.runs.user_code.addresses import Address, needed_address
from assay.runs.user_code.files import digests, place_of
from assay.runs.user_code.loading import is_public, load, value_of
from assay.runs.user_code.objects import is_given
from assay.runs.user_code.workers.process import Limits
from assay.runs.user_code.workers.remote import RemoteFunction, remote_function
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.scoring import Table

VERIFIER = "verifier"
"""The name of the task's own verifier as a reward."""


@dataclass(frozen=True)
class Named:
    """One `--reward`: an address (None for the task's verifier) and a weight."""

    address: Address | None
    weight: float = 1.0


def parsed_rewards(words: Sequence[str]) -> list[Named]:
    """Parses rewards of a command line: FILE.py:NAME, package.module:NAME or verifier, with =WEIGHT after it."""
    found = []
    for word in words:
        text, sign, number = word.rpartition("=")
        try:
            weight = float(number) if sign else 1.0
        except ValueError:
            raise AssayError(f"--reward {word}: the weight '{number}' is not a number. Write NAME=0.5.") from None
        if not math.isfinite(weight):
            raise AssayError(f"--reward {word}: the weight must be finite.")
        name = text if sign else word
        found.append(Named(None if name == VERIFIER else needed_address(name, "--reward"), weight))
    return found


def anchored_reward(word: str) -> str:
    """Returns a `--reward` with an absolute path."""
    (one,) = parsed_rewards([word])
    sign = f"={word.rpartition('=')[2]}" if "=" in word else ""
    return f"{VERIFIER if one.address is None else one.address}{sign}"


# ---------------------------------------------------------------------------------------------------- scoring
class Component(Protocol):
    """Something that gives each row a number, None where it does not apply, or a fault that leaves the row out."""

    def __call__(self, rows: Sequence[dict[str, Any]]) -> Sequence[float | InfraFault | None]:
        """Returns a value for each row."""


@dataclass(frozen=True)
class OwnFunction:
    """A user's function as a component; see `assay.core.calls` for what it takes and returns. With `remote` it is
    called in a worker process.
    """

    function: Callable[..., Any]
    name: str
    seconds: float = field(default=60.0, repr=False)
    remote: RemoteFunction | None = field(default=None, repr=False, compare=False)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> Sequence[float | None]:
        """Returns the function's numbers; OwnCodeError names it if it fails."""
        what = f"reward {self.name}"
        if self.remote is not None:
            return self.remote.rewards(rows, what, self.seconds)
        return rewards_of(self.function, rows, what, self.seconds)


def number_in(given: Outcome | float | None) -> float | None:
    """Returns what a component or a verifier gave as a number; None for a fault."""
    if given is None or isinstance(given, InfraFault):
        return None
    return given if isinstance(given, float | int) else given.value


@dataclass(frozen=True)
class OwnRewards:
    """Scores a completion by the weighted sum of components, in training and on held-out prompts.

        score = sum over components that apply of weight * component

    A component that is None does not apply to the row and is left out of its sum. OwnCodeError if none applies.
    A weight of 0 logs a component without training on it.
    """

    components: Mapping[str, Component]
    weights: Mapping[str, float]

    @property
    def scores(self) -> None:
        """No range: without a declared one a reward may be any number."""
        return None

    def __call__(
        self, rows: Sequence[dict[str, Any]], verified: Callable[[], Sequence[Outcome]]
    ) -> tuple[Sequence[Outcome], Table]:
        """Returns the score of each row and the numbers of the components."""
        found: dict[str, list[float | None]] = {}
        faults: dict[int, Outcome] = {}
        for name in self.weights:
            given: Sequence[Any] = self.components[name](rows) if name in self.components else verified()
            faults |= {place: one for place, one in enumerate(given) if isinstance(one, InfraFault)}
            found[name] = [number_in(one) for one in given]
        scores: list[Outcome] = [faults.get(row) or Score(self.total(found, row, rows)) for row in range(len(rows))]
        return scores, {name: [math.nan if one is None else one for one in values] for name, values in found.items()}

    def total(self, found: Mapping[str, Sequence[float | None]], row: int, rows: Sequence[dict[str, Any]]) -> float:
        """Returns the weighted sum of what applies to a row."""
        applying = {name: number for name, values in found.items() if (number := values[row]) is not None}
        if not applying:
            shown = str(rows[row].get("prompt", ""))[:80]
            raise OwnCodeError(
                f"no reward applies to row {row} (prompt {shown!a}): {', '.join(found)} returned None. Return a number "
                "from one of them"
            )
        return sum(self.weights[name] * number for name, number in applying.items())


def with_components(task: Task, components: Mapping[str, Component], weights: Mapping[str, float]) -> Task:
    """Returns a language task scored by these components; AssayError for other tasks."""
    if isinstance(task, JudgeReader):
        raise AssayError(f"--reward does not fit '{task.name}', a game that a judge labels. Use --judge FILE.py:NAME")
    if not isinstance(task, PromptTask | DialogueTask):
        raise AssayError(
            f"--reward scores completions; task '{task.name}' has none. Use a language task, or change the rewards of "
            "the environment itself (FILE.py:NAME with a gymnasium wrapper)."
        )
    before = task.scorer if isinstance(task.scorer, OwnRewards) else OwnRewards({}, {})
    both = OwnRewards({**before.components, **components}, {**before.weights, **weights})
    return replace(task, scorer=both)


def with_rewards(task: Task, words: Sequence[str], seconds: float, limits: Limits | None = None) -> Task:
    """Returns a language task with own reward functions in place of its verifier; with `limits`, they are called in
    worker processes.
    """
    chosen = parsed_rewards(words)
    functions = [None if one.address is None else function_of(one.address) for one in chosen]
    names = numbered([VERIFIER if one is None else one[0] for one in functions])
    if names.count(VERIFIER) < sum(one is None for one in functions):
        raise AssayError("--reward names the verifier twice. Name it once.")
    components = {}
    for name, one, found in zip(names, chosen, functions, strict=True):
        if one.address is not None and found is not None:
            remote = remote_function(one.address, found[0], limits)
            components[name] = OwnFunction(found[1], name, seconds, remote)
    return with_components(task, components, dict(zip(names, (one.weight for one in chosen), strict=True)))


def function_of(address: Address) -> tuple[str, Callable[..., Any]]:
    """Returns the name and the function of an address; of a file without a name, its only reward function.

    AssayError if it cannot be called, or is defined in a file whose digest would not be recorded.
    """
    if not address.name:
        found = {name: value for name, value in vars(load(address.source)).items() if is_reward(name, value, address)}
        if len(found) != 1:
            has = ", ".join(found) or "none"
            raise AssayError(f"{address.source} has these reward functions: {has}. Name one: FILE.py:NAME")
        return next(iter(found.items()))
    value = value_of(address)
    if not callable(value) or isinstance(value, type):
        raise AssayError(f"{address} is not a function: {value!r:.60}. A reward takes rows and returns numbers.")
    check_recorded(value, address)
    return address.name, value


def is_reward(name: str, value: Any, address: Address) -> bool:
    """Returns whether a value of a module is a reward function that the module defines."""
    if not inspect.isfunction(value) or not is_public(name, value):
        return False
    is_here = value.__module__ == load(address.source).__name__
    return is_here and (takes_columns(value) or next(iter(inspect.signature(value).parameters), "") == "rows")


def check_recorded(function: Callable[..., Any], address: Address) -> None:
    """Refuses a function that is defined in a file whose digest is not recorded; a given object has its own digest."""
    if is_given(address.source):
        return
    code = getattr(inspect.unwrap(function), "__code__", None)
    root, _ = place_of(address.source)
    if code is not None and code.co_filename not in {str(root / name) for name in digests(address.source)}:
        raise AssayError(
            f"{address} is defined in {code.co_filename}, which the run would not record. Define it in "
            f"{address.source}, or name it there."
        )
