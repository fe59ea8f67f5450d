"""The ledger in random schedules: staleness within the lag, every ordinal trained once, deliveries idempotent."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.runs.distributed.ledger import ATTEMPTS, Answer, Ledger, Restarts, Work, WorkSchedule, WorkStopped

WORKERS = ("a", "b", "c")
SCHEDULES = st.builds(
    WorkSchedule, steps=st.integers(1, 5), starts=st.integers(1, 5), members=st.integers(1, 2), lag=st.integers(0, 4),
    piece=st.integers(1, 3),
)  # fmt: skip


@dataclass
class Driver:
    """Samplers, a learner and a checkpoint whose every move is drawn."""

    ledger: Ledger
    draw: random.Random
    sent: list[tuple[str, Work, int]] = field(default_factory=list)
    kept: dict[int, int] = field(default_factory=dict)
    trained: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    saved: str = ""
    losses: int = 0
    starts: int = 0

    def take(self) -> None:
        worker = self.draw.choice(WORKERS)
        work = self.ledger.take(worker)
        if work is not None:
            assert work.step >= self.ledger.step, "work of a trained step was handed out"
            assert not self.kept.keys() & set(work.ordinals), "work that is there was handed out"
            fetched = self.draw.randint(work.least, self.ledger.version)
            if work.least > 0 and self.losses < ATTEMPTS - 1 and self.draw.random() < 0.2:
                self.losses += 1  # an update of the weights was missed
                fetched = work.least - 1
            self.sent.append((worker, work, fetched))

    def deliver(self, repeats: float = 0.3) -> None:
        """One of those sent arrives, in any order; at times it arrives again later."""
        if not self.sent:
            return
        at = self.draw.randrange(len(self.sent))
        worker, work, version = self.sent[at]
        answer = self.ledger.deliver(worker, work, version)
        if answer is Answer.ACCEPTED:
            assert work.incarnation == self.starts, "work of an earlier process was accepted"
            for ordinal in work.ordinals:
                assert ordinal not in self.kept, "a sequence was accepted twice"
                self.kept[ordinal] = version
        if self.draw.random() >= repeats:
            del self.sent[at]

    def lose(self) -> None:
        """A worker is thought dead; what it sent may still arrive."""
        if self.losses < ATTEMPTS - 1:
            self.losses += self.ledger.lost(self.draw.choice(WORKERS)) > 0

    def train(self) -> None:
        batch = self.ledger.batch()
        if batch is not None:
            self.seen += [self.ledger.step - self.kept.pop(ordinal) for ordinal in batch]
            self.trained += batch
            later = {piece: count for piece, count in self.ledger.attempts.items() if piece[0] > self.ledger.step}
            self.ledger.trained()
            assert self.ledger.attempts == later, "only losses of steps to come are remembered"

    def publish(self) -> None:
        self.ledger.published(self.ledger.step)
        self.ledger.published(self.draw.randint(0, self.ledger.step))
        assert self.ledger.version == self.ledger.step, "an older version was published over a newer one"

    def save(self) -> None:
        self.saved = json.dumps(self.ledger.state())

    def restart(self) -> None:
        """The learner dies: sequences in memory are gone, samplers live on and deliver what they have."""
        if self.saved and self.starts < 3:
            self.starts += 1
            self.ledger = Ledger.of(self.ledger.schedule, json.loads(self.saved), self.starts)
            self.kept.clear()
            del self.trained[self.ledger.step * self.ledger.schedule.starts :]

    def run(self, moves: int) -> None:
        """Draws moves, then lets everything happen in turn until the plan is done."""
        ways = [self.take] * 4 + [self.deliver] * 4 + [self.train, self.publish, self.lose, self.save, self.restart]
        for _ in range(moves):
            self.draw.choice(ways)()
        for _ in range(10_000):
            if self.ledger.is_done:
                return
            self.take()
            self.deliver(repeats=0.0)
            self.train()
            self.publish()
        raise AssertionError("the ledger is wedged")


def check(schedule: WorkSchedule, seed: int, moves: int) -> None:
    driver = Driver(Ledger(schedule), random.Random(seed))
    driver.run(moves)
    assert driver.trained == list(range(schedule.steps * schedule.starts)), "trained ordinals are the plan's"
    assert max(driver.seen) <= schedule.lag
    assert not driver.kept, "what is accepted is trained"
    assert all(0 <= lag <= schedule.lag for lag in driver.ledger.staleness)
    if driver.starts == 0:
        sequences = schedule.steps * schedule.starts * schedule.members
        assert sum(driver.ledger.staleness.values()) == sequences, "each sequence is counted once"


def drawn(draw: random.Random) -> WorkSchedule:
    sizes = {"steps": draw.randint(1, 5), "starts": draw.randint(1, 5), "members": draw.randint(1, 2)}
    return WorkSchedule(**sizes, lag=draw.randint(0, 4), piece=draw.randint(1, 3))


@settings(max_examples=300)
@given(SCHEDULES, st.integers(0, 2**32), st.integers(0, 60))
def test_any_schedule_keeps_the_staleness_and_the_plan(schedule: WorkSchedule, seed: int, moves: int) -> None:
    check(schedule, seed, moves)


def test_random_schedules_keep_the_staleness_and_the_plan(request: pytest.FixtureRequest) -> None:
    for seed in range(100_000 if request.config.getoption("--all-cases") else 5_000):
        draw = random.Random(seed)
        schedule = drawn(draw)
        try:
            check(schedule, seed, draw.randint(0, 60))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {schedule}: {error}") from error


def handed(ledger: Ledger, count: int) -> list[Work]:
    found = [ledger.take("a") for _ in range(count)]
    return [work for work in found if work is not None]


@given(SCHEDULES, st.randoms(use_true_random=False))
def test_the_order_of_deliveries_and_repeated_ones_change_nothing(schedule: WorkSchedule, draw: random.Random) -> None:
    deliveries(schedule, draw)


def deliveries(schedule: WorkSchedule, draw: random.Random) -> None:
    first, second = Ledger(schedule), Ledger(schedule)
    works = handed(first, schedule.pieces)
    assert handed(second, schedule.pieces) == works
    for work in works:
        assert first.deliver("a", work, 0) is Answer.ACCEPTED
    shuffled = draw.sample(works, len(works))
    for at, work in enumerate(shuffled):
        second.deliver("a", work, 0)
        before = copy.deepcopy(second)
        for repeated in shuffled[: at + 1]:
            assert second.deliver(draw.choice(WORKERS), repeated, 0) is Answer.KNOWN
        assert second == before
    assert first == second
    assert second.batch() == range(schedule.starts)
    second.trained()
    before = copy.deepcopy(second)
    assert {second.deliver("a", work, 0) for work in works} == {Answer.KNOWN}
    assert second == before


def test_a_step_waits_for_the_version_that_its_lag_asks_for() -> None:
    ledger = Ledger(WorkSchedule(steps=4, starts=1, lag=1))
    works = handed(ledger, 5)
    assert [(work.step, work.least) for work in works] == [(0, 0), (1, 0)]
    assert ledger.deliver("a", works[1], 0) is Answer.ACCEPTED
    assert ledger.batch() is None, "steps are trained in order"
    assert ledger.deliver("a", works[0], 0) is Answer.ACCEPTED
    ledger.trained()
    assert ledger.take("a") is None, "version 1 is not published"
    ledger.published(1)
    work = ledger.take("a")
    assert work is not None
    assert (work.step, work.least) == (2, 1)
    assert ledger.deliver("a", work, 0) is Answer.REFUSED, "older than the lag"
    assert ledger.deliver("a", work, 2) is Answer.REFUSED, "never published"
    again = ledger.take("b")
    assert again is not None
    assert (again.step, again.attempt) == (2, 1)


def test_lost_work_comes_first_and_a_late_delivery_counts() -> None:
    ledger = Ledger(WorkSchedule(steps=1, starts=3))
    first, _ = handed(ledger, 2)
    assert ledger.lost("a") == 2
    again = ledger.take("b")
    assert again is not None
    assert (again.ordinals, again.attempt) == (first.ordinals, 1)
    assert ledger.deliver("a", first, 0) is Answer.ACCEPTED
    assert ledger.deliver("b", again, 0) is Answer.KNOWN
    assert ledger.staleness == {0: 1}
    assert ledger.lost("a") == ledger.lost("b") == 0, "what was delivered is not held"


def test_a_checkpoint_keeps_the_losses_and_its_weights_are_published() -> None:
    schedule = WorkSchedule(steps=3, starts=2, piece=2)
    ledger = Ledger(schedule)
    work = ledger.take("a")
    assert work is not None
    ledger.deliver("a", work, 0)
    ledger.trained()
    ledger.published(1)
    handed(ledger, 1)
    assert ledger.lost("a") == 1
    saved = json.loads(json.dumps(ledger.state()))
    after = Ledger.of(schedule, saved, 1)
    assert after.version == 1
    assert [(work.step, work.attempt) for work in handed(after, 2)] == [(1, 1)]
    others = handed(Ledger.of(replace(schedule, piece=1), saved, 1), 3)
    assert [(work.step, work.attempt) for work in others] == [(1, 0)] * 2, "other pieces were not lost"


def test_work_of_an_earlier_process_or_of_another_plan_is_refused() -> None:
    schedule = WorkSchedule(steps=3, starts=2, lag=1)
    ledger = Ledger(schedule)
    works = handed(ledger, 2)
    after = Ledger.of(schedule, json.loads(json.dumps(ledger.state())), 1)
    assert after.deliver("a", works[0], 0) is Answer.REFUSED
    assert ledger.deliver("a", replace(works[0], ordinals=range(2)), 0) is Answer.REFUSED
    assert ledger.deliver("a", replace(works[0], step=7), 0) is Answer.REFUSED
    with pytest.raises(AssayError, match="lag is 2, but the run was started with 1"):
        Ledger.of(replace(schedule, lag=2), ledger.state(), 1)
    assert Ledger.of(replace(schedule, steps=9, piece=2), ledger.state(), 1).schedule.steps == 9
    with pytest.raises(AssayError, match=r"lag is -1\. Use at least 0"):
        WorkSchedule(1, 1, lag=-1)


def test_what_fails_again_and_again_stops_the_run_and_is_named() -> None:
    ledger = Ledger(WorkSchedule(steps=1, starts=1))
    for _ in range(ATTEMPTS):
        assert ledger.take("a") is not None
        ledger.lost("a")
    for _ in range(2):
        with pytest.raises(WorkStopped, match=f"ordinals from 0 of step 0 were handed out {ATTEMPTS} times"):
            ledger.take("a")
    restarts = Restarts(most=1)
    restarts.died("gpu-7", "killed")
    restarts.died("gpu-8", "killed")
    with pytest.raises(WorkStopped, match=r"worker gpu-7 failed again after 1 restarts \(no heartbeat\)"):
        restarts.died("gpu-7", "no heartbeat")


def test_work_that_was_never_handed_out_is_refused() -> None:
    ledger = Ledger(WorkSchedule(steps=2, starts=2, lag=1))
    (first,) = handed(ledger, 1)
    later = Work(0, range(1, 2), first.members, first.least)
    assert ledger.deliver("a", later, 0) is Answer.REFUSED
    assert ledger.batch() is None
    assert handed(ledger, 1) == [later], "it is handed out as before"
    assert ledger.deliver("a", later, 0) is Answer.ACCEPTED
