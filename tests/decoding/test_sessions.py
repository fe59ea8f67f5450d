"""Stop strings, forced beginnings, turns with a kept cache: the scheduler on the CPU against the actor's own cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.slots import Scene
from assay.decoding import decode as decoding
from assay.decoding import fast
from assay.decoding.fast import in_common
from assay.decoding.layers import stack_of
from assay.decoding.pages import CachedRow, Ledger, Way
from assay.decoding.sampling_parameters import Narrowing
from assay.decoding.scheduler import Sampler
from assay.decoding.sessions import Session
from assay.methods.delethink import Chunks
from assay.methods.prefixrl import FromPrefixes
from assay.methods.spo import Chain, Tree
from assay.methods.t_ppo import Windows
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.ops import random
from assay.ops.decoded import Stop
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.narrowed import Narrowed
from assay.runs import catalogue
from tests.scenes import gathering
from tests.tasks.language.test_sessions import Counters, task_of

TASK: Any = catalogue.find_task("addition-1")
WORDS = TASK.spec.action
NEW = 24
# rows, pages, page, interval: all at once; looked after often; few places; few pages; larger pages
SIZES = [(24, 300, 4, 16), (24, 300, 4, 1), (5, 90, 4, 3), (24, 34, 4, 5), (12, 60, 16, 7)]


def small_actor(task: Any = TASK) -> Any:
    torch.manual_seed(0)
    return Policy(Transformer(width=32, layers=2, heads=2)).build(task.spec).double()


def sampler(actor: Any, size: tuple[int, int, int, int] = SIZES[0], longest: int = 120) -> Sampler:
    rows, pages, page, interval = size
    stack = stack_of(actor)
    assert stack is not None
    return Sampler(stack, rows=rows, pages=pages, longest=longest, page=page, interval=interval)


def numbers(rows: int, many: int, seed: int = 3) -> torch.Tensor:
    return random.as_open_float32(random.uniform(Draw(seed), np.arange(rows)[:, None], 0, np.arange(many)[None]))


def is_clean(one: Sampler) -> bool:
    """Whether every page and place was given back."""
    ledger = one.ledger
    free = sorted(ledger.free) == list(range(1, ledger.num_pages)) and not ledger.resting and not ledger.prompts
    return free and len(ledger.places) == len(ledger.prompt_places) == one.num_rows


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the rollouts of an actor decode by a sampler on the CPU, of this size."""

    def use(size: tuple[int, int, int, int], least: int = 2) -> list[Sampler]:
        made: list[Sampler] = []

        def sampler_for(actor: Any, prompts: Any, repeats: Any, longest: int) -> Sampler:
            made.append(sampler(actor, size, max(map(len, prompts)) + longest))
            return made[-1]

        common = fast.in_common
        monkeypatch.setattr(decoding, "is_on_gpu", lambda actor: True)
        monkeypatch.setattr(fast, "sampler_for", sampler_for)
        monkeypatch.setattr(fast, "in_common", lambda prompts, repeats, page: common(prompts, repeats, least))
        return made

    return use


def same(mine: Experience, other: Experience) -> None:
    """The same record; log-probabilities as close as two orders of summing are in float64."""
    assert sorted(mine.extra) == sorted(other.extra)
    columns = {"action": mine.action, "mask": mine.mask, "terminal": mine.terminal, "truncated": mine.truncated}
    for name, value in (columns | dict(mine.context)).items():
        assert torch.equal(value, vars(other).get(name, other.context.get(name))), name
    torch.testing.assert_close(mine.logp, other.logp, atol=2e-6, rtol=0)
    for name, value in mine.extra.items():
        torch.testing.assert_close(value, other.extra[name], atol=2e-6, rtol=0)


# ----------------------------------------------------------------------------------------------------- stop strings
def letters(ids: Sequence[int]) -> str:
    return "".join("-" if index < 3 else chr(94 + index) for index in ids)


STOP = Stop(letters, ("ab", "ggg", "i"))


def slow_end(tokens: list[int], stop: Stop) -> int | None:
    """By decoding every beginning."""
    return next(
        (end for end in range(1, len(tokens) + 1) if any(s in letters(tokens[:end]) for s in stop.strings)), None
    )


def test_a_stop_string_is_found_where_it_is_complete() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        tokens = rng.integers(3, 12, 30).tolist()
        expected = slow_end(tokens, STOP)
        assert STOP.first(tokens) == expected
        for look in (1, 3, 7):
            ends = (STOP.first(tokens[: since + look], since) for since in range(0, 30, look))
            assert next((end for end in ends if end is not None), None) == expected, "however often somebody looks"


def test_stop_strings_that_cannot_be_are_refused() -> None:
    with pytest.raises(AssayError, match="an empty one would end"):
        Stop(letters, ("a", ""))
    assert Stop(letters, ()).first([3, 4]) is None


@pytest.mark.parametrize("size", SIZES)
def test_results_end_at_stop_strings_whatever_the_interval(size: tuple[int, int, int, int]) -> None:
    one = sampler(small_actor(), size)
    prompts = [[WORDS.bos, 3 + start, 5] for start in range(6)]
    limit, uniform = torch.full((24,), NEW), numbers(24, NEW)
    free = one.sample(prompts, [4] * 6, uniform, limit, Way(WORDS.eos))
    texts = [free.tokens[row, : free.length[row]].tolist() for row in range(24)]
    frequent = chr(94 + max(range(4, 12), key=lambda index: sum(index in text for text in texts)))
    stop = Stop(letters, (frequent, "ab", "zz"))
    cut = one.sample(prompts, [4] * 6, uniform, limit, Way(WORDS.eos), stop=stop)
    ends = [slow_end(text, stop) for text in texts]
    assert any(end is not None for end in ends)
    for row, (text, end) in enumerate(zip(texts, ends, strict=True)):
        assert cut.tokens[row, : cut.length[row]].tolist() == text[:end]
        assert bool(cut.has_ended[row]) == (end is not None or text[-1] == WORDS.eos)
    assert is_clean(one)


@pytest.mark.parametrize("size", SIZES[:3])
@pytest.mark.parametrize("rollout", [Episodes(4, 4), Windows(12, 1), Tree(3, (2, 3), 2)], ids=str)
def test_a_tasks_stop_strings_end_its_completions(size: Any, rollout: Any, through: Any) -> None:
    task = replace(TASK, stops=tuple("aeiou0123456789"), max_tokens=12)
    actor, starts = small_actor(), np.arange(rollout.num_starts)

    def play() -> list[Experience]:
        state = rollout.init(Scene(task))
        return [
            rollout(gathering(task, actor, starts, Draw(1)), state)
            for _ in range(6 if isinstance(rollout, Windows) else 1)
        ]

    plain = play()
    through(size)
    for mine, other in zip(play(), plain, strict=True):
        same(mine, other)
    ended = False
    for one in plain:
        answer = one.extra.get("answer", one.mask)
        for row in range(len(one)):
            text = task.tokenizer.decode(one.action[row, answer[row]].tolist())
            assert not any(string in text[:-1] for string in task.stops), "nothing follows a stop string"
            if text.endswith(task.stops) and bool(one.mask[row].any()):
                ended = True
                assert bool(one.terminal[row].any())
                assert not bool(one.truncated[row].any()), "it ended by its own decision"
    assert ended


# ----------------------------------------------------------------------------------------------------- forced tokens
@pytest.mark.parametrize("size", SIZES)
def test_forced_beginnings_are_as_if_the_prompt_had_them(size: tuple[int, int, int, int]) -> None:
    actor = small_actor()
    prompts = [[WORDS.bos, *range(3, 6 + start)] for start in range(6)]
    forced = [[3 + (row * 5 + time) % 12 for time in range(row % 7)] for row in range(24)]
    whole = [[*prompts[row // 4], *forced[row]] for row in range(24)]
    limit, uniform = torch.full((24,), NEW), numbers(24, NEW)
    one = sampler(actor, size)
    found = one.sample(prompts, [4] * 6, uniform, limit, Way(WORDS.eos), forced=forced)
    other = sampler(actor).sample(whole, [1] * 24, uniform, limit, Way(WORDS.eos))
    assert torch.equal(found.length, other.length)
    for row in range(24):
        end = int(found.length[row])
        assert torch.equal(found.tokens[row, :end], other.tokens[row, :end])
        torch.testing.assert_close(found.logp[row, :end], other.logp[row, :end], atol=1e-9, rtol=0)
    assert is_clean(one)


def test_neighbours_share_what_they_have_in_common() -> None:
    prompts = [[1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2, 9], [7, 8]]
    assert in_common(prompts, [2, 1, 1, 1], 3) == (
        [[1, 2, 3], [1, 2, 9], [7, 8]],
        [3, 1, 1],
        [[4], [4], [5, 6], [], []],
    )
    assert in_common(prompts, [1] * 4, 99) == (prompts, [1] * 4, [[]] * 4)
    assert in_common([[1, 2, 3]], [4], 1) == ([[1, 2, 3]], [4], [[]] * 4)
    groups = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8]]
    assert in_common(groups, [8, 8], 1)[0] == groups, "members of a group share more with each other"
    assert in_common(groups, [1, 1], 1) == ([[1, 2, 3, 4]], [2], [[5, 6], [7, 8]])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "rollout", [FromPrefixes(4, 4), Tree(3, (2, 3), 1), Chain(3, 2), Windows(9, 1), Chunks(3, 3, 2, 1)], ids=str
)
def test_what_goes_on_from_a_prefix_goes_through_the_sampler(size: Any, rollout: Any, through: Any) -> None:
    task = catalogue.find_task("sorting-5")
    actor, starts = small_actor(task), np.arange(rollout.num_starts)
    plain = rollout(gathering(task, actor, starts, Draw(1)), rollout.init(Scene(task)))
    made = through(size)
    same(rollout(gathering(task, actor, starts, Draw(1)), rollout.init(Scene(task))), plain)
    assert made
    assert all(map(is_clean, made))


def test_a_given_prefix_is_read_once_for_its_group(through: Any) -> None:
    made = through(SIZES[0])
    task = catalogue.find_task("sorting-5")
    rollout, seen = FromPrefixes(3, 8, plain=0.0), []
    begin = Sampler.prefill
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "prefill", lambda self, prompts: (seen.extend(prompts), begin(self, prompts))[1])
        played = rollout(gathering(task, small_actor(task), np.arange(3), Draw(1)), rollout.init(Scene(task)))
    assert len(made) == 1
    assert len(seen) == 3, "one prefill for the eight members of a group"
    assert bool((played.column("prefix") > 0).any())
    given = played.column("answer") & ~played.mask
    assert torch.equal(given.sum(1), played.column("prefix")), "context, never a target"
    assert not bool(played.logp[given].any())


# ----------------------------------------------------------------------------------------------------- sessions
@pytest.mark.parametrize("size", SIZES)
def test_turns_with_kept_pages_are_turns_from_the_beginning(size: tuple[int, int, int, int]) -> None:
    actor, way, fresh = small_actor(), Way(WORDS.eos), sampler(small_actor())
    one = sampler(actor, size)
    prompts = [[WORDS.bos, *range(3, 5 + start)] for start in range(4)]
    uniform, reads = numbers(12, 40), []
    forward = one.forward
    one.forward = lambda token, *rest: (reads.append(len(token)), forward(token, *rest))[1]  # type: ignore[method-assign]
    with Session(one) as session:
        rows = session.open(prompts, [3] * 4)
        known = [list(prompts[row // 3]) for row in rows]
        for turn, some in enumerate((rows, rows[::2], rows[1::2], rows)):
            if turn == 2:
                one.release()
            limit = torch.tensor([1 + (row + turn) % 6 for row in some])
            found = session.sample(some, uniform[some, 7 * turn :], limit, way)
            other = fresh.sample([known[row] for row in some], [1] * len(some), uniform[some, 7 * turn :], limit, way)
            assert torch.equal(found.length, other.length)
            for place, row in enumerate(some):
                end = int(found.length[place])
                assert torch.equal(found.tokens[place, :end], other.tokens[place, :end])
                torch.testing.assert_close(found.logp[place, :end], other.logp[place, :end], atol=1e-9, rtol=0)
                heard = [3 + (row + turn + time) % 9 for time in range(row % 4)]
                known[row] += [*found.tokens[place, :end].tolist(), *heard]
                session.extend([row], [heard])
                assert session.tokens(row) == known[row]
        session.close(rows[:5])
    assert is_clean(one)
    assert reads
    with pytest.raises(AssayError, match="closed"):
        session.extend([0], [[3]])
    with Session(one) as session:
        rows = session.open(prompts, [1] * 4)
        session.close(rows[:1])
        for some in (rows[:2], [1, 1]):
            with pytest.raises(AssayError, match="closed or repeated row"):
                session.sample(some, uniform[:2], torch.tensor([1, 1]), way)


def test_after_a_release_nothing_of_older_weights_is_left() -> None:
    actor = small_actor()
    one, uniform, limit = sampler(actor), numbers(4, 20), torch.full((2,), 6)
    with Session(one) as session:
        rows = session.open([[WORDS.bos, 3, 4, 5, 6]], [4])
        session.sample(rows[:2], uniform[:2], limit, Way(-1))  # the others have not begun, their prompt is read
        one.release()
        assert not one.ledger.prompts
        with torch.no_grad():
            for weight in actor.parameters():
                weight.mul_(1.5)
        for some in (rows[2:], rows[:2]):
            known = [session.tokens(row) for row in some]
            found = session.sample(some, uniform[some], limit, Way(-1))
            other = sampler(actor).sample(known, [1, 1], uniform[some], limit, Way(-1))
            assert torch.equal(found.tokens, other.tokens)
            torch.testing.assert_close(found.logp, other.logp, atol=1e-9, rtol=0)
    assert is_clean(one)


def test_a_prompt_that_nobody_reads_gives_way_too() -> None:
    one = sampler(small_actor(), (8, 9, 4, 2))
    with Session(one) as session:
        rows = session.open([[WORDS.bos, *[3] * 12], [WORDS.bos, *[4] * 12]], [2, 2])
        for row in (rows[0], rows[2], rows[1], rows[3]):
            session.sample([row], numbers(1, 5), torch.tensor([5]), Way(-1))
            session.close([row])
    assert is_clean(one)


def test_rows_that_rest_lose_their_pages_first(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[CachedRow] = []
    part = Ledger.part
    monkeypatch.setattr(Ledger, "part", lambda self, row: (lost.append(row), part(self, row))[1])
    one = sampler(small_actor(), (8, 14, 4, 2))
    with Session(one) as session:
        rows = session.open([[WORDS.bos, 3], [WORDS.bos, 4]], [2, 2])
        for _ in range(2):
            for some in (rows[:2], rows[2:]):
                session.sample(some, numbers(2, 9), torch.full((2,), 9), Way(-1))
        assert {session.rows.index(row) for row in lost} == set(rows), "each pair gave way to the other"
        assert all(len(session.tokens(row)) == 20 for row in rows)
    assert is_clean(one)


def test_only_what_is_new_is_read() -> None:
    one = sampler(small_actor())
    seen: list[int] = []
    extend, prefill = one.extend, one.prefill
    one.extend = lambda rows: (seen.append(sum(len(r.own) - r.read for r in rows)), extend(rows))[1]  # type: ignore[method-assign]
    one.prefill = lambda prompts: (seen.append(sum(len(p.tokens) for p in prompts)), prefill(prompts))[1]  # type: ignore[method-assign]
    with Session(one) as session:
        rows = session.open([[WORDS.bos, 3, 4, 5]], [6])
        limit = torch.full((6,), 3)
        session.sample(rows, numbers(6, 3), limit, Way(-1))
        assert [num for num in seen if num] == [4], "the prompt, once"
        session.extend(rows, [[7, 8]] * 6)
        session.sample(rows, numbers(6, 3), limit, Way(-1))
        assert [num for num in seen if num] == [4, 18], "the last token of each row, and its reply"


def test_a_kept_row_ends_at_a_stop_string_and_goes_on() -> None:
    actor = small_actor()
    prompt, uniform = [WORDS.bos, 5], numbers(1, 40)
    free = sampler(actor).sample([prompt], [1], uniform, torch.tensor([20]), Way(-1))
    text = free.tokens[0].tolist()
    stop = Stop(letters, (letters(text[4:6]),))
    with Session(sampler(actor)) as session:
        rows = session.open([prompt], [1])
        cut = session.sample(rows, uniform, torch.tensor([20]), Way(-1), stop)
        end = int(cut.length)
        assert end == slow_end(text, stop)
        again = session.sample(rows, uniform[:, end:], torch.tensor([20 - end]), Way(-1))
    assert [*cut.tokens[0, :end].tolist(), *again.tokens[0].tolist()] == text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("how", [Narrowing(), Narrowing(temperature=0.8, top_p=0.9)], ids=str)
@pytest.mark.parametrize("name", ["twenty-questions-2", "calculator-1"])
def test_conversations_through_a_session_are_those_of_the_actors_cache(
    name: str, how: Narrowing, size: Any, through: Any
) -> None:
    task = catalogue.find_task(name)
    who = how.wrap(small_actor(task))
    starts, samples = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    plain = task.play(who, starts, samples, Draw(2), split=0, greedy=False)
    made = through(size)
    mine = task.play(who, starts, samples, Draw(2), split=0, greedy=False)
    same(mine, plain)
    assert torch.equal(mine.turn, plain.turn)
    assert all(map(is_clean, made))


@pytest.mark.parametrize("greedy", [False, True])
def test_red_teaming_and_narrowing_go_through_the_sampler(greedy: bool, through: Any) -> None:
    task = catalogue.find_task("red-teaming")
    who = Narrowing(temperature=0.8, top_k=9).wrap(small_actor(task))
    starts, samples = np.repeat(np.arange(4), 2), np.tile(np.arange(2), 4)
    plain = task.play(who, starts, samples, Draw(2), split=0, greedy=greedy)
    made = through(SIZES[2])
    same(task.play(who, starts, samples, Draw(2), split=0, greedy=greedy), plain)
    assert made


@pytest.mark.parametrize("size", SIZES)
def test_narrowed_text_does_not_depend_on_who_decodes_beside(size: Any, through: Any) -> None:
    rollout = Narrowed(Episodes(5, 4), Narrowing(temperature=1.5, top_k=7, top_p=0.9, min_p=0.01))
    task = replace(TASK, max_tokens=NEW)
    actor = small_actor()
    plain = rollout(gathering(task, actor, np.arange(5), Draw(1)), {})
    made = through(size)
    same(rollout(gathering(task, actor, np.arange(5), Draw(1)), {}), plain)
    assert made, "the scheduler wrote it"


def test_nothing_is_released_where_there_is_nothing() -> None:
    actor = small_actor()
    actor.release()
    assert actor.sampler.held is None


@pytest.mark.parametrize("size", SIZES)
def test_partners_with_sessions_are_asked_while_the_sampler_writes(through: Any, size: Any) -> None:
    """The same tokens as with the actor's own cache, and the replies of rows that end early are asked for early."""
    partner = Counters()
    task = task_of(partner)
    actor = small_actor(task)
    starts, samples = np.arange(12) % 4, np.arange(12) // 4
    alone = task.play(actor, starts, samples, Draw(3), split=0, greedy=False)
    through(size)
    record = task.play(actor, starts, samples, Draw(3), split=0, greedy=False)
    assert torch.equal(record.action, alone.action)
    assert torch.allclose(record.logp, alone.logp, atol=1e-5)
    assert torch.equal(record.column("outcome/value"), alone.column("outcome/value"))


@pytest.mark.parametrize("size", SIZES)
def test_the_host_is_told_of_a_result_when_it_has_ended(size: tuple[int, int, int, int]) -> None:
    told: dict[int, list[int]] = {}
    with Session(sampler(small_actor(), size)) as session:
        rows = session.open([[1, 5, 6], [1, 7]], [3, 3])
        found = session.sample(rows, numbers(6, NEW), torch.full((6,), NEW), Way(2), ended=told.__setitem__)
    assert told == {row: found.tokens[row, : int(found.length[row])].tolist() for row in range(6)}
