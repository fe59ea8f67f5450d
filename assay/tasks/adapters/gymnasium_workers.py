"""Environments in processes of their own: a crash costs one process and is a sentence. Axes: N instances.

Every process holds the instances of one block as an `Instances`, so numbers, seeds and snapshots are those of a single
process, bitwise. On Linux processes are forked, so that environments of any kind can be made in them; they use numpy
alone.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.slots.simulations import Answers
from assay.core.spaces import Context, Spec
from assay.tasks.adapters.gymnasium_instances import Instances, answered, raised, reset_answer
from assay.tasks.adapters.gymnasium_masks import Reader, find_reader
from assay.tasks.adapters.gymnasium_spaces import Port

LOOK_UP = 5.0
"""Seconds after which a waiting process looks whether its parent is still there."""
FIX = "Fix the environment"
LONGEST = 900.0
"""Seconds that a call may take: an environment that needs longer for a step hangs."""
LEAVE = 2.0
"""Seconds that a process has to end before it is killed."""


class Held:
    """What a process holds: the environments of its block."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.instances: Instances | None = None

    def facts(self, read: Callable[[Any], Any]) -> Any:
        """Makes one environment, returns what `read` finds in it, and closes it."""
        try:
            environment = self.make()
        except AssayError:
            raise
        except Exception as error:
            raise AssayError(f"{raised('making it', error)}. {FIX}") from error
        found = read(environment)
        try:
            environment.close()
        except Exception as error:
            raise AssayError(f"{raised('close()', error)}. {FIX}") from error
        return found

    def begin(self, spec: Spec, port: Port, num: int, first: int) -> None:
        """Makes the instances of a block."""
        self.instances = Instances(self.make, spec, port, num, first)

    def mask_reader(self) -> Reader | None:
        """Returns where the environments report action masks; None if nowhere."""
        environment = self.block.environment(0)
        return find_reader(environment, *reset_answer(environment.reset(seed=0)))

    def reset(self, seeds: np.ndarray) -> dict[str, np.ndarray]:
        """Starts every instance."""
        return arrays(self.block.reset(seeds))

    def step(self, rows: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Takes one decision of every instance."""
        results = self.block.stepped(rows)
        return results, arrays(self.block.context())

    def snapshot(self) -> State:
        """Returns the snapshot of the block."""
        return arrays(self.block.snapshot())

    def restore(self, state: State) -> None:
        """Continues from the snapshot of the block."""
        self.block.restore(tensors(state))

    @property
    def block(self) -> Instances:
        """Returns the instances, which `begin` made."""
        assert self.instances is not None
        return self.instances


def arrays(value: Any) -> Any:
    """Returns a tree with arrays for tensors: they pass between processes as bytes."""
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, list):
        return [arrays(one) for one in value]
    return {name: arrays(one) for name, one in value.items()}


def tensors(value: Any) -> Any:
    """Returns a tree with tensors for arrays."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, list):
        return [tensors(one) for one in value]
    return {name: tensors(one) for name, one in value.items()}


def serve(pipe: Any, make: Callable[[], Any], parent: int) -> None:
    """Answers calls until the parent is gone; what a call raises is the answer, as a sentence."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends the processes
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.disable()  # the parent reports a crash in one sentence
    held = Held(make)
    while True:
        while not pipe.poll(LOOK_UP):
            if os.getppid() != parent:
                return
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, getattr(held, name)(*arguments)
        except AssayError as error:
            answer = False, str(error)
        except (Exception, SystemExit) as error:
            answer = False, f"{raised('the environment', error)}. {FIX}"
        pipe.send(answer)


class Process:
    """A process that holds environments; `who` names it in messages."""

    def __init__(self, who: str, make: Callable[[], Any]) -> None:
        forks = sys.platform == "linux"
        context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        self.who, self.called = who, "start"
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, make, os.getpid()), daemon=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads: see the module's text
                self.process.start()
        except (AttributeError, TypeError, OSError, AssertionError) as error:  # not picklable, or a daemon's child
            raise AssayError(f"{who} could not be started ({error}). Use --env-workers 0") from error
        theirs.close()
        weakref.finalize(self, end, self.pipe, self.process)

    def send(self, name: str, *arguments: Any) -> None:
        """Calls a function of `Held` in the process."""
        self.called = name
        try:
            self.pipe.send((name, arguments))
        except OSError:
            raise AssayError(self.death()) from None

    def answer(self, seconds: float = LONGEST) -> Any:
        """Returns the answer; AssayError if the call raised, the process died, or `seconds` have passed."""
        try:
            if not self.pipe.poll(seconds):
                self.process.kill()
                what = f"{self.who} did not answer within {seconds:g} s in {self.called}()"
                raise AssayError(f"{what}. Look for an endless loop")
            good, answer = self.pipe.recv()
        except (EOFError, OSError):
            raise AssayError(self.death()) from None
        if not good:
            raise AssayError(answer)
        return answer

    def call(self, name: str, *arguments: Any, seconds: float = LONGEST) -> Any:
        """Sends a call and waits for its answer."""
        self.send(name, *arguments)
        return self.answer(seconds)

    def death(self) -> str:
        """Returns how the process ended."""
        self.process.join(LEAVE)
        code = self.process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exited ({code})"
        return f"{self.who} {how} in {self.called}(). {FIX}, or resume from the last checkpoint"


def end(pipe: Any, process: Any) -> None:
    """Ends a process that is no longer needed."""
    pipe.close()
    process.join(0.0)
    if process.is_alive():
        process.terminate()
        process.join(LEAVE)


class Workers:
    """N environments in `num_workers` processes, in blocks; the same numbers as `Instances`, bitwise."""

    def __init__(self, make: Callable[[], Any], spec: Spec, port: Port, num: int, num_workers: int) -> None:
        self.spec, self.port, self.num = spec, port, num
        self.blocks = [block for block in np.array_split(np.arange(num), num_workers) if len(block)]
        self.processes = []
        for place, block in enumerate(self.blocks):
            who = f"task '{port.name}': worker {place} (instances {block[0]} to {block[-1]})"
            self.processes.append(Process(who, make))
        for process, block in zip(self.processes, self.blocks, strict=True):
            process.send("begin", spec, port, len(block), int(block[0]))
        for process in self.processes:
            process.answer()

    def each(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Calls a function in all processes at once and returns their answers in order."""
        for process, some in zip(self.processes, arguments, strict=True):
            process.send(name, *some)
        return [process.answer() for process in self.processes]

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        return join_contexts(self.each("reset", [(np.asarray(seeds)[block],) for block in self.blocks]))

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Takes one decision of every instance."""
        if len(action) != self.num:
            raise AssayError(f"{len(action)} actions for {self.num} instances. Give one action each")
        rows = action.detach().cpu().numpy()
        answers = self.each("step", [(rows[block],) for block in self.blocks])
        results = np.concatenate([result for result, _ in answers], 1)
        return join_contexts([seen for _, seen in answers]), *answered(results, self.spec.num_costs)

    def snapshot(self) -> State:
        """Returns the snapshot that `Instances` would return."""
        states = self.each("snapshot", [()] * len(self.blocks))
        ordered = join_contexts([{name: one[name] for name in ("seeds", "episode")} for one in states])
        taken = [torch.from_numpy(rows) for one in states for rows in one["taken"]]
        return {**ordered, "taken": taken, "seen": dict(join_contexts([one["seen"] for one in states]))}

    def restore(self, state: State) -> None:
        """Continues from a snapshot, of `Instances` or of any number of workers."""
        if len(state["seeds"]) != self.num:
            raise AssayError(
                f"the snapshot has {len(state['seeds'])} instances, the simulation {self.num}. Simulate as many"
            )
        whole = arrays(state)
        parts = []
        for block in self.blocks:
            some = {name: whole[name][block] for name in ("seeds", "episode")}
            seen = {name: column[block] for name, column in whole["seen"].items()}
            parts.append(({**some, "taken": [whole["taken"][row] for row in block], "seen": seen},))
        self.each("restore", parts)


class ReadyWorkers(Workers):
    """Workers that are stepped apart: `ready` of them are waited for and sent on together, first come.

    The instances of a worker are stepped together. Numbers, seeds and snapshots are those of `Workers`, bitwise.
    """

    def __init__(self, make: Callable[[], Any], spec: Spec, port: Port, num: int, num_workers: int, ready: int) -> None:
        super().__init__(make, spec, port, num, num_workers)
        self.ready, self.flying = ready, dict[Any, int]()
        self.place = {int(row): place for place, block in enumerate(self.blocks) for row in block}

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The instances of `ready` workers at a time."""
        firsts = range(0, len(self.blocks), self.ready)
        return [np.concatenate(self.blocks[first : first + self.ready]) for first in firsts]

    def send(self, rows: np.ndarray, action: Tensor) -> None:
        """Steps whole blocks."""
        chosen = action.detach().cpu().numpy()
        for place in sorted({self.place[int(row)] for row in rows}):
            mine = np.searchsorted(rows, self.blocks[place])
            process = self.processes[place]
            process.send("step", chosen[mine])
            self.flying[process.pipe] = place

    def receive(self) -> Answers:
        """Waits for `ready` workers, or for all that are in flight; returns their instances, ascending."""
        places, until = list[int](), time.monotonic() + LONGEST
        while len(places) < min(self.ready, len(places) + len(self.flying)):
            left = until - time.monotonic()
            for pipe in wait(list(self.flying), max(0.0, left))[: self.ready - len(places)]:
                places.append(self.flying.pop(pipe))
            if left < 0 and self.flying:
                self.processes[next(iter(self.flying.values()))].answer(0.0)  # names the worker
        places.sort()
        answers = [self.processes[place].answer() for place in places]
        results = np.concatenate([result for result, _ in answers], 1)
        rows = np.concatenate([self.blocks[place] for place in places])
        return rows, join_contexts([seen for _, seen in answers]), *answered(results, self.spec.num_costs)


def join_contexts(contexts: Sequence[dict[str, np.ndarray]]) -> Context:
    """Returns the context of all blocks."""
    return {name: torch.from_numpy(np.concatenate([one[name] for one in contexts])) for name in contexts[0]}
