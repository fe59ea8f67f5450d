"""The real `Ledger` on a virtual clock: samplers and one learner whose work takes stated seconds.

No faults but samplers that are thought lost and deliver late; `benchmarks/cluster.py` has 46 kinds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from assay.runs.distributed.ledger import Answer, Ledger, WorkSchedule, Work


@dataclass
class Virtual:
    """A run of a schedule: `num` samplers take work as the ledger allows; the learner trains a step when it is there.

    A piece takes as long as the longest of its ordinals, `seconds` of each; a step trains for `training` seconds.
    `dies` says of a finished work whether its sampler is thought lost then: the work is handed out again, and what was
    sampled arrives `training` seconds late.
    """

    schedule: WorkSchedule
    num: int
    seconds: Callable[[int], float]
    training: float
    dies: Callable[[Work], bool] = lambda work: False
    now: float = 0.0
    trained: list[int] = field(default_factory=list)
    """Ordinals in the order in which they were trained."""
    ages: list[int] = field(default_factory=list)
    """Staleness of each of them: versions between the weights that sampled it and those that it trains."""
    started: int = 0
    """Pieces that were handed out."""

    def __post_init__(self) -> None:
        self.ledger, self.events, self.order = Ledger(self.schedule), list[tuple[float, int, Any]](), 0
        self.free = {f"sampler-{index}" for index in range(self.num)}
        self.is_training, self.kept = False, dict[int, int]()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls a function later."""
        self.order += 1
        heapq.heappush(self.events, (self.now + seconds, self.order, call))

    def run(self) -> Virtual:
        """Runs until every step is trained."""
        while not self.ledger.is_done:
            self.hand_out()
            self.learn()
            self.now, _, call = heapq.heappop(self.events)
            call()
        return self

    def hand_out(self) -> None:
        """Gives work to the samplers that have none."""
        for name in sorted(self.free):
            work = self.ledger.take(name)
            if work is None:
                return
            self.free.remove(name)
            self.started += 1
            longest = max(map(self.seconds, work.ordinals))
            self.after(longest, partial(self.ends, name, work, self.ledger.version))

    def ends(self, name: str, work: Work, version: int) -> None:
        """A piece is sampled: it is delivered now, or late by a sampler that is thought lost."""
        self.free.add(name)
        if self.dies(work):
            self.ledger.lost(name)
            self.after(self.training, partial(self.deliver, name, work, version))
        else:
            self.deliver(name, work, version)

    def deliver(self, name: str, work: Work, version: int) -> None:
        """Keeps what the ledger accepts."""
        if self.ledger.deliver(name, work, version) is Answer.ACCEPTED:
            self.kept |= dict.fromkeys(work.ordinals, version)

    def learn(self) -> None:
        """Begins to train the next step if it is there and the learner is free."""
        if not self.is_training and self.ledger.batch() is not None:
            self.is_training = True
            self.after(self.training, self.learned)

    def learned(self) -> None:
        """The step is trained, and its weights are published."""
        batch, step = self.ledger.batch(), self.ledger.step
        assert batch is not None
        self.trained += batch
        self.ages += [step - self.kept.pop(ordinal) for ordinal in batch]
        self.ledger.trained()
        self.ledger.published(self.ledger.step)
        self.is_training = False

    @property
    def rate(self) -> float:
        """Ordinals trained a second."""
        return len(self.trained) / self.now


def tailed(seed: int, num: int, sigma: float) -> np.ndarray:
    """Returns log-normal seconds of mean 1 [num]: the larger sigma, the longer the few longest."""
    return np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, num)


def speedup(ours: Virtual, theirs: Virtual) -> float:
    """Returns how many times as many ordinals a second the first run trains as the second."""
    return ours.run().rate / theirs.run().rate
