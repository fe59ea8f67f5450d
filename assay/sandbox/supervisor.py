"""The process that starts boxes, watches over them and ends them: no box is a child of the process that trains.

It reads jobs and writes results as lines of JSON. It adopts what boxes leave behind (a child subreaper) and waits for
it, since a process that has ended still counts for its user. It ends when its input does, and all boxes with it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.sandbox import commands
from assay.sandbox.boxes import Box, Channel, started
from assay.sandbox.commands import OUTSIDE, Slot
from assay.sandbox.seccomp import filter_program
from assay.sandbox.values import Limits, ProgramFault, Result, SandboxFault, result_as_json

INTERVAL = 0.05
"""Seconds between two looks at what boxes use."""
SUBREAPER, PARENT_DEATH = 36, 1
MAX_SLOTS = 512
COMMANDS = {"bubblewrap": commands.bubblewrap, "gvisor": commands.gvisor, "unsafe": commands.unprotected}
MAX_LINE = 1 << 26
MAX_REQUEST = 1 << 20


def first_uid() -> int:
    """Returns the first user id of this process's slots, which no other supervisor has; 0 without the right to change
    ids.
    """
    if os.geteuid() != 0:
        return 0
    with open("/proc/self/uid_map", encoding="ascii") as file:
        most = max(int(line.split()[0]) + int(line.split()[2]) for line in file)
    room = min(most, 1 << 31) - 200_000
    if room < MAX_SLOTS:  # a container with few ids of its own
        return max(1, most - MAX_SLOTS - 1)
    return 200_000 + os.getpid() * MAX_SLOTS % (room - room % MAX_SLOTS)


@dataclass
class Work:
    """A job that runs: its boxes, of which the last one gives the result."""

    boxes: list[Box]
    key: Any
    is_session: bool = False


@dataclass
class Supervisor:
    """Runs jobs in at most `num_slots` boxes at a time, in the order in which they came."""

    kind: str
    num_slots: int
    without: commands.Without = frozenset()
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    waiting: deque[dict[str, Any]] = field(default_factory=deque)
    work: dict[int, Work] = field(default_factory=dict)
    owners: dict[int, Slot] = field(default_factory=dict)
    """Processes that must end before their slot is free."""
    buffer: bytearray = field(default_factory=bytearray)
    is_over: bool = False

    def __post_init__(self) -> None:
        first = first_uid() if self.kind == "bubblewrap" else 0
        several = range(max(2, self.num_slots))  # a job with two boxes would wait for ever for a second place
        self.free = [Slot(number, first and first + number) for number in several]
        has_filter = self.kind == "bubblewrap" and "seccomp" not in self.without
        self.filtered = filter_program() if has_filter else b""
        self.numbers = iter(range(1 << 62))

    # ------------------------------------------------------------------------------------------------ starting
    def begin(self, job: dict[str, Any]) -> None:
        """Starts the boxes of a job."""
        number, limits = next(self.numbers), Limits(**job["limits"])
        self.work[number] = Work([], job["id"], job["kind"] == "shell")
        inputs = job["inputs"]
        if job["kind"] == "assertions":
            (asks, asked), (answers, answered) = os.pipe(), os.pipe()
            self.start(number, limits, {"kind": "functions", "code": job["code"]}, talks=(asks, answered))
            task = {"kind": "tests", "setup": inputs["setup"], "tests": list(inputs["tests"])}
            self.start(number, limits, task, talks=(answers, asked))
        elif job["kind"] == "shell":
            (asks, asked), (answers, answered) = os.pipe(), os.pipe()
            box = self.start(number, limits, {"kind": "shell"}, talks=(asks, answered))
            os.set_blocking(answers, False)
            os.set_blocking(asked, False)  # a box that does not read must not hold the others
            fcntl.fcntl(asked, fcntl.F_SETPIPE_SZ, MAX_REQUEST)
            box.channels["answers"], box.requests = Channel(answers, MAX_LINE), asked
            self.selector.register(answers, selectors.EVENT_READ, (box, box.channels["answers"]))
            for request in job.get("requests", []):
                self.ask(box, request)
        elif job["kind"] == "calls":
            task = {"kind": "calls", "code": job["code"], "setup": inputs["setup"]}
            self.start(number, limits, {**task, "expressions": list(inputs["expressions"])})
        else:
            stdin = inputs["text"].encode("utf-8", "surrogatepass")
            self.start(number, limits, {"kind": "stdin", "code": job["code"]}, stdin=stdin)

    def start(self, number: int, limits: Limits, task: Mapping[str, Any], **given: Any) -> Box:
        """Starts one box."""
        slot = self.free.pop(0)
        environment = dict(os.environ) | OUTSIDE if "environment" in self.without else OUTSIDE

        def command(slot: Slot, limits: Limits, program: list[str]) -> list[str]:
            return COMMANDS[self.kind](slot, limits, program, self.without)

        try:
            box = started(number, slot, limits, task, command, filtered=self.filtered, environment=environment, **given)
        except OSError:
            self.free.append(slot)
            raise
        self.owners[box.pid] = slot
        self.work[number].boxes.append(box)
        for name in ("out", "err", "result"):
            self.selector.register(box.channels[name].descriptor, selectors.EVENT_READ, (box, box.channels[name]))
        return box

    def fill(self) -> None:
        """Starts waiting jobs while there are slots for them."""
        while self.waiting and len(self.free) >= 1 + (self.waiting[0]["kind"] == "assertions"):
            job = self.waiting.popleft()
            try:
                self.begin(job)
            except Exception as error:  # whatever is wrong with a job, the others go on
                self.say(job["id"], SandboxFault(f"a box could not be started: {type(error).__name__}: {error}"))

    # ------------------------------------------------------------------------------------------------ ending
    def reap(self) -> None:
        """Waits for every child that has ended, also for those of boxes that ended before them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            slot = self.owners.pop(pid, None)
            for box in [one for work in self.work.values() for one in work.boxes if one.pid == pid]:
                box.learn()
                box.read()
                box.status = status
                if box.inner and alive(box.inner):  # it is ending; its slot is free when it has
                    self.owners[box.inner] = box.slot
                    slot = None
            if slot is not None:
                self.free.append(slot)

    def finish(self) -> None:
        """Sends the results of jobs whose last box has ended, and ends their other boxes."""
        for number, work in list(self.work.items()):
            if not work.boxes:
                del self.work[number]
                continue
            last = work.boxes[-1]
            faulty = [one for one in work.boxes[:-1] if one.reason]
            if faulty:
                last.kill(faulty[0].reason)
            if last.status is not None:
                for other in work.boxes[:-1]:
                    other.kill()
            if any(one.status is None for one in work.boxes):
                continue
            result = judged(work.boxes)
            for box in work.boxes:
                self.forget(box)
            del self.work[number]
            self.say(work.key, result)

    def forget(self, box: Box) -> None:
        """Closes the channels of a box."""
        for channel in box.channels.values():
            if channel.descriptor in self.selector.get_map():
                self.selector.unregister(channel.descriptor)
            os.close(channel.descriptor)
        if box.requests >= 0:
            os.close(box.requests)

    def say(self, key: Any, result: Result | None, **more: Any) -> None:
        """Sends a result, or another message, to the parent."""
        told = {} if result is None else result_as_json(result)
        rest = memoryview(json.dumps({"id": key, **told, **more}).encode() + b"\n")
        while rest:
            rest = rest[os.write(1, rest) :]

    # ------------------------------------------------------------------------------------------------ the loop
    def hear(self) -> None:
        """Reads jobs, requests to sessions, and the end of the parent."""
        some = os.read(0, 1 << 16)
        self.is_over |= not some
        self.buffer += some
        while (end := self.buffer.find(b"\n")) >= 0:
            line, self.buffer = bytes(self.buffer[:end]), self.buffer[end + 1 :]
            job = json.loads(line)
            if "request" not in job:
                self.waiting.append(job)
                continue
            running = [work for work in self.work.values() if work.key == job["id"]]
            for work in running:
                self.ask(work.boxes[0], job["request"])
            for one in self.waiting:
                if not running and one["id"] == job["id"]:  # its box has not begun
                    one.setdefault("requests", []).append(job["request"])

    def ask(self, box: Box, request: Any) -> None:
        """Passes a request to a session, or ends it."""
        if request is None:
            box.kill("closed")
            return
        try:
            content = json.dumps(request).encode() + b"\n"
            while content:
                content = content[os.write(box.requests, content) :]
        except OSError:
            box.kill("crash")

    def answer(self, box: Box) -> None:
        """Passes the answers of a session on."""
        channel = box.channels["answers"]
        while (end := channel.content.find(b"\n")) >= 0:
            line = bytes(channel.content[:end])
            del channel.content[: end + 1]
            try:
                self.say(self.work[box.job].key, None, answer=json.loads(line))
            except (ValueError, RecursionError):
                box.kill("crash")

    def turn(self) -> None:
        """Waits for something to happen, at most until the next look at the boxes."""
        for key, _ in self.selector.select(INTERVAL):
            if key.data is None:
                self.hear()
            elif key.data == "signal":
                os.read(key.fd, 4096)
            else:
                box, channel = key.data
                box.read()
                if "answers" in box.channels:
                    self.answer(box)
                if channel.is_over:
                    box.kill("output")
                if channel.is_over or channel.is_ended:
                    self.selector.unregister(key.fd)

    def loop(self) -> None:
        """Runs until the parent has ended."""
        looked = 0.0
        while not self.is_over:
            self.fill()
            self.turn()
            self.reap()
            now = time.monotonic()
            if now - looked >= INTERVAL:
                looked = now
                for box in [one for work in self.work.values() for one in work.boxes]:
                    box.check(now)
            self.finish()
        for box in [one for work in self.work.values() for one in work.boxes]:
            box.kill("closed")


def judged(boxes: list[Box]) -> Result:
    """Returns the result of a job from its boxes: a fault of the sandbox first, then one of the program."""
    results = [box.ending() for box in boxes]
    broken = [one for one in results if isinstance(one, SandboxFault)]
    faults = [box.reason for box in boxes[:-1] if box.reason]
    if broken:
        return broken[0]
    return ProgramFault(faults[0]) if faults else results[-1]


def alive(pid: int) -> bool:
    """Returns whether a process id is that of a child of this process, which may have ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b") ")[2].split()[1]) == os.getpid()
    except OSError:
        return False


def main(kind: str, num_slots: int, without: Sequence[str] = ()) -> None:
    """Runs a supervisor on the standard input and output."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("a process cannot adopt what its children leave behind (prctl)")
    inner, outer = os.pipe()
    for one in (inner, outer):
        os.set_blocking(one, False)
    signal.set_wakeup_fd(outer)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a parent that has ended ends this process
    if "groups" in without and os.geteuid() == 0:
        os.setgroups([7])  # else there may be none to keep
    supervisor = Supervisor(kind, num_slots, frozenset(without))
    supervisor.selector.register(0, selectors.EVENT_READ, None)
    supervisor.selector.register(inner, selectors.EVENT_READ, "signal")
    supervisor.loop()
