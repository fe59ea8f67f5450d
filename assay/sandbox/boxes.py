"""One running box: its process, its channels, and what its processes use."""

from __future__ import annotations

import fcntl
import json
import marshal
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.sandbox.commands import OUTSIDE, SECCOMP, STATUS, Slot, interpreter
from assay.sandbox.values import Completed, Limits, ProgramFault, Result, SandboxFault

START_SECONDS = 60.0
"""Time in which a box must have begun; after it the machine is at fault."""
INSIDE = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
READY = b"!"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SEALS = 0x0002 | 0x0004 | 0x0008  # shrink, grow, write
ADD_SEALS = 1033
Command = Callable[[Slot, Limits, list[str]], list[str]]


def sealed(content: bytes, name: str) -> int:
    """Returns a descriptor of a file in memory, at its beginning, that can no longer be changed."""
    descriptor = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    write_all(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, ADD_SEALS, SEALS)
    return descriptor


def write_all(descriptor: int, content: bytes) -> None:
    """Writes all bytes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@dataclass
class Channel:
    """A pipe from a box: what it has sent so far, at most `limit` bytes."""

    descriptor: int
    limit: int
    content: bytearray = field(default_factory=bytearray)
    is_ended: bool = False
    is_over: bool = False

    def read(self) -> None:
        """Reads what is there; beyond the limit nothing is kept."""
        while not self.is_ended and not self.is_over:
            try:
                some = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                return
            room = self.limit - len(self.content)
            self.is_ended, self.is_over = not some, len(some) > room
            self.content += some[:room]


@dataclass
class Box:
    """One box. `reason` is why the supervisor has ended it."""

    job: int
    slot: Slot
    limits: Limits
    pid: int
    channels: dict[str, Channel]
    began: float
    role: str
    ready: float = 0.0
    inner: int = 0
    status: int | None = None
    reason: str = ""
    requests: int = -1
    is_killed: bool = False

    def kill(self, reason: str = "") -> None:
        """Ends all processes of the box."""
        self.reason = self.reason or reason
        if not self.is_killed and self.status is None:
            self.is_killed = True
            self.learn()
            if self.inner and self.role != "unsafe":
                signalled(self.inner)
            signalled(self.pid)

    def learn(self) -> None:
        """Reads the process id of the box's first process from what bubblewrap says."""
        channel = self.channels.get("status")
        if channel is None or self.inner:
            return
        channel.read()
        for line in bytes(channel.content).splitlines():
            try:
                self.inner = int(json.loads(line).get("child-pid", self.inner))
            except ValueError:
                return

    def usage(self) -> tuple[float, int]:
        """Returns the processor seconds and the bytes of memory of all processes of the box."""
        self.learn()
        seconds, size, waiting = 0.0, 0, [self.inner or self.pid]
        while waiting:
            pid = waiting.pop()
            try:
                numbers = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
                seconds += sum(map(int, numbers[11:15])) / TICKS
                size += int(numbers[21]) * PAGE
                for task in os.listdir(f"/proc/{pid}/task"):
                    waiting += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
            except OSError:
                continue  # a process that has just ended
        return seconds, size

    def check(self, now: float) -> None:
        """Ends the box if it has used more than its limits."""
        if self.status is not None or self.is_killed:
            return
        if not self.ready:
            if now - self.began > START_SECONDS:
                self.kill("start")
            return
        seconds, size = self.usage()
        if now - self.ready > self.limits.seconds or seconds > self.limits.cpu_seconds:
            self.kill("timeout")
        elif size > self.limits.memory:
            self.kill("memory")

    def read(self) -> None:
        """Reads all channels, and notes the moment at which the box has begun."""
        for channel in self.channels.values():
            channel.read()
        if not self.ready and self.channels["result"].content[:1] == READY:
            self.ready = time.monotonic()

    def ending(self) -> Result:
        """Returns what became of an ended box."""
        output, errors = (bytes(self.channels[name].content).decode("utf-8", "replace") for name in ("out", "err"))
        tail = errors[-500:]
        if not self.ready:
            return SandboxFault(f"a box did not begin: {tail.strip()[-200:] or self.reason or self.status}")
        if any(channel.is_over for channel in self.channels.values()):
            return ProgramFault("output", tail)
        if self.reason:
            return ProgramFault(self.reason, tail)
        status = os.waitstatus_to_exitcode(self.status or 0)
        code = status - 128 if status > 128 else -status if status < 0 else 0
        if code:
            kinds = {signal.SIGXCPU: "timeout", signal.SIGXFSZ: "disk"}
            return ProgramFault(kinds.get(code, "crash"), tail)  # type: ignore[call-overload]
        seconds = time.monotonic() - self.ready
        if self.role == "stdin":
            return Completed((), output, tail, status, seconds)
        values = decode_values(bytes(self.channels["result"].content[1:]))
        return ProgramFault("crash", tail) if values is None else Completed(values, output, tail, status, seconds)


def signalled(pid: int) -> bool:
    """Kills a process; returns whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def decode_values(content: bytes) -> tuple[Any, ...] | None:
    """Returns the list that a box has sent; None if it sent anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return tuple(found) if isinstance(found, list) else None


def pipe(limit: int) -> tuple[Channel, int]:
    """Returns this process's end of a pipe to read, and the other end."""
    mine, other = os.pipe()
    os.set_blocking(mine, False)
    return Channel(mine, limit), other


def started(
    job: int,
    slot: Slot,
    limits: Limits,
    task: Mapping[str, Any],
    command: Command,
    *,
    stdin: bytes = b"",
    filtered: bytes = b"",
    talks: tuple[int, int] | None = None,
    environment: Mapping[str, str] = OUTSIDE,
) -> Box:
    """Starts a box with a task; `talks` are the descriptors of requests and answers."""
    python, path = interpreter()
    given = {0: sealed(stdin, "stdin"), 3: sealed(marshal.dumps({**task, "path": path}, 2), "task")}
    channels: dict[str, Channel] = {}
    for name, number in {"out": 1, "err": 2, "result": 4, "status": STATUS}.items():
        channels[name], given[number] = pipe(limits.output if number != STATUS else 4096)
    if filtered:
        given[SECCOMP] = sealed(filtered, "filter")  # a descriptor that was read once is at its end
    if talks is not None:
        given[5], given[6] = talks
    words = command(slot, limits, [python, "-s", "-S", "-B", "-c", INSIDE])
    high = {number: fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 64) for number, one in given.items()}
    for one in given.values():
        os.close(one)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, one, number) for number, one in high.items()]
        pid = os.posix_spawn(
            words[0], words, dict(environment), file_actions=actions, setsigmask=(), setsigdef=[signal.SIGPIPE]
        )
    finally:
        for one in high.values():
            os.close(one)
    return Box(job, slot, limits, pid, channels, time.monotonic(), task["kind"])
