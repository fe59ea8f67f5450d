"""The ledger of a run with separate samplers: who samples what, and which step may be trained.

A state machine without clock, network or Ray: the caller has those. Step k trains the ordinals
[k * starts, (k + 1) * starts) with `members` sequences each, on weights of version k (version v: after v updates).

    handed out   work of step k, once version k - lag is published; lost work first, then in the order of the plan
    batches      are steps, in order: a step is trained when all its sequences are there
    staleness    k - version of a sequence: at most lag, since older ones are refused and sampled again

So nothing is discarded, short answers are not preferred, and the progress of a run is one integer.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from assay.core.errors import AssayError

ATTEMPTS = 10
"""Times that one piece of work is handed out before the run stops: what it asks for ends its samplers."""
RESTARTS = 3
"""Times that one worker is restarted before the run stops."""


class WorkStopped(AssayError):
    """The run stops because a worker or a piece of work fails again and again; the message names it."""


class Answer(Enum):
    """What a delivery did: it was taken, its sequences were there already, or it cannot be used."""

    ACCEPTED = "accepted"
    KNOWN = "known"
    REFUSED = "refused"


@dataclass(frozen=True)
class WorkSchedule:
    """The plan that a ledger keeps: `steps` of `starts` ordinals with `members` sequences each, handed out `piece`
    ordinals at a time; `lag` is the largest staleness, 0 for synchronous training.
    """

    steps: int
    starts: int
    members: int = 1
    lag: int = 0
    piece: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < (least := 0 if name == "lag" else 1):
                raise AssayError(f"{name} is {value}. Use at least {least}.")

    @property
    def pieces(self) -> int:
        """The number of pieces of a step; the last may be smaller."""
        return -(-self.starts // self.piece)

    def ordinals(self, step: int, piece: int) -> range:
        """Returns the ordinals of a piece."""
        first = step * self.starts
        return range(first + piece * self.piece, first + min(self.starts, (piece + 1) * self.piece))


@dataclass(frozen=True)
class Work:
    """Sequences to sample: `members` for each ordinal, with weights of version `least` or newer.

    A repeated attempt samples the same starts with the same random numbers. `incarnation` is that of the ledger.
    """

    step: int
    ordinals: range
    members: int
    least: int
    attempt: int = 0
    incarnation: int = 0


@dataclass
class Ledger:
    """Hands out the work of a schedule and says which step may be trained. Every method may be called at any time.

    Laws: staleness never exceeds the lag; trained ordinals are the plan's, each once, in order; doubled, late and
    reordered deliveries change nothing.
    """

    schedule: WorkSchedule
    step: int = 0
    """The first step that is not trained."""
    version: int = 0
    """The newest version that workers can fetch."""
    attempts: dict[tuple[int, int], int] = field(default_factory=dict)
    """Times that a piece (step, number) was lost."""
    staleness: dict[int, int] = field(default_factory=dict)
    """Sequences accepted, by staleness."""
    next: tuple[int, int] = (0, 0)
    """The first piece that was never handed out."""
    again: list[tuple[int, int]] = field(default_factory=list)
    """Lost pieces, a heap."""
    held: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """Pieces that a worker has."""
    here: dict[int, set[int]] = field(default_factory=dict)
    """Pieces delivered, by step that is not trained."""
    incarnation: int = 0
    """Differs between the processes of a run: work of an earlier one, whose later versions are void, is refused."""

    # ------------------------------------------------------------------------------------------------ workers
    def take(self, worker: str) -> Work | None:
        """Returns the next work for a worker; None if it must wait. WorkStopped if the work was lost too often."""
        piece = self._next()
        if piece is None:
            return None
        attempt = self.attempts.get(piece, 0)
        work = self._work(piece, attempt)
        if attempt >= ATTEMPTS:
            heapq.heappush(self.again, piece)
            raise WorkStopped(
                f"ordinals from {work.ordinals[0]} of step {work.step} were handed out {attempt} times and never came "
                "back. Look at these starts and at the samplers' logs, then resume."
            )
        self.held.setdefault(worker, set()).add(piece)
        return work

    def deliver(self, worker: str, work: Work, version: int) -> Answer:
        """Records that the sequences of a work have arrived, none sampled by weights older than `version`.

        Keep them if the answer is ACCEPTED, else drop them. Work of a worker that was thought lost is as good as any;
        what is too old, or sampled by weights that were never published, is refused and sampled again.
        """
        piece = self._piece(work)
        if piece is None:
            return Answer.REFUSED
        step, number = piece
        mine = self.held.get(worker, set())
        if step < self.step or number in self.here.get(step, ()):
            mine.discard(piece)
            return Answer.KNOWN
        if piece >= self.next or not work.least <= version <= self.version:
            if piece in mine:
                self._lose(worker, piece)
            return Answer.REFUSED
        mine.discard(piece)
        self.here.setdefault(step, set()).add(number)
        rows = len(work.ordinals) * work.members
        self.staleness[step - version] = self.staleness.get(step - version, 0) + rows
        return Answer.ACCEPTED

    def lost(self, worker: str) -> int:
        """Hands out again what a worker has, since it died or missed its deadline; returns the number of pieces."""
        pieces = sorted(self.held.get(worker, ()))
        for piece in pieces:
            self._lose(worker, piece)
        return len(pieces)

    # ------------------------------------------------------------------------------------------------ the learner
    def published(self, version: int) -> None:
        """Records that workers can fetch this version; an older one than before changes nothing."""
        assert version <= self.step, f"version {version} of the weights needs {version} updates, there are {self.step}"
        self.version = max(self.version, version)

    def batch(self) -> range | None:
        """Returns the ordinals of the first untrained step if all are there, to be joined by (ordinal, member)."""
        if self.is_done or len(self.here.get(self.step, ())) < self.schedule.pieces:
            return None
        first = self.step * self.schedule.starts
        return range(first, first + self.schedule.starts)

    def trained(self) -> None:
        """Records that the batch was trained; its weights are version `step`, to be published."""
        assert self.batch() is not None, f"step {self.step} has no batch"
        del self.here[self.step]
        self.attempts = {piece: count for piece, count in self.attempts.items() if piece[0] > self.step}
        self.step += 1

    @property
    def is_done(self) -> bool:
        """Whether every step is trained."""
        return self.step >= self.schedule.steps

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint holds, as JSON. Sequences that are not trained are sampled again on resume."""
        lost = [[*piece, count] for piece, count in sorted(self.attempts.items())]
        found = [[lag, count] for lag, count in sorted(self.staleness.items())]
        return {"schedule": vars(self.schedule), "step": self.step, "attempts": lost, "staleness": found}

    @classmethod
    def of(cls, schedule: WorkSchedule, state: Mapping[str, Any], incarnation: int) -> Ledger:
        """Returns the ledger of a checkpoint, whose weights are published; `incarnation` is new to the run."""
        for name, value in vars(schedule).items():
            if name not in ("steps", "piece") and state["schedule"][name] != value:
                raise AssayError(
                    f"{name} is {value}, but the run was started with {state['schedule'][name]}. Resume with the same."
                )
        step, is_same = state["step"], state["schedule"]["piece"] == schedule.piece
        lost = {(at, number): count for at, number, count in state["attempts"] if is_same}
        found = dict(state["staleness"])
        return cls(schedule, step, step, lost, found, (step, 0), incarnation=incarnation)

    # ------------------------------------------------------------------------------------------------ pieces
    def _next(self) -> tuple[int, int] | None:
        """Takes the next piece from the lost ones that have not arrived since, else from the plan."""
        while self.again:
            step, number = heapq.heappop(self.again)
            if step >= self.step and number not in self.here.get(step, ()):
                return step, number
        step, number = self.next
        if step >= self.schedule.steps or step - self.schedule.lag > self.version:
            return None
        self.next = (step, number + 1) if number + 1 < self.schedule.pieces else (step + 1, 0)
        return step, number

    def _work(self, piece: tuple[int, int], attempt: int) -> Work:
        step, number = piece
        ordinals, least = self.schedule.ordinals(step, number), max(0, step - self.schedule.lag)
        return Work(step, ordinals, self.schedule.members, least, attempt, self.incarnation)

    def _piece(self, work: Work) -> tuple[int, int] | None:
        """Returns the piece that a work is; None if this ledger has no such work."""
        number, rest = divmod(work.ordinals.start - work.step * self.schedule.starts, self.schedule.piece)
        fits = rest == 0 and 0 <= work.step < self.schedule.steps and 0 <= number < self.schedule.pieces
        piece = work.step, number
        return piece if fits and self._work(piece, work.attempt) == work else None

    def _lose(self, worker: str, piece: tuple[int, int]) -> None:
        self.held[worker].discard(piece)
        if piece[0] >= self.step and piece[1] not in self.here.get(piece[0], ()):
            self.attempts[piece] = self.attempts.get(piece, 0) + 1
            heapq.heappush(self.again, piece)


@dataclass
class Restarts:
    """Counts how often each worker was restarted."""

    most: int = RESTARTS
    counts: dict[str, int] = field(default_factory=dict)

    def died(self, worker: str, reason: str) -> None:
        """Allows one more restart of a worker; WorkStopped names it when it has had them all."""
        if self.counts.get(worker, 0) >= self.most:
            raise WorkStopped(
                f"worker {worker} failed again after {self.most} restarts ({reason}). Look at its log, then resume."
            )
        self.counts[worker] = self.counts.get(worker, 0) + 1
