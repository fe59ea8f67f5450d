"""Replay over several steps, by priority and with goals in hindsight, against slow references."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import ALONE, Scene
from assay.parts.aggregations import TokenMean
from assay.parts.importance import ByImportance
from assay.parts.predictions import OfAction
from assay.parts.sources.hindsight import Hindsight
from assay.parts.sources.prioritised import Prioritised
from assay.parts.sources.replay import Replay
from assay.parts.targets.one_step import one_step_target
from assay.tasks.tabular.grids import FOUR_ROOMS, grid_task

Step = tuple[int, int, int, str]
"""Environment, episode, time, and how the decision ended: '' (it did not), terminal or truncated."""


class Walks:
    """Environments whose episodes have random lengths: what is decided when is in the observation."""

    def __init__(self, num: int = 3, seed: int = 0) -> None:
        self.draw = torch.Generator().manual_seed(seed)
        self.num, self.places = num, [[0, 0, self.length()] for _ in range(num)]
        self.steps: list[Step] = []

    def length(self) -> int:
        """Returns the length of a new episode."""
        return int(torch.randint(1, 9, (), generator=self.draw))

    def fragment(self, columns: int = 5) -> Experience:
        """Returns the next columns of every environment; after an end comes a column that is no decision."""
        kinds: list[list[tuple[int, int, str | None]]] = []
        for env, place in enumerate(self.places):
            row: list[tuple[int, int, str | None]] = []
            while len(row) < columns:
                episode, time, length = place
                how = "" if time + 1 < length else ("terminal" if episode % 2 else "truncated")
                row.append((episode, time, how))
                self.steps.append((env, episode, time, how))
                place[1] += 1
                if how:
                    row.append((episode, time + 1, None))
                    place[:] = [episode + 1, 0, self.length()]
            if len(row) == columns:
                row.append((place[0], place[1], None))
            kinds.append(row[: columns + 1])
        seen = torch.tensor([[(env, one[0], one[1]) for one in row] for env, row in enumerate(kinds)]).float()
        mask = torch.tensor([[one[2] is not None for one in row] for row in kinds])
        ends, cuts = (
            torch.tensor([[one[2] == how for one in row] for row in kinds]) for how in ("terminal", "truncated")
        )
        reward = 100.0 * seen[..., 0] + 10.0 * seen[..., 1] + seen[..., 2] + 1.0
        context = {"observation": seen, "achieved": seen[..., 2:], "goal": -torch.ones_like(seen[..., 2:])}
        zero = torch.zeros_like(reward)
        return Experience(context, zero.unsqueeze(-1), mask, zero, reward * mask, ends, cuts)


def stepped(
    source: Any, steps: int, state: State | None = None, first: int = 0, **given: Any
) -> tuple[list[Experience], State]:
    """Returns the batches of these steps, and the state afterwards."""
    walks, found = Walks(), list[Experience]()
    state = source.init(ALONE) if state is None else state
    for number in range(first + steps):
        fresh = walks.fragment()
        if number >= first:
            found += list(source(Scene(draw=Draw(1, (number,)), fresh=fresh, **given), state))
    return found, state


def same(left: Experience, right: Experience) -> bool:
    """Returns whether two records hold the same numbers."""
    one, other = dict(left.per_decision()), dict(right.per_decision())
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("capacity", [10_000, 31])
@pytest.mark.parametrize("steps", [2, 3, 7])
def test_windows_are_those_of_a_slow_walk_along_each_episode(steps: int, capacity: int) -> None:
    source = Replay(capacity=capacity, batch=64, warmup=0, steps=steps, discount=0.9)
    found, state = stepped(source, 12)
    walks = Walks()
    for number, batch in enumerate(found):
        walks.fragment()
        known = {(env, episode, time): how for env, episode, time, how in walks.steps}
        assert number < 12
        for row in range(len(batch)):
            env, episode, time = (int(one) for one in batch.context["observation"][row, 0])
            total, ahead = 0.0, 0
            while ahead < steps:
                assert (env, episode, time + ahead) in known
                total += 0.9**ahead * (100.0 * env + 10.0 * episode + time + ahead + 1.0)
                ahead += 1
                if known[env, episode, time + ahead - 1] or (env, episode, time + ahead) not in known:
                    break
            how = known[env, episode, time + ahead - 1]
            assert float(batch.column("steps_ahead")[row, 0]) == ahead
            assert float(batch.reward[row, 0]) == pytest.approx(total, rel=1e-6)
            assert bool(batch.terminal[row, 0]) == (how == "terminal")
            assert bool(batch.truncated[row, 0]) == (how == "truncated")
            assert batch.context["observation"][row, 1].tolist() == [env, episode, time + ahead]
            assert batch.mask[row].tolist() == [True, False]
    assert state["size"] == min(capacity, len(walks.steps))


def test_one_step_is_replay_bit_for_bit_and_keeps_no_chain() -> None:
    plain, state = stepped(Replay(batch=16, warmup=0), 6)
    other, _ = stepped(Replay(batch=16, warmup=0, steps=1, discount=0.5), 6)
    assert all(same(one, two) for one, two in zip(plain, other, strict=True))
    assert set(state) == {"columns", "next", "size"}
    assert "following" not in state["columns"]


def test_targets_bootstrap_with_the_discount_of_all_steps_of_a_window() -> None:
    found, _ = stepped(Replay(batch=32, warmup=0, steps=3, discount=0.9), 6)
    now = found[-1].now
    aim = one_step_target(now, torch.ones_like(now.reward), 0.9)
    expected = now.reward + 0.9 ** now.column("steps_ahead") * ~now.terminal
    assert torch.allclose(aim, expected)
    assert len(set(now.column("steps_ahead").flatten().tolist())) > 1


def test_a_window_does_not_go_on_where_another_episode_stands_in_the_row() -> None:
    """Two steps of different walks: the second does not continue the first."""
    source = Replay(batch=8, warmup=0, steps=9)
    state = source.init(ALONE)
    for seed in (0, 5):
        list(source(Scene(draw=Draw(1), fresh=Walks(1, seed).fragment()), state))
    before = Walks(1, 0)
    before.fragment()
    assert int(state["columns"]["following"][len(before.steps) - 1]) == -1


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Replay(steps=0), "source.steps is 0"),
        (lambda: Prioritised(exponent=-1.0), "source.exponent is -1"),
        (lambda: Hindsight(steps=2), "source.steps is 2"),
        (lambda: Hindsight(relabel=1.5), "source.relabel is 1.5"),
    ],
)
def test_settings_that_cannot_work_are_refused(make: Any, told: str) -> None:
    with pytest.raises(AssayError, match=told):
        make()


# ---------------------------------------------------------------------------------------------------- priorities
@dataclass
class Alone:
    """Models by name."""

    known: dict[str, Any]

    def model(self, name: str) -> Any:
        """Returns the model."""
        return self.known[name]

    def over(self, name: str, experience: Experience, function: Any) -> Tensor:
        """Evaluates it on all rows."""
        found: Tensor = function(self.model(name), experience)
        return found


def twins(context: Any, action: Tensor) -> Tensor:
    """Two critics: half and twice the time of the observation."""
    time = context["observation"][..., 2]
    return torch.stack((0.5 * time, 2.0 * time))


MODELS = Alone({"q": twins, "value": lambda context: context["observation"][..., 2]})


def test_exponent_0_is_replay_bit_for_bit() -> None:
    plain, _ = stepped(Replay(batch=16, warmup=0), 6)
    found, _ = stepped(Prioritised(batch=16, warmup=0, exponent=0.0), 6, models=MODELS)
    for one, two in zip(plain, found, strict=True):
        assert torch.equal(two.column("importance"), torch.ones_like(two.reward))
        assert same(one, two.with_columns(extra={}))


def test_priorities_are_the_errors_of_the_batch_and_draws_follow_them() -> None:
    source = Prioritised(batch=64, warmup=0, updates=200, exponent=0.7, correction=1.0)
    found, state = stepped(source, 3, models=MODELS)
    size, ring = state["size"], state["columns"]
    value, onward = ring["context.observation"][:size, 0, 2], ring["context.observation"][:size, 1, 2]
    aim = ring["reward"][:size, 0] + 0.99 * onward * ~ring["terminal"][:size, 0]
    error = ((aim - 0.5 * value).abs() + (aim - 2.0 * value).abs()) / 2
    assert torch.allclose(state["priority"][:size].float(), error + 1e-6)  # every transition has been drawn
    share = (error.double() + 1e-6).pow(0.7)
    share = share / share.sum()
    last = found[-150:]
    keys = {tuple(one.tolist()): place for place, one in enumerate(ring["context.observation"][:size, 0])}
    drawn = torch.zeros(size)
    for batch in last:
        index = torch.tensor([keys[tuple(one.tolist())] for one in batch.context["observation"][:, 0]])
        drawn += torch.bincount(index, minlength=size)
        weight = (1.0 / share[index]).float()
        assert torch.allclose(batch.column("importance")[:, 0], weight / weight.max(), rtol=1e-4)
    assert float((drawn / drawn.sum() - share).abs().max()) < 0.01


def test_a_new_transition_has_the_largest_priority_so_far() -> None:
    source = Prioritised(batch=8, warmup=0, updates=1)
    _, state = stepped(source, 2, models=MODELS)
    largest, size = float(state["largest"]), state["size"]
    source.store({name: column[:1].clone() for name, column in state["columns"].items()}, state)
    assert float(state["priority"][size]) == pytest.approx(largest)
    assert largest > 1.0


def test_importance_weighs_a_loss_and_not_its_count() -> None:
    found, _ = stepped(Prioritised(batch=8, warmup=0), 2, models=MODELS)
    part, now = ByImportance(), found[-1].now
    assert torch.equal(part.weigh(now), now.weight * now.column("importance"))
    assert torch.equal(part.count(now), TokenMean().count(now))


@pytest.mark.parametrize("source", [Prioritised(batch=8, warmup=0, steps=3), Hindsight(batch=8, warmup=0, reach=4)])
def test_a_run_that_is_resumed_draws_the_same_batches(source: Any) -> None:
    whole, _ = stepped(source, 6, models=MODELS)
    _, state = stepped(source, 3, models=MODELS)
    rest, _ = stepped(source, 3, copy.deepcopy(state), first=3, models=MODELS)
    assert all(same(one, two) for one, two in zip(whole[3:], rest, strict=True))


# ---------------------------------------------------------------------------------------------------- hindsight
def test_relabel_0_is_replay_bit_for_bit() -> None:
    plain, _ = stepped(Replay(batch=16, warmup=0), 6)
    found, _ = stepped(Hindsight(batch=16, warmup=0, relabel=0.0, reach=9), 6)
    assert all(same(one, two) for one, two in zip(plain, found, strict=True))


def test_new_goals_are_what_later_states_of_the_episode_achieved() -> None:
    source = Hindsight(batch=512, warmup=0, relabel=0.8, reach=20, radius=0.1)
    found, _ = stepped(source, 12)
    batch, walks = found[-1], Walks()
    for _ in range(12):
        walks.fragment()
    last: dict[tuple[int, int], int] = {}
    for env, episode, time, _ in walks.steps:
        last[env, episode] = max(last.get((env, episode), 0), time + 1)
    seen, goal = batch.context["observation"][:, 0], batch.context["goal"][:, 0, 0]
    is_new = goal >= 0
    assert 0.7 < float(is_new.float().mean()) < 0.9
    for row in is_new.nonzero().flatten().tolist():
        env, episode, time = (int(one) for one in seen[row])
        assert time + 1 <= float(goal[row]) <= last[env, episode]
        there = float(goal[row]) == time + 1
        assert float(batch.reward[row, 0]) == float(there)
        assert bool(batch.terminal[row, 0]) == there
    old = ~is_new
    assert torch.equal(batch.reward[old, 0], 100.0 * seen[old, 0] + 10.0 * seen[old, 1] + seen[old, 2] + 1.0)
    first = is_new & (seen[:, 2] == 0)
    lengths = torch.tensor([last[int(one[0]), int(one[1])] for one in seen])
    apart = ((goal - 1.0) / (lengths - 1.0).clamp(min=1.0))[first & (lengths > 3)]
    assert 0.3 < float(apart.mean()) < 0.7, "all that follow are as likely"


def test_a_task_without_goals_is_refused() -> None:
    goals = grid_task("four rooms", FOUR_ROOMS, 20)
    Hindsight().init(Scene(goals))
    bare = replace(goals.spec, goal=None)

    class Bare:
        name, spec = "bare", bare

    with pytest.raises(AssayError, match="task 'bare' has no goals"):
        Hindsight().init(Scene(Bare()))  # type: ignore[arg-type]


def test_default_error_is_that_of_a_critic_of_actions() -> None:
    assert Prioritised().models == ("q", "value")
    assert Prioritised(of=OfAction("other")).models == ("other", "value")
