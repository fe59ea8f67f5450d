"""Windows of logged episodes, and single transitions gathered from packed columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.slots import Scene
from assay.ops import random
from assay.parts import Log, Logged, Mixed, Windows
from assay.parts.sources.logged import Packed, gathered, unstacked
from assay.parts.sources.windows import places_of
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pointmaze import LEVELS

LOG = Log(episodes=7, noise=0.6)
TASK = cartpole()


def episodes() -> list[dict[str, Tensor]]:
    """The rows of each episode of the log, from its plain transitions."""
    columns, found, begin = LOG.columns(TASK), [], 0
    ends = (columns["terminal"] | columns["truncated"])[:, 0]
    for end in ends.nonzero().squeeze(1).tolist():
        found.append({name: column[begin : end + 1] for name, column in columns.items()})
        begin = end + 1
    return found


def batches(source: Logged, task: object = TASK, step: int = 0) -> list[Experience]:
    scene = Scene(task, draw=Draw(5, (step,)))  # type: ignore[arg-type]
    return list(source(scene, source.init(scene)))


def test_a_window_is_a_piece_of_one_episode_with_its_own_returns_to_go() -> None:
    known, seen_short, seen_whole = episodes(), 0, 0
    starts = torch.tensor([0, *[len(one["reward"]) for one in known]]).cumsum(0)
    for batch in batches(Windows((LOG,), batch=64, updates=9, length=12)):
        for row in range(len(batch)):
            first = int(batch.column("window")[row])
            episode = int(torch.searchsorted(starts, first, right=True)) - 1
            one, begin = known[episode], first - int(starts[episode])
            num = min(12, len(one["reward"]) - begin)
            seen_short, seen_whole = seen_short + (num < 12), seen_whole + (num == 12)
            assert batch.mask[row].tolist() == [True] * num + [False] * (13 - num)
            shown = batch.context["observation"][row]
            assert torch.equal(shown[:num], one["context.observation"][begin : begin + num, 0])
            assert torch.equal(shown[num], one["context.observation"][begin + num - 1, 1])
            assert torch.equal(batch.action[row, :num], one["action"][begin : begin + num, 0])
            assert torch.equal(batch.terminal[row, :num], one["terminal"][begin : begin + num, 0])
            for place in range(num):
                later = one["reward"][begin + place :, 0].double().sum()
                assert float(batch.context["return_to_go"][row, place]) == pytest.approx(float(later))
            assert batch.context["time"][row, : num + 1].tolist() == list(range(begin, begin + num + 1))
            before = [0, *one["action"][:, 0].tolist()][begin : begin + num + 1]
            assert batch.context["previous_action"][row, : num + 1].tolist() == before
            for column in (batch.action, batch.reward, batch.terminal, batch.truncated, batch.logp):
                assert not column[row, num:].any()
            assert not shown[num + 1 :].any()
    assert seen_short
    assert seen_whole


def test_returns_to_go_of_three_rewards_are_their_sums_from_each_on() -> None:
    columns = LOG.columns(TASK)
    reward = torch.tensor([1.0, 2.0, 3.0, 10.0])
    columns = {name: column[:4].clone() for name, column in columns.items()}
    columns["reward"][:, 0], columns["reward"][:, 1] = reward, 99.0
    columns["truncated"][2, 0] = True
    found = places_of(columns)
    assert found["context.return_to_go"].tolist() == [6.0, 5.0, 3.0, 0.0, 10.0, 0.0, 0.0]
    assert found["context.previous_reward"].tolist() == [0.0, 1.0, 2.0, 3.0, 0.0, 10.0, 0.0]
    assert found["place"].tolist() == [0, 1, 2, 4]
    assert found["last"].tolist() == [2, 2, 2, 4]


def test_a_gap_between_rows_ends_an_episode() -> None:
    columns = LOG.columns(TASK)
    keep = torch.tensor([0, 1, 2, 5, 6, 7])
    found = places_of({name: column[keep] for name, column in columns.items()})
    assert found["last"].tolist() == [2, 2, 2, 6, 6, 6]


def test_the_seed_decides_the_windows_and_steps_differ() -> None:
    source = Windows((LOG,), batch=8, updates=3, length=4)
    one, again, other = (batches(source, step=step) for step in (0, 0, 1))
    assert all(torch.equal(a.column("window"), b.column("window")) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one[0].column("window"), other[0].column("window"))
    assert not torch.equal(one[0].column("window"), one[1].column("window"))


def test_windows_of_one_decision_are_transitions() -> None:
    windows, pairs = (batches(kind((LOG,), batch=32, updates=9)) for kind in (OneDecision, Logged))
    for window, pair in zip(windows, pairs, strict=True):
        assert torch.equal(window.context["observation"], pair.context["observation"])
        for name in ("action", "reward", "terminal", "truncated"):
            assert torch.equal(getattr(window, name)[:, 0], getattr(pair, name)[:, 0])
        assert torch.equal(window.mask, pair.mask)
        assert window.source is not None
        assert pair.source is not None
        assert torch.equal(window.source, pair.source)


def OneDecision(logs: tuple[Log, ...], batch: int, updates: int) -> Windows:
    return Windows(logs, batch, updates, length=1)


def test_goals_are_later_states_of_the_windows_own_episode() -> None:
    task = LEVELS["pointmaze-umaze"]()
    source = Windows((LOG,), batch=50, updates=1, length=5, goals=Mixed(current=0.0, future=1.0, discount=1.0))
    (batch,), (plain,) = batches(source, task), batches(replace(source, goals=None), task)
    log = source.init(Scene(task, draw=Draw(5, (0,))))["contents"].columns[0]
    assert not torch.equal(batch.context["goal"], plain.context["goal"])
    for row in range(len(batch)):
        first = int(batch.column("window")[row])
        later = log["context.achieved"][int(log["place"][first]) + 1 : int(log["last"][first]) + 2]
        goal = batch.context["goal"][row]
        assert bool((goal == goal[0]).all())
        assert bool((later == goal[0]).all(1).any())


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(AssayError, match=r"source.length is 0"):
        Windows(length=0)
    with pytest.raises(AssayError, match="one dataset"):
        Windows((LOG, LOG), goals=Mixed())
    with pytest.raises(AssayError, match="positions in goal space"):
        Windows((LOG,), goals=Mixed()).init(Scene(TASK))


def test_packed_columns_give_the_rows_of_plain_ones_and_integers_those_of_each_update() -> None:
    columns = LOG.columns(TASK)
    index = torch.tensor([[3, 0, 3], [9, 4, 1]])
    plain, packed = gathered(columns, index), gathered(Packed(columns), index)
    assert list(plain) == list(packed)
    assert all(torch.equal(plain[name], packed[name]) and plain[name].dtype == packed[name].dtype for name in plain)
    found = random.integers_of(Draw(3, (8, 4)), (5, 2, 7), 1000)
    assert all((found[u] == random.integers(Draw(3, (8, 4, u, 2)), 1000, 7)).all() for u in range(5))


def test_a_stack_of_batches_comes_apart() -> None:
    source = Logged((LOG, replace(LOG, origin=3)), batch=6, updates=11)
    scene = Scene(TASK, draw=Draw(5, (0,)))
    state = source.init(scene)
    for update, batch in enumerate(source(scene, state)):
        index = [
            torch.from_numpy(random.integers(Draw(5, (0, 4, update, place)), len(log["mask"]), 6))
            for place, log in enumerate(state["contents"].columns)
        ]
        alone = source.rows(state["contents"].columns, index)
        assert batch.mask.shape == (12, 2)
        assert torch.equal(batch.reward, alone.reward)
        assert torch.equal(batch.context["observation"], alone.context["observation"])
        assert batch.source is not None
        assert batch.source.tolist() == [4] * 6 + [3] * 6
    assert next(unstacked(alone.map(lambda column: column.unsqueeze(0)))).mask.shape == (12, 2)


def test_numbered_states_have_windows_too() -> None:
    columns = {name: column[:3] for name, column in LOG.columns(TASK).items() if name != "context.observation"}
    found = places_of(columns | {"context.state": torch.tensor([[4, 5], [5, 1], [2, 3]])})
    assert found["context.state"].tolist() == [4, 5, 1, 2, 3, 0]
    assert found["context.previous_action"].dtype == torch.int64


def test_batches_of_several_seeds_are_stacked_from_plain_tables_too() -> None:
    source = Windows((LOG,), batch=4, updates=1, length=3)
    scene = Scene(TASK, draw=Draw(5))
    tables, _ = source.tables(source.init(scene))
    index = torch.tensor([[0, 3, 11, 2], [7, 7, 1, 0]])
    whole = source.rows([dict(table) for table in tables], [index])
    for place in range(2):
        alone = source.rows(tables, [index[place]])
        assert torch.equal(whole.context["return_to_go"][place], alone.context["return_to_go"])
        assert torch.equal(whole.mask[place], alone.mask)
        assert torch.equal(whole.action[place], alone.action)
