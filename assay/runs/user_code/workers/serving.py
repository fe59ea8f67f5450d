"""The worker process: loads own code, runs the calls that it is sent, and answers each of them.

Functions that take all rows at once (rewards, judges) run one after another in the main thread, where a function may
use signals; calls of tools run side by side, and each object has a thread of its own, as connections to databases need.
What is async runs in one event loop.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import json
import os
import pickle
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

from assay.core.calls import OwnCodeError, awaited, rewards_of, unwanted
from assay.core.errors import AssayError
from assay.core.exits import LEAVE, kept_alive
from assay.core.faults import at_place, own_fault
from assay.runs.user_code.files import digests
from assay.runs.user_code.loading import load
from assay.runs.user_code.workers.frames import OBJECTS, answer_bytes, framed, plain, read_frame

AT_ONCE = 256
"""Calls of functions that run side by side."""
OWN, ASSAY, RAISED = "own", "assay", "raised"
"""Kinds of errors: of a user's code with the whole sentence, of Assay, and any other, by its type and text."""


@dataclass(frozen=True)
class Request:
    """One call: what kind of work, on which source (with the digests that the trainer loaded), the object it is for (0
    for none), whether it has the main thread, and its pickled arguments.
    """

    number: int
    kind: str
    source: str
    files: dict[str, str]
    target: int
    alone: bool
    arguments: bytes


class Room:
    """What lives in a worker: the objects of users' classes, and the threads that run calls."""

    def __init__(self, answers: int) -> None:
        self.answers, self.writing = answers, threading.Lock()
        self.pid = os.getpid()
        self.alone: queue.Queue[Request | None] = queue.Queue()
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.threads: dict[int, ThreadPoolExecutor] = {}
        self.objects: dict[int, Any] = {}
        self.modules: dict[str, dict[str, Any]] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self.starting = threading.Lock()

    def read(self, requests: int) -> None:
        """Hands out requests until their end; then the process ends, whatever still runs in it."""
        try:
            while True:
                request: Request = pickle.loads(read_frame(requests))
                if request.kind == "ping":
                    self.send({"id": request.number, "value": None})
                elif request.kind == "drop":
                    self.objects.pop(request.target, None)
                    if (thread := self.threads.pop(request.target, None)) is not None:
                        thread.shutdown(wait=False)
                elif request.alone:
                    self.alone.put(request)
                else:
                    self.pool_of(request.target).submit(self.answer, request)
        except (EOFError, OSError):
            LEAVE(0)

    def pool_of(self, target: int) -> ThreadPoolExecutor:
        """Returns the thread of an object, or the threads of functions."""
        return self.threads.setdefault(target, ThreadPoolExecutor(1)) if target else self.pool

    def work(self) -> None:
        """Runs the calls that have the main thread."""
        while True:
            request = self.alone.get()
            assert request is not None
            self.answer(request)

    def send(self, answer: dict[str, Any]) -> None:
        """Sends one answer. A process that a function has forked, and that came back here, ends instead."""
        if os.getpid() != self.pid:
            LEAVE(0)
        sent = memoryview(framed(answer_bytes(answer)))
        with self.writing:
            while sent:
                sent = sent[os.write(self.answers, sent) :]

    # ------------------------------------------------------------------------------------------------ calls
    def answer(self, request: Request) -> None:
        """Runs one call and sends its value, or its error."""
        try:
            with kept_alive():
                value = self.value(request)
            self.send({"id": request.number, "value": value})
        except BaseException as error:  # whatever it is, the trainer must hear of it
            self.send({"id": request.number, "error": describe_error(error)})

    def value(self, request: Request) -> Any:
        """Returns what a call gives, ready to be sent; tells first that its time begins."""
        if request.kind != "load":
            given = pickle.loads(request.arguments)  # after own code was loaded, whose classes it may need
            self.send({"id": request.number, "begun": True})
        if request.kind == "load":
            self.modules[request.source] = loaded(request.source, request.files)
            return None
        if request.kind == "rewards":
            return self.rewards(request, *given)
        if request.kind == "texts":
            return self.texts(request, *given)
        if request.kind == "make":
            name, positional, named = given
            made = self.settled(self.modules[request.source][name](*positional, **named))
            self.objects[request.target] = made
            return members(made)
        if request.kind == "get":
            return plain(getattr(self.objects[request.target], *given))
        name, positional, named, as_text = given
        if request.kind == "method":
            function = getattr(self.objects[request.target], name)
        else:
            function = self.modules[request.source][name]
        found = self.settled(function(*positional, **named))
        if as_text is not None and type(found).__name__ not in OBJECTS:
            return (found if isinstance(found, str) else json.dumps(found, default=str, ensure_ascii=False))[:as_text]
        return plain(found)

    def rewards(self, request: Request, name: str, rows: Sequence[dict[str, Any]], what: str) -> list[float | None]:
        """Returns a reward function's numbers. An exception is told before the row is looked for that raises it: that
        takes as many calls as there are rows.
        """

        is_told = False

        def calling(seconds: float, call: Callable[[], Any], what: str) -> Any:
            try:
                value = call()
                return asyncio.run(awaited(value)) if inspect.isawaitable(value) else value
            except Exception as error:
                nonlocal is_told
                if not is_told and not isinstance(error, AssayError):
                    is_told = True
                    text = f"{what} raised {type(error).__name__}: {error}{at_place(error)}{limits_told(error)}"
                    self.send({"id": request.number, "first": {**describe_error(error), "text": text, "kind": OWN}})
                raise
            except BaseException as error:
                raise unwanted(error, what) from error

        return rewards_of(self.modules[request.source][name], rows, what, calling=calling)

    def texts(self, request: Request, name: str, prompts: list[str]) -> list[Any]:
        """Returns a judge's answers to prompts."""
        return [plain(one) for one in self.settled(self.modules[request.source][name](prompts))]

    def settled(self, value: Any) -> Any:
        """Returns the value of what can be awaited, in the loop that all such calls share."""
        if not inspect.isawaitable(value):
            return value
        with self.starting:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                threading.Thread(target=self.loop.run_forever, daemon=True).start()
        found: Future[Any] = asyncio.run_coroutine_threadsafe(awaited(value), self.loop)
        return found.result()


def loaded(source: str, files: dict[str, str]) -> dict[str, Any]:
    """Returns the names in own code after loading it; AssayError if its files are not those that the trainer loaded."""
    if files and (now := digests(source)) != files:
        changed = [name for name in sorted({*files, *now}) if files.get(name) != now.get(name)]
        raise OwnCodeError(f"own code has changed while the run uses it: {', '.join(changed[:3])} of {source}")
    return vars(load(source))


def members(made: Any) -> dict[str, Any]:
    """Returns the public methods of an object, each with name, kind and need of its arguments; None where Python does
    not know them.
    """
    methods: dict[str, list[tuple[str, int, bool]] | None] = {}
    for name in dir(made):
        is_property = isinstance(inspect.getattr_static(made, name, None), property | cached_property)
        if name.startswith("_") or is_property or not callable(value := getattr(made, name)):
            continue  # a property is not read before it is asked for
        try:
            asked = inspect.signature(value).parameters.values()
            methods[name] = [(one.name, int(one.kind), one.default is one.empty) for one in asked]
        except (TypeError, ValueError):
            methods[name] = None
    return {"methods": methods}


def describe_error(error: BaseException) -> dict[str, Any]:
    """Returns an exception as it is sent: its sentence or text, its kind, and its place in own code."""
    if not isinstance(error, Exception):
        error = unwanted(error, "it")
    kind = OWN if isinstance(error, OwnCodeError) else ASSAY if isinstance(error, AssayError) else RAISED
    fault = own_fault(error)
    return {
        "text": f"{error}{limits_told(error.__cause__ if isinstance(error, OwnCodeError) else error)}",
        "kind": kind,
        "name": type(error).__name__,
        "fault": None if fault is None else list(astuple(fault)),
        "traceback": "".join(traceback.format_exception(error))[-100_000:],
    }


def limits_told(error: BaseException | None) -> str:
    """Returns the limit that an error is about, or ""."""
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return " (--worker-file limits the size of a file)"
    return ""


def serve(requests: int, answers: int) -> None:
    """Serves the requests of a descriptor until it ends."""
    room = Room(answers)
    threading.Thread(target=room.read, args=(requests,), daemon=True).start()
    room.work()
