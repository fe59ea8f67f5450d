"""Calls that run side by side on threads of their own: a bounded number at once, and none can stop the program.

A call that never returns keeps its thread; once it is abandoned another thread takes its place, and the program ends
without it. What a call returns may be awaitable: all of these run on one event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from assay.core.exits import kept_alive

IDLE = 30.0
"""Seconds after which a thread without work ends."""


class PendingCall:
    """One call: when it began and ended (0 before that), and its value or its error. `followers` begin after it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work, self.is_abandoned = work, False
        self.begun, self.ended = 0.0, 0.0
        self.value: Any = None
        self.error: BaseException | None = None
        self.followers: list[PendingCall] = []

    @property
    def seconds(self) -> float:
        """Returns how long the call has taken so far; 0 before it begins."""
        return (self.ended or time.monotonic()) - self.begun if self.begun else 0.0

    def run(self) -> None:
        """Runs the call; an exception, SystemExit included, is kept."""
        try:
            with kept_alive():
                self.value = settled(self.work())
        except BaseException as error:  # a user's code may raise anything: the thread must not end without a word
            self.error = error


class Calls:
    """Runs at most `concurrency` calls at once, in the order in which they were submitted."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency, self.is_closed = concurrency, False
        self.num_threads, self.num_idle = 0, 0
        self.queue: deque[PendingCall] = deque()
        self.lock = threading.Lock()
        self.queued, self.done = threading.Condition(self.lock), threading.Condition(self.lock)

    def submit(self, work: Callable[[], Any], after: PendingCall | None = None) -> PendingCall:
        """Returns a call that begins when there is a thread for it, and `after` has ended."""
        call = PendingCall(work)
        with self.lock:
            if after is not None and not after.ended:
                after.followers.append(call)
            else:
                self.enqueue(call)
        return call

    def enqueue(self, call: PendingCall) -> None:
        """Queues a call, and starts a thread if none is idle. Requires the lock."""
        self.queue.append(call)
        if self.num_idle >= len(self.queue):
            self.queued.notify()
        elif self.num_threads < self.concurrency:
            self.num_threads += 1
            threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        """Runs calls one after the other: what each thread does."""
        while True:
            with self.lock:
                self.num_idle += 1
                self.queued.wait_for(lambda: self.queue or self.is_closed, IDLE)
                self.num_idle -= 1
                if not self.queue:
                    self.num_threads -= 1
                    return
                call = self.queue.popleft()
                call.begun = time.monotonic()
            call.run()
            with self.lock:
                call.ended = time.monotonic()
                for follower in call.followers:
                    self.enqueue(follower)
                self.done.notify_all()
                if call.is_abandoned:  # another thread has its place
                    return

    def abandon(self, call: PendingCall) -> None:
        """Gives a call up, whose thread may never return: its place is free. Its followers do not begin."""
        with self.lock:
            if call.ended or call.is_abandoned:
                return
            call.is_abandoned, call.followers = True, []
            if not call.begun:
                self.queue = deque(one for one in self.queue if one is not call)
                return
            self.num_threads -= 1
            if self.queue and self.num_threads < self.concurrency:
                self.num_threads += 1
                threading.Thread(target=self.serve, daemon=True).start()

    def wait(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Waits until calls that ended make something ready, at most so many seconds."""
        with self.lock:
            self.done.wait_for(is_ready, seconds)

    def close(self) -> None:
        """Lets idle threads end; calls that run or are queued go on."""
        with self.lock:
            self.is_closed = True
            self.queued.notify_all()


def settled(value: Any) -> Any:
    """Returns a value, or what it gives once it is awaited on the event loop of all such values."""
    if not inspect.isawaitable(value):
        return value
    return asyncio.run_coroutine_threadsafe(awaited(value), event_loop(os.getpid())).result(threading.TIMEOUT_MAX)


async def awaited(value: Any) -> Any:
    """Returns the result of anything that can be awaited."""
    return await value


@lru_cache(maxsize=1)
def event_loop(process: int) -> asyncio.AbstractEventLoop:
    """Returns the event loop of a process, on a thread of its own; one for all, since clients that sessions share are
    bound to theirs.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
