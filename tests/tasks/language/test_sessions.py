"""Sessions: one for each rollout, asked once and side by side, closed once; all else reads the record."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.laws.rollout import built, small_actor
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault, Need, Outcome, PolicyFault, Score
from assay.rollouts import outcomes
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.items import Item
from assay.tasks.language.sessions import Sessions, Waiting

DRAW = Draw(3, (0,))
STARTS, SAMPLES = np.array([5, 1, 1, 8, 5, 2]), np.array([0, 0, 1, 0, 2, 0])


@dataclass
class Counter:
    """Replies with its seed and the number of its replies so far; `act` may change a reply."""

    item: Item
    seed: int
    log: list[tuple[Any, ...]]
    act: Callable[[Counter, str], Any]
    count: int = 0

    def reply(self, utterance: str) -> Any:
        self.count += 1
        self.log.append(("reply", self.seed, utterance))
        return self.act(self, utterance)

    def reward(self) -> Outcome:
        self.log.append(("reward", self.seed))
        return Score(self.count / 10)

    def close(self) -> None:
        self.log.append(("close", self.seed))


def counted(session: Counter, utterance: str) -> Any:
    return Reply(f"<{session.count}:{session.seed % 100}>", None, 0.25 * session.count, cost=2.0)


@dataclass(frozen=True)
class Counters:
    act: Callable[[Counter, str], Any] = counted
    is_repeatable: bool = True
    log: list[tuple[Any, ...]] = field(default_factory=list)

    def item(self, ordinal: int, split: int) -> Item:
        return Item(f"{ordinal} {split}:", "", "ab\ncd\nef", {"number": ordinal})

    def open(self, item: Item, seed: int) -> Counter:
        self.log.append(("open", seed))
        return Counter(item, seed, self.log, self.act)


def task_of(partner: Sessions, **settings: Any) -> DialogueTask:
    return DialogueTask("count", partner, CharacterTokenizer(), 8, 3, 5, 12, **settings)


def played(task: DialogueTask, starts=STARTS, samples=SAMPLES, **settings: Any) -> Experience:
    actor = built(small_actor(task.spec), task.spec)
    return task.play(actor, starts, samples, DRAW, split=0, greedy=False, **settings)


def calls(partner: Counters, kind: str) -> list[tuple[Any, ...]]:
    return [one for one in partner.log if one[0] == kind]


def test_a_session_counts_the_replies_of_its_own_row_and_is_asked_once() -> None:
    partner = Counters()
    task = task_of(partner)
    record = played(task)
    assert len(calls(partner, "open")) == len(calls(partner, "close")) == len(set(calls(partner, "open"))) == 6
    assert len(calls(partner, "reply")) == 18
    assert len(calls(partner, "reward")) == 6
    before = list(partner.log)
    judged = task.judge(record, 0)
    rows, shown = task.texts(judged, 0), [task.describe(judged, row) for row in range(6)]
    assert partner.log == before, "judging and showing read the record"
    seeds = record.column("session").tolist()
    for row, seed in enumerate(seeds):
        said = [words for _, own, words in calls(partner, "reply") if own == seed]
        heard = [f"<{turn}:{seed % 100}>" for turn in (1, 2)]
        contents = [message["content"] for message in rows[row]["messages"]]
        assert contents == [rows[row]["prompt"], said[0], heard[0], said[1], heard[1], said[2]]
        assert shown[row]["turns"] == 3
        assert all(words in shown[row]["completion"] for words in heard)
    assert torch.allclose(judged.column("score"), torch.full((6,), 0.3 + 0.25 + 0.5 + 0.75))
    ends = [judged.reward[row][judged.mask[row]][judged.reward[row][judged.mask[row]] != 0] for row in range(6)]
    assert all(torch.allclose(one, torch.tensor([0.25, 0.5, 1.05])) for one in ends)
    cost = task.measured(0)
    assert cost["session/replies"] == (18, 6)
    assert cost["session/cost"] == (36, 6)
    assert cost["session/faults"] == (0, 6)
    assert task.measured(0) == {}


def test_recorded_log_probabilities_are_those_of_scoring() -> None:
    task = task_of(Counters())
    record = played(task)
    again = built(small_actor(task.spec), task.spec).score(record, frozenset({Need.LOGP})).logp
    assert torch.allclose(again, record.logp, atol=1e-5)
    assert bool((record.logp[record.mask] < 0).all())


def test_the_order_of_rows_and_the_other_rows_do_not_matter() -> None:
    task, order = task_of(Counters()), np.array([3, 0, 5, 1, 2, 4])
    whole, other = played(task), played(task, STARTS[order], SAMPLES[order])
    for place, row in enumerate(order):
        assert other.action[place].tolist() == whole.action[row].tolist()
        assert float(other.column("outcome/value")[place]) == float(whole.column("outcome/value")[row])
    alone = played(task, STARTS[1:2], SAMPLES[1:2])
    assert alone.action[0].tolist() == whole.action[1, : alone.num_columns].tolist()


def test_replies_that_take_time_change_no_token_and_are_waited_for_together() -> None:
    def slow(session: Counter, utterance: str) -> Any:
        time.sleep(0.02 + session.seed % 7 / 100)
        return counted(session, utterance)

    async def later(session: Counter, utterance: str) -> Any:
        await asyncio.sleep(0.02 + session.seed % 7 / 100)
        return counted(session, utterance)

    starts, samples = np.arange(40), np.zeros(40, dtype=np.int64)
    at_once = played(task_of(Counters()), starts, samples)
    for act in (slow, later):
        begun = time.monotonic()
        record = played(task_of(Counters(act)), starts, samples)
        assert time.monotonic() - begun < 0.5 * 3 * 40 * 0.05, "one by one they take 6 s"
        assert all(torch.equal(record.extra[name], at_once.extra[name]) for name in at_once.extra)
        assert torch.equal(record.action, at_once.action)
        assert torch.equal(record.logp, at_once.logp)


def test_no_more_sessions_are_asked_at_once_than_allowed() -> None:
    running, most, lock = [0], [0], threading.Lock()

    def busy(session: Counter, utterance: str) -> Any:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return counted(session, utterance)

    played(task_of(Counters(busy), waiting=Waiting(concurrency=3)), np.arange(12), np.zeros(12, dtype=np.int64))
    assert most[0] == 3


def failing(session: Counter, utterance: str) -> Any:
    if session.item.facts["number"] != 5:
        return counted(session, utterance)
    return {2: lambda: 1 / 0, 1: lambda: counted(session, utterance)}[session.count]()


def hanging(session: Counter, utterance: str) -> Any:
    if session.item.facts["number"] == 5 and session.count == 2:
        threading.Event().wait(30)
    return counted(session, utterance)


def leaving(session: Counter, utterance: str) -> Any:
    return counted(session, utterance) if session.item.facts["number"] != 5 else exit(0)


def lying(session: Counter, utterance: str) -> Any:
    return counted(session, utterance) if session.item.facts["number"] != 5 else Reply("", Score(float("nan")))


def wordy(session: Counter, utterance: str) -> Any:
    return counted(session, utterance) if session.item.facts["number"] != 5 else Reply("long " * 9)


@pytest.mark.parametrize(
    ("act", "kind"),
    [(failing, outcomes.RAISED), (hanging, outcomes.REPLY_TIME), (leaving, outcomes.RAISED), (lying, outcomes.NO_REPLY),
     (wordy, outcomes.TOO_LONG)],
)  # fmt: skip
def test_a_fault_of_the_infrastructure_ends_its_row_alone_and_is_never_a_reward(act: Any, kind: str) -> None:
    partner = Counters(act)
    task = task_of(partner, waiting=Waiting(reply=0.3))
    begun = time.monotonic()
    judged = task.judge(played(task), 0)
    assert time.monotonic() - begun < 5
    broken = torch.tensor([True, False, False, False, True, False])
    assert torch.equal(judged.column("infra_fault"), broken)
    assert not judged.mask[broken].any()
    assert not judged.reward[broken].any()
    assert not judged.column("score")[broken].any()
    assert torch.allclose(judged.column("score")[~broken], torch.tensor(1.8))
    assert task.describe(judged, 0)["fault"] == kind
    assert task.describe(judged, 1)["fault"] is None
    assert sorted(one[1] for one in calls(partner, "close")) == sorted(one[1] for one in calls(partner, "open"))
    assert task.measured(0)["session/faults"] == (2, 6)
    again = task.judge(judged, 0)
    assert torch.equal(again.column("infra_fault"), broken)
    assert torch.equal(again.reward, judged.reward)


def test_a_scorer_does_not_pay_a_row_whose_session_failed() -> None:
    class Generous:
        scores = (0.0, 1.0)

        def __call__(self, rows: Any, verified: Any) -> Any:
            assert all(isinstance(one, Score) for one in verified())
            return [Score(1.0)] * len(rows), {"generous": [1.0] * len(rows)}

    task = task_of(Counters(failing), scorer=Generous())
    judged = task.judge(played(task), 0)
    assert judged.column("score").tolist() == [0, 1, 1, 1, 0, 1]
    assert judged.column("infra_fault").tolist() == [True, False, False, False, True, False]


def test_an_episode_has_its_own_deadline() -> None:
    def slow(session: Counter, utterance: str) -> Any:
        time.sleep(0.2)
        return counted(session, utterance)

    task = task_of(Counters(slow), waiting=Waiting(reply=5.0, episode=0.3))
    with pytest.raises(
        AssayError, match=r"all 6 sessions failed. The first: Counters took longer than 0.3 s for an ep"
    ):
        played(task)
    few = played(task, STARTS[:2], SAMPLES[:2])
    found = outcomes.recorded_outcomes(few)
    assert found == [InfraFault(outcomes.EPISODE_TIME)] * 2


def test_a_policy_fault_and_an_end_by_reply_are_recorded() -> None:
    def ending(session: Counter, utterance: str) -> Any:
        return Reply("bye", PolicyFault("gave up", 0.5)) if session.count == 2 else counted(session, utterance)

    partner = Counters(ending)
    task = task_of(partner)
    judged = task.judge(played(task), 0)
    assert bool(judged.column("policy_fault").all())
    assert judged.column("score").tolist() == [0.75] * 6
    assert not calls(partner, "reward"), "the reply has given the outcome"


def test_an_opening_that_hangs_or_fails_is_a_fault_and_closes_what_opens_late() -> None:
    @dataclass(frozen=True)
    class Late(Counters):
        def open(self, item: Item, seed: int) -> Counter:
            if item.facts["number"] == 1:
                time.sleep(0.6)
            if item.facts["number"] == 8:
                raise OSError("no container")
            return super().open(item, seed)

    partner = Late()
    record = played(task_of(partner, waiting=Waiting(episode=0.2)))
    assert [type(one) for one in outcomes.recorded_outcomes(record)] == [
        Score, InfraFault, InfraFault, InfraFault, Score, Score,
    ]  # fmt: skip
    until = time.monotonic() + 2
    while len(calls(partner, "close")) < 5 and time.monotonic() < until:
        time.sleep(0.01)
    assert sorted(one[1] for one in calls(partner, "close")) == sorted(one[1] for one in calls(partner, "open"))


def test_after_its_patience_a_wave_goes_on_without_the_slowest() -> None:
    def straggling(session: Counter, utterance: str) -> Any:
        time.sleep(0.4 if session.item.facts["number"] == 8 else 0.0)
        return counted(session, utterance)

    task = task_of(Counters(straggling), waiting=Waiting(patience=0.05))
    record, at_once = played(task), played(task_of(Counters()))
    assert torch.equal(record.action, at_once.action)
    assert torch.allclose(record.logp, at_once.logp, atol=1e-5)
    assert task.measured(0)["session/split_waves"][0] >= 1


@pytest.mark.parametrize("limit", [1, 4])
def test_a_conversation_that_is_resumed_hears_what_it_heard(limit: int) -> None:
    task = task_of(Counters())
    actor, whole, begun = built(small_actor(task.spec), task.spec), played(task), task.begin(STARTS, 0)
    for _ in range(40):
        begun = task.resume(actor, begun, SAMPLES, DRAW, split=0, limit=limit)
        if bool((begun.terminal | begun.truncated).any(1).all()):
            break
    assert torch.equal(begun.action, whole.action)
    assert torch.equal(begun.column("session"), whole.column("session"))
    assert outcomes.recorded_outcomes(begun) == outcomes.recorded_outcomes(whole)


def test_a_session_that_does_not_repeat_itself_is_a_fault_when_resumed_or_refused_before() -> None:
    times = iter(range(10_000))

    def drifting(session: Counter, utterance: str) -> Any:
        return Reply(f"<{next(times)}>")

    for is_repeatable in (True, False):
        task = task_of(Counters(drifting, is_repeatable))
        actor = built(small_actor(task.spec), task.spec)
        begun = task.resume(actor, task.begin(STARTS[:2], 0), SAMPLES[:2], DRAW, split=0, limit=7)
        if not is_repeatable:
            with pytest.raises(AssayError, match=r"cannot be repeated. Use the rollout Episodes"):
                task.resume(actor, begun, SAMPLES[:2], DRAW, split=0)
            continue
        found = task.resume(actor, begun, SAMPLES[:2], DRAW, split=0)
        assert outcomes.recorded_outcomes(found) == [InfraFault(outcomes.OTHER_REPLY)] * 2


def test_demonstrations_are_played_with_sessions_that_repeat_themselves() -> None:
    task = task_of(Counters())
    shown = task.demonstrate(STARTS, 0)
    assert torch.equal(shown.action, task.demonstrate(STARTS, 0).action)
    assert torch.allclose(shown.column("score"), torch.tensor(1.8))
    assert [task.conversations(shown)[row] for row in range(6)] == [["ab", "cd", "ef"]] * 6
    assert task.texts(shown, 0)[0]["messages"][2]["content"].startswith("<1:")
    with pytest.raises(AssayError, match="has no demonstrations: its sessions cannot be repeated"):
        task_of(Counters(is_repeatable=False)).demonstrate(STARTS, 0)
    with pytest.raises(AssayError, match=r"a demonstration failed: Counter.reply raised ZeroDivisionError"):
        task_of(Counters(failing)).demonstrate(STARTS, 0)


def test_rows_that_no_session_has_played_are_not_judged() -> None:
    task = task_of(Counters())
    with pytest.raises(AssayError, match="were not played with sessions"):
        task.judge(replace(played(task), extra={"start": torch.zeros(6, dtype=torch.long)}), 0)


@pytest.mark.parametrize("wrong", [{"reply": 0.0}, {"episode": -1.0}, {"patience": 0.0}, {"concurrency": 0}])
def test_limits_that_are_not_positive_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssayError, match=next(iter(wrong))):
        Waiting(**wrong)
