"""The ranks of a run: processes that this one starts, or those of torchrun.

Rank 0 is the process of the command: it writes the folder, evaluates and prints. The others are told which run to open,
with its state, and then to take a step or to save their slices, until the run ends. All that they know is in the
checkpoints, so a run resumes on any number of ranks.
"""

from __future__ import annotations

import multiprocessing
import pickle
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from assay.core import store
from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Scene
from assay.engine.batch_shards import Ranks
from assay.engine.gathering import Gatherers
from assay.engine.gloo import CONNECT, Gloo, Order, RankLost, connected
from assay.engine.loop import Loop, freeze_states, thaw_states
from assay.engine.machine import repeatable, tuned
from assay.engine.torchrun import join_ranks, of_torchrun
from assay.runs.plan import Plan
from assay.runs.signals import STOPS, end_with
from assay.runs.user_code.loading import load

PATIENCE, HASTE = 10.0, 2.0
"""Seconds that a rank has to end after the run, and after a failure."""


@dataclass(frozen=True)
class Opening:
    """A run to open: own code to load first, the pickled plan, states of earlier phases, the state, and threads."""

    sources: tuple[str, ...]
    plan: bytes
    handed: Mapping[str, Any]
    state: State
    threads: int
    folder: Path | None = None
    lock: str = ""


@dataclass(frozen=True)
class Saving:
    """The other ranks are to write their slices of optimizer states beside the checkpoints of this folder."""

    folder: Path
    step: int


@dataclass(frozen=True)
class Child:
    """A rank that this process has started."""

    rank: int
    process: Any
    pipe: Connection


class Team:
    """The ranks of a run and of its phases; they are started when the first step is due."""

    def __init__(self, num: int) -> None:
        self.num = num
        self.children: list[Child] = []

    @cached_property
    def ranks(self) -> Gloo:
        """Rank 0 of the group. Starts the other ranks, or joins those of torchrun."""
        if (there := of_torchrun()) is not None:
            if there[1] != self.num:
                raise AssayError(f"ranks is {self.num}, but torchrun has started {there[1]} processes. Use that number")
            return join_ranks()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # torch is imported once for all ranks
        listener = socket.create_server(("127.0.0.1", 0))
        port, key = listener.getsockname()[1], secrets.token_bytes(32)
        for rank in range(1, self.num):
            ours, theirs = context.Pipe()
            process = context.Process(target=attend, args=(rank, self.num, port, key, theirs), name=f"rank {rank}")
            process.start()
            theirs.close()
            self.children.append(Child(rank, process, ours))
        self.await_start()
        ranks = connected(port, 0, self.num, listener, key=key)
        ranks.watch = self.watch
        return ranks

    def await_start(self) -> None:
        """Waits until every child is there; raises RankLost if one died or takes too long."""
        until = time.monotonic() + CONNECT.total_seconds()
        for child in self.children:
            if not child.pipe.poll(max(0.0, until - time.monotonic())):
                raise RankLost(f"rank {child.rank} did not start within {CONNECT.total_seconds():.0f} s")
            if said(child) is not True:
                raise RankLost(ending(child, None))

    def watch(self) -> None:
        """Raises RankLost if a child has failed or died; not for those that only saw another one end."""
        for child in [child for child in self.children if child.pipe.poll()]:
            answer = said(child)
            if answer is False:
                self.children.remove(child)  # it lost the connection to another rank, which is the one to name
                child.process.join(PATIENCE)
                child.pipe.close()
            else:
                raise RankLost(ending(child, answer))

    def lead(self, plan: Plan, loop: Loop, handed: Mapping[str, Any], folder: Path | None = None) -> None:
        """Opens the run on all ranks in the state of `loop`, which from now on steps with them; `folder` is the run's,
        which this process has locked.
        """
        try:
            sent = pickle.dumps(plan)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise AssayError(f"this run cannot be sent to other processes ({error}). Use --ranks 1") from error
        threads = torch.get_num_threads()
        where = None if folder is None else folder.resolve()
        lock = "" if where is None else store.holder(where)
        opening = Opening(tuple(plan.code), sent, handed, loop.snapshot(), threads, where, lock)
        self.ranks.told(lambda: opening)
        self.ranks.place(plan.placement.device)
        loop.engine.join(self.ranks, plan.recipe)
        if loop.gatherers is not None:
            loop.gatherers = Handed(self.ranks, loop.gatherers)

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        started = vars(self).get("ranks")
        if started is not None:
            if kind is None:
                with suppress(RankLost):
                    started.told(lambda: Order.END)
            started.close()
        for child in self.children:
            if kind is not None:
                child.pipe.close()  # the child ends at once
        until = time.monotonic() + (PATIENCE if kind is None else HASTE)
        for child in self.children:
            child.process.join(max(0.1, until - time.monotonic()))
            if child.process.is_alive():
                child.process.kill()
                child.process.join()
            child.pipe.close()


def said(child: Child) -> Any:
    """Returns what a child has sent: True (it is there), False (another rank ended), the text of its error; None if
    it died without a word.
    """
    try:
        return child.pipe.recv()
    except (EOFError, OSError):
        return None


def ending(child: Child, answer: Any) -> str:
    """Returns a sentence on a rank that has ended."""
    if isinstance(answer, str):
        return f"rank {child.rank} failed: {answer}"
    child.process.join(PATIENCE)
    code = child.process.exitcode
    cause = f"signal {-code}" if code and code < 0 else f"exit code {code}"
    return f"rank {child.rank} (process {child.process.pid}) died ({cause}): out of memory, or killed from outside"


# ---------------------------------------------------------------------------------------------------- other ranks
def attend(rank: int, num: int, port: int, key: bytes, parent: Connection) -> None:
    """Runs a child: follows rank 0 to the end, and ends at once when the pipe to it closes."""
    received = noted()
    parent.send(True)
    end_with(parent)
    with suppress(OSError):  # of the pipe: rank 0 has ended
        try:
            follow(connected(port, rank, num, key=key), received)
        except RankLost:
            parent.send(False)
        except Exception as error:
            known = isinstance(error, AssayError)
            parent.send(str(error) if known else f"{type(error).__name__}: {error}")
            if not known:
                raise


def noted() -> Callable[[], int]:
    """Catches stop signals, which rank 0 acts on; returns a function for the signal received, or 0."""
    received = [0]

    def note(number: int, frame: Any) -> None:
        received[0] = number

    for number in STOPS:
        signal.signal(number, note)
    return lambda: received[0]


def follow(ranks: Gloo, received: Callable[[], int]) -> None:
    """Opens the runs that rank 0 names and takes their steps, until it says that all is done.

    Stop signals are passed on to rank 0, which saves and then ends the run for all ranks.
    """
    ranks.received = received
    loop: Loop | None = None
    with ExitStack() as last, ExitStack() as threads:
        last.callback(ranks.close)
        while (order := ranks.told(lambda: Order.END)) is not Order.END:
            if isinstance(order, Opening):
                threads.close()
                loop = opened(order, ranks, threads)
            else:
                assert loop is not None, "a run is opened before its first step"
                if isinstance(order, Saving):
                    ranks.shared([store.save_slice(order.folder, order.step, slices_of(loop))])
                else:
                    loop.step()


def opened(order: Opening, ranks: Ranks, threads: ExitStack) -> Loop:
    """Returns the loop of a run in the state that rank 0 sent, and sets threads and kernels as they are there."""
    if order.folder is not None and store.holder(order.folder) != order.lock:
        raise AssayError(
            f"rank {ranks.rank} does not see the run folder {order.folder} of rank 0, into which it writes its part of "
            "a checkpoint. Use a folder that all machines share"
        )
    for source in order.sources:
        load(source)
    plan: Plan = pickle.loads(order.plan)
    ranks.place(plan.placement.device)
    threads.enter_context(repeatable(plan.placement.deterministic))
    loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=plan.placement)
    if order.handed:
        loop.begin(order.handed)
    loop.restore(order.state)
    loop.engine.join(ranks, plan.recipe)
    if plan.options.gathering.is_used:
        loop.gatherers = Handed(ranks)
    size = sum(flat.num_parameters for flat in loop.engine.flats.values())
    threads.enter_context(tuned(size, order.threads, bfloat16=loop.engine.bfloat16))
    return loop


class Handed(Gatherers):
    """The gatherers of rank 0, which hands their rows to all ranks."""

    def __init__(self, ranks: Ranks, own: Gatherers | None = None) -> None:
        self.ranks, self.own = ranks, own

    def __call__(self, scene: Scene, states: State) -> tuple[Experience, bool]:
        """Returns the rows on every rank, and brings metrics and the curriculum's state to that of rank 0."""

        def ask() -> tuple[Experience, bool, Any, State]:
            assert self.own is not None, "rank 0 has them"
            return (*self.own(scene, states), scene.metrics, freeze_states(states["curriculum"]))

        rows, is_rewarded, metrics, curriculum = self.ranks.told(ask)
        if self.ranks.rank:  # only rank 0 asks the curriculum, for steps that it hands out
            scene.metrics.update(metrics)
            states["curriculum"] = thaw_states(states["curriculum"], curriculum)
        return rows, is_rewarded

    def snapshot(self) -> State:
        """Returns the state of the gatherers; other ranks have none."""
        return {} if self.own is None else self.own.snapshot()

    def restore(self, state: State) -> None:
        """Resumes the gatherers, where they are."""
        if self.own is not None:
            self.own.restore(state)


# ---------------------------------------------------------------------------------------------------- checkpoints
def slices_of(loop: Loop) -> State:
    """Returns this rank's slices, as a part of the tree that a checkpoint holds."""
    return {"loop": {"engine": loop.engine.own_slices()}}


def written(loop: Loop, folder: Path) -> list[store.Slice]:
    """Returns the files into which all other ranks have written their slices; rank 0 calls it."""
    ranks = loop.engine.ranks
    if ranks.num == 1:
        return []
    ranks.told(lambda: Saving(folder.resolve(), loop.progress.step))
    return ranks.shared([])


# ---------------------------------------------------------------------------------------------------- torchrun
def followed(num: int | None) -> bool:
    """Follows rank 0 if torchrun has started this process as another one of several ranks; returns whether it did."""
    there = of_torchrun() if num and num > 1 else None
    if there is None or there[0] == 0:
        return False
    received = noted()
    follow(join_ranks(), received)
    return True
