"""Functions and objects of own code that live in worker processes.

    call = RemoteFunction(source, name, files)              a value: it can be copied, pickled and compared
    call.rewards(rows, "reward mine", 60.0)                 one number or None for each row; one call for all rows
    call.text({"query": "cats"}, "tool search", 30.0)       what a tool returns, as text
    thing = RemoteClass(source, name, files)(seed=3)        an object in a worker, where it stays
    thing.step("go north")                                  its methods; `max_turns` and other attributes too

A call that gives no answer (its time, its memory, the end of its process) raises `assay.core.calls.Unanswered`; an
exception of the user's code is raised here with the same type and text.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from assay.core.calls import OwnCodeError, Unanswered
from assay.core.faults import STAMP
from assay.runs.user_code.addresses import Address
from assay.runs.user_code.loading import load
from assay.runs.user_code.objects import is_given
from assay.runs.user_code.workers.crew import current
from assay.runs.user_code.workers.process import Limits, Lost, Worker

NUMBERS = count(1)
"""Numbers of the objects of this process."""


@dataclass(frozen=True)
class RemoteFunction:
    """A function of own code that is called in worker processes. `files` are the digests of the code as it was loaded:
    a worker that finds other files refuses them.
    """

    source: str
    name: str
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits = field(default_factory=Limits, repr=False)
    seconds: float = field(default=30.0, repr=False)

    def rewards(self, rows: Sequence[Mapping[str, Any]], what: str, seconds: float) -> list[float | None]:
        """Returns a reward function's numbers; OwnCodeError for every failure, that of its process included."""
        if not rows:
            return []
        found: list[float | None] = self.alone("rewards", (self.name, list(rows), what), what, seconds)
        return found

    def texts(self, prompts: Sequence[str], what: str, seconds: float) -> list[Any]:
        """Returns what a judge's function returns for prompts; OwnCodeError if its process fails."""
        found: list[Any] = self.alone("texts", (self.name, list(prompts)), what, seconds)
        return found

    def alone(self, kind: str, given: tuple[Any, ...], what: str, seconds: float) -> Any:
        """Returns the answer of the worker whose calls run one after another."""
        worker = current().for_rows(self.source, self.limits)
        try:
            return worker.ask(kind, self.source, self.files, given, what, seconds, alone=True)
        except Unanswered as error:
            raise OwnCodeError(str(error)) from None

    def __call__(self, **arguments: Any) -> Any:
        """Returns the result of a tool as text, or the fault that it returned, within `seconds`."""
        return self.text(arguments, f"tool {self.name}", self.seconds)

    def text(self, arguments: Mapping[str, Any], what: str, seconds: float, most: int = 1 << 20) -> Any:
        """Returns the result of a call with these arguments as text, at most so many characters of it; a fault as it
        is.
        """
        worker = current().for_calls(self.source, self.limits)
        given = (self.name, (), dict(arguments), most)
        return worker.ask("call", self.source, self.files, given, what, seconds)


@dataclass(frozen=True)
class RemoteClass:
    """A class of own code, or a function that makes objects, whose objects live in worker processes. A call of it makes
    one; `seconds` is the limit of that and of each call of a method.
    """

    source: str
    name: str
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits = field(default_factory=Limits, repr=False)
    seconds: float = field(default=30.0, repr=False)

    def __call__(self, *positional: Any, **named: Any) -> RemoteObject:
        """Makes an object in the least busy worker."""
        worker, target = current().for_calls(self.source, self.limits), next(NUMBERS)
        worker.objects.add(target)
        given = (self.name, positional, named)
        try:
            found = worker.ask("make", self.source, self.files, given, self.name, self.seconds, target=target)
        except BaseException:
            worker.drop(target)
            raise
        return RemoteObject(self, worker, target, found["methods"])


class RemoteObject:
    """An object in a worker. Its methods are called there, each object in a thread of its own; other public attributes
    are asked for. One whose call overran, or whose worker ended, answers no more.
    """

    def __init__(self, made_by: RemoteClass, worker: Worker, target: int, methods: Mapping[str, Any]) -> None:
        self._made_by, self._worker, self._target, self._methods = made_by, worker, target, methods
        self._is_lost = False
        self._free = weakref.finalize(self, worker.drop, target)

    def __getattr__(self, name: str) -> Any:
        """Returns a method with the arguments that it has in the worker, or the present value of an attribute."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._methods:
            return RemoteMethod(self, name, signature_of(self._methods[name]))
        return self.asked("get", (name,), name)

    def asked(self, kind: str, given: tuple[Any, ...], name: str) -> Any:
        """Returns an answer of the worker."""
        made_by, what = self._made_by, f"{self._made_by.name}.{name}"
        if self._is_lost:
            raise Lost(f"{what} belongs to an object that has not answered before")
        try:
            return self._worker.ask(
                kind, made_by.source, made_by.files, given, what, made_by.seconds, target=self._target
            )
        except Unanswered:
            self._is_lost = True
            raise

    def release(self) -> None:
        """Frees the object in its worker."""
        self._is_lost = True
        self._free()


@dataclass(frozen=True, eq=False)
class RemoteMethod:
    """A method of an object in a worker; it returns texts, numbers, lists, tuples, mappings, outcomes and replies."""

    of: RemoteObject
    name: str
    __signature__: inspect.Signature | None = None

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Calls it in the object's thread."""
        return self.of.asked("method", (self.name, positional, named, None), self.name)


def signature_of(told: Sequence[Sequence[Any]] | None) -> inspect.Signature | None:
    """Returns the signature that a worker has told of; defaults are not sent, and are None here."""
    if told is None:
        return None
    kinds = list(inspect._ParameterKind)
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(name, kinds[kind], default=empty if needed or "VAR" in kinds[kind].name else None)
            for name, kind, needed in told
        ]
    )


# ---------------------------------------------------------------------------------------------------- by address
def remote_function(address: Address, name: str, limits: Limits | None, seconds: float = 30.0) -> RemoteFunction | None:
    """Returns the function of an address in worker processes; None without limits (`--in-process`), and for an object
    given in Python, which no other process can find.
    """
    if limits is None or is_given(address.source):
        return None
    return RemoteFunction(address.source, name, vars(load(address.source))[STAMP]["files"], limits, seconds)


def remote_class(address: Address, limits: Limits | None, seconds: float) -> RemoteClass | None:
    """Returns the class of an address in worker processes; None as `remote_function` does."""
    if limits is None or is_given(address.source):
        return None
    files = vars(load(address.source))[STAMP]["files"]
    return RemoteClass(address.source, address.name, files, limits, seconds)
