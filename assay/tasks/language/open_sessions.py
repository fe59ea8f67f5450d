"""The sessions of the rows of one batch: asked side by side, each with a deadline, and closed exactly once.

An exception, a missed deadline and anything that is not a reply end that row alone, with a fault of the infrastructure.
Only the thread that plays changes the rows; the threads of calls return what they found.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar

from assay.core.errors import AssayError
from assay.core.exits import give_up_if_stopped
from assay.core.faults import at_place
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.rollouts import outcomes
from assay.rollouts.concurrent_calls import Calls, PendingCall, settled
from assay.rollouts.turns import Heard
from assay.tasks.language.items import Item
from assay.tasks.language.partners import Reply, as_reply
from assay.tasks.language.sessions import Session, Sessions, Waiting

LOOK = 0.1
"""Seconds between two looks at the deadlines."""
CLOSING, STOPPING = 10.0, 0.5
"""Seconds that closing may take at the end of a batch, and after an error or a signal."""
MANY = 4
"""Rows from which on it is an error if all of them fail: a single fault is not the end of a run."""


class Broken(Exception):
    """A call of a session that failed: the kind of fault, and the cause in words."""

    def __init__(self, kind: str, cause: str) -> None:
        super().__init__(cause)
        self.kind = kind


@dataclass
class SessionRow:
    """The session of one row. `known` are replies, as tokens, that it has to repeat; `asked` counts utterances that it
    was given, `last` their last tokens; `replies` are its answers, `heard` the last of them in tokens.
    """

    item: Item
    seed: int
    known: Sequence[list[int]] = ()
    session: Session | None = None
    is_dead: bool = False
    calls: list[PendingCall] = field(default_factory=list)
    asked: int = 0
    last: list[int] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    outcome: Outcome | None = None
    not_a_part: ClassVar[str] = "state of a conversation"


@dataclass
class Meter:
    """Sums and counts of what sessions cost, by split; read and cleared when rows are judged. No column of the record:
    a clock gives other numbers every time.
    """

    sums: dict[int, dict[str, tuple[float, float]]] = field(default_factory=dict)
    waited: float = 0.0
    not_a_part: ClassVar[str] = "numbers of a task"

    def add(self, split: int, name: str, value: float, count: float = 1.0) -> None:
        """Adds to a sum and its count."""
        own = self.sums.setdefault(split, {})
        total, num = own.get(name, (0.0, 0.0))
        own[name] = (total + value, num + count)

    def taken(self, split: int) -> dict[str, tuple[float, float]]:
        """Returns what was added since the last time."""
        return self.sums.pop(split, {})

    def taken_seconds(self) -> float:
        """Returns the seconds in which decoding stood still since the last time, because replies were missing."""
        waited, self.waited = self.waited, 0.0
        return waited


class OpenSessions:
    """Opens a session for each row and asks for replies (see `assay.rollouts.waves.Asking`); use it in a `with` block.

    `read` returns the text of an utterance, `encoded(reply, last)` the tokens of a reply after an utterance that ended
    with the token `last`; `turns` is the most utterances.
    """

    def __init__(
        self,
        sessions: Sessions,
        rows: Sequence[SessionRow],
        waiting: Waiting,
        *,
        turns: int,
        eos: int,
        read: Callable[[Sequence[int]], str],
        encoded: Callable[[str, int], list[int]],
    ) -> None:
        self.sessions, self.rows, self.waiting = sessions, rows, waiting
        self.turns, self.eos, self.read, self.encoded = turns, eos, read, encoded
        self.calls, self.lock = Calls(waiting.concurrency), threading.Lock()
        self.closings: list[PendingCall] = []
        self.causes: list[str] = []
        self.waited, self.num_splits, self.num_tokens = 0.0, 0, 0

    def __enter__(self) -> OpenSessions:
        for row in self.rows:  # a slow opening is then hidden behind the first utterance
            row.calls.append(self.calls.submit(lambda row=row: self.opened(row)))  # type: ignore[misc]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for row in self.rows:
            self.end(row)
        until = time.monotonic() + (CLOSING if error is None else STOPPING)
        self.calls.wait(lambda: all(one.ended for one in self.closings), until - time.monotonic())
        for one in self.closings:
            if one.error is not None or not one.ended:
                self.causes.append(f"close failed: {one.error!r}" if one.ended else "close did not return in time")
                self.calls.abandon(one)
        self.calls.close()

    # ------------------------------------------------------------------------------------------------ on threads
    def opened(self, row: SessionRow) -> None:
        """Opens the session of a row; closes it again if the row was given up meanwhile."""
        session = attempted(f"{type(self.sessions).__name__}.open", lambda: self.sessions.open(row.item, row.seed))
        with self.lock:
            if not row.is_dead:
                row.session = session
                return
        settled(session.close())

    def answered(self, row: SessionRow, said: Sequence[str], is_last: bool) -> tuple[list[Reply], Outcome | None]:
        """Returns the replies to utterances that a session has not heard yet, and the outcome if it is over."""
        session, replies = row.session, list[Reply]()
        assert session is not None
        name = type(session).__name__
        for place, words in enumerate(said):
            reply = attempted(f"{name}.reply", lambda words=words: session.reply(words))  # type: ignore[misc]
            try:
                replies.append(as_reply(reply, f"{name}.reply"))
            except AssayError as error:
                raise Broken(outcomes.NO_REPLY, str(error)) from None
            if reply.outcome is not None and place + 1 < len(said):
                raise Broken(outcomes.OTHER_REPLY, f"{name}.reply ended a conversation that went on before")
        outcome = replies[-1].outcome
        if outcome is None and is_last:
            outcome = as_outcome(attempted(f"{name}.reward", session.reward), f"{name}.reward")
        return replies, outcome

    # ------------------------------------------------------------------------------------------------ playing
    def ask(self, row: int, said: Sequence[list[int]]) -> None:
        """Asks for the reply to the last utterance; a session that is opened again first hears the earlier ones."""
        one = self.rows[row]
        if len(said) <= one.asked or one.outcome is not None:
            return
        fresh = [self.read(ids) for ids in said[one.asked :]]
        one.asked, one.last = len(said), [ids[-1] for ids in said]
        is_last = len(said) >= self.turns
        work = self.calls.submit(lambda: self.answered(one, fresh, is_last), after=one.calls[-1])
        one.calls.append(work)

    def heard(self, rows: Collection[int]) -> Mapping[int, Heard]:
        """Waits until all rows have their replies, or `patience` is over and some have."""
        begun, some = time.monotonic(), [self.rows[row] for row in rows]
        last = begun + self.waiting.patience_with(self.sessions)
        while not self.are_ready(some):
            give_up_if_stopped()
            for row in some:
                self.expire(row)
            now = time.monotonic()
            if now < last:
                self.calls.wait(lambda: self.are_ready(some), min(LOOK, last - now))
            elif any(map(self.is_ready, some)):
                break
            else:
                self.calls.wait(lambda: any(map(self.is_ready, some)), LOOK)
            give_up_if_stopped()
        give_up_if_stopped()  # calls that gave up for a stop signal are no faults
        self.waited += time.monotonic() - begun
        found = {row: self.settle(self.rows[row]) for row in rows if self.is_ready(self.rows[row])}
        self.num_splits += len(found) < len(rows)
        return found

    def exchanged(self, said: Sequence[Sequence[list[int]]]) -> list[list[list[int]]]:
        """Returns the replies, as tokens, to known utterances; what follows the end of a session is not said."""
        found: list[list[list[int]]] = [[] for _ in said]
        for turn in range(max(map(len, said))):
            pending = [row for row, own in enumerate(said) if turn < len(own) and self.rows[row].outcome is None]
            for row in pending:
                self.ask(row, said[row][: turn + 1])
            while pending:
                heard = self.heard(pending)
                pending = [row for row in pending if row not in heard]
                for row, reply in heard.items():
                    found[row].append(reply.tokens)
        return found

    def are_ready(self, rows: Sequence[SessionRow]) -> bool:
        """Returns whether all rows are ready; the last of them first, since those were asked last."""
        return all(map(self.is_ready, reversed(rows)))

    def is_ready(self, row: SessionRow) -> bool:
        """Returns whether a row has its reply, or its end."""
        return row.outcome is not None or bool(row.calls[-1].ended) or row.calls[0].error is not None

    def expire(self, row: SessionRow) -> None:
        """Gives up a row whose call has taken too long."""
        running = next((one for one in row.calls if not one.ended), None)
        if row.outcome is not None or running is None:
            return
        self.check_time(row, running)

    def check_time(self, row: SessionRow, call: PendingCall) -> bool:
        """Ends a row if its time is over: that of the episode, or of a reply (a replay has as much for each). Returns
        whether it was not.
        """
        spent, name = sum(one.seconds for one in row.calls), type(self.sessions).__name__
        many = row.asked - len(row.replies)
        if spent > self.waiting.episode:
            self.fail(row, outcomes.EPISODE_TIME, f"{name} took longer than {self.waiting.episode:g} s for an episode")
        elif call is not row.calls[0] and call.seconds > self.waiting.reply * many:
            self.fail(row, outcomes.REPLY_TIME, f"{name} did not reply within {self.waiting.reply:g} s")
        return row.outcome is None

    def settle(self, row: SessionRow) -> Heard:
        """Returns what a row hears: its reply in tokens, or its end."""
        error = next((one.error for one in row.calls if one.error is not None), None)
        if row.outcome is None and error is not None:
            kind = error.kind if isinstance(error, Broken) else outcomes.RAISED
            self.fail(row, kind, str(error) if isinstance(error, Broken) else repr(error))
        if row.outcome is None and self.check_time(row, row.calls[-1]):
            replies, outcome = row.calls[-1].value
            self.take(row, replies, outcome)
        if row.outcome is not None:
            self.end(row)
            return Heard([], True, isinstance(row.outcome, InfraFault) or self.is_cut(row))
        return Heard(row.heard)

    def take(self, row: SessionRow, replies: list[Reply], outcome: Outcome | None) -> None:
        """Keeps the replies of a call; those that were recorded before must be the same."""
        first = len(row.replies)
        row.replies += replies
        for place in range(first, min(len(row.replies), len(row.known))):
            if self.tokens(row, place) != row.known[place]:
                self.fail(row, outcomes.OTHER_REPLY, f"{type(row.session).__name__} did not repeat reply {place + 1}")
                return
        row.outcome = outcome
        if outcome is None:
            row.heard = self.tokens(row, len(row.replies) - 1)
            self.num_tokens += len(row.heard)

    def tokens(self, row: SessionRow, place: int) -> list[int]:
        """Returns a reply in tokens; a row whose reply is too long fails."""
        try:
            return self.encoded(row.replies[place].text, row.last[place])
        except (AssayError, ValueError) as error:
            self.fail(row, outcomes.TOO_LONG, str(error))
            return []

    def is_cut(self, row: SessionRow) -> bool:
        """Returns whether a conversation was cut: in its last utterance, or for lack of turns."""
        return row.last[-1] != self.eos or row.replies[-1].outcome is None

    # ------------------------------------------------------------------------------------------------ ends
    def fail(self, row: SessionRow, kind: str, cause: str) -> None:
        """Ends a row with a fault of the infrastructure."""
        row.outcome = InfraFault(kind)
        self.causes.append(cause)
        self.end(row)

    def end(self, row: SessionRow) -> None:
        """Closes the session of a row, if that was not done; a call that hangs is given up."""
        with self.lock:
            session, row.session, was_dead, row.is_dead = row.session, None, row.is_dead, True
        for call in row.calls:
            if not was_dead and not call.ended:
                self.calls.abandon(call)
        if session is not None and not was_dead:
            self.closings.append(self.calls.submit(session.close))

    def results(self) -> list[Outcome]:
        """Returns the outcome of each row, Score(0) of one that has not ended; AssayError if all rows failed."""
        faults = [row for row in self.rows if isinstance(row.outcome, InfraFault)]
        if len(faults) == len(self.rows) >= MANY:
            cause = self.causes[0] if self.causes else faults[0].outcome
            raise AssayError(f"all {len(faults)} sessions failed. The first: {cause}. Repair it, and resume the run")
        return [Score(0.0) if row.outcome is None else row.outcome for row in self.rows]

    def measure(self, meter: Meter, split: int) -> None:
        """Adds what the batch cost to a meter."""
        replies = [one for row in self.rows for one in row.replies]
        faults = [isinstance(row.outcome, InfraFault) for row in self.rows]
        for name, value, count in (
            ("replies", len(replies), len(self.rows)),
            ("reply_tokens", self.num_tokens, max(1, len(replies))),
            ("cost", sum(one.cost for one in replies), len(self.rows)),
            ("faults", sum(faults), len(faults)),
            *([("split_waves", self.num_splits, 1)] if self.waiting.patience_with(self.sessions) < math.inf else []),
        ):
            meter.add(split, f"session/{name}", value, count)
        meter.waited += self.waited


def attempted(what: str, function: Callable[[], Any]) -> Any:
    """Returns what a function of a session returns; Broken with its name if it raises."""
    try:
        return settled(function())
    except (Exception, SystemExit) as error:
        cause = f"{what} raised {type(error).__name__}: {error}{at_place(error)}"
        raise Broken(outcomes.RAISED, cause) from error


def as_outcome(outcome: Any, where: str) -> Outcome:
    """Returns an outcome; Broken for anything else."""
    if not isinstance(outcome, Score | PolicyFault | InfraFault):
        raise Broken(outcomes.NO_REPLY, f"{where} returned {outcome!r}. It must return a Score or a fault")
    try:
        as_reply(Reply("", outcome), where)
    except AssayError as error:
        raise Broken(outcomes.NO_REPLY, str(error)) from None
    return outcome
