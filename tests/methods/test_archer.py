"""Turns: where they begin and end, their critics against slow references, replay of whole rows, and archer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.claims import probes
from assay.claims.laws.cases import CONTROL_LAYOUTS, TOKEN_LAYOUTS, TOKENS, TORQUES, build
from assay.core.record import Draw, Experience, Progress, concatenate, pad
from assay.core.schedules import Delayed
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.archer import turns
from assay.methods.archer.base import turn_critic
from assay.methods.archer.objectives import turn_advantage
from assay.methods.archer.source import NewTurns, ReplaySequences
from assay.methods.archer.targets import TURN_VALUE, turn_td
from assay.models.bodies.transformer import Transformer
from assay.models.heads.value import ActionValue
from assay.models.model import Critic
from assay.recipes.presets import EVERY, LANGUAGE
from assay.runs import catalogue
from assay.tasks.tabular.bandit import bandit
from tests.scenes import feeding

EPISODES = probes.token_episodes(lambda tokens: float(sum(tokens)) + 0.3 * tokens[0], num_tokens=2, horizon=5, end=1)
LOGITS = torch.linspace(-1.0, 1.0, EPISODES.num_states * 2, dtype=torch.float64).view(-1, 2).cos()
RECORDS = [build(TOKENS, layout) for layout in TOKEN_LAYOUTS] + [build(TORQUES, layout) for layout in CONTROL_LAYOUTS]
RECORDS += [replace(record, turn=None) for record in RECORDS]


def slow_turns(record: Experience, row: int) -> list[list[int]]:
    """The columns of each turn of a row."""
    found: list[list[int]] = []
    last = -1
    for column in range(record.num_columns):
        if not record.mask[row, column]:
            continue
        over = last >= 0 and bool(record.terminal[row, last] | record.truncated[row, last])
        same = record.turn is not None and last >= 0 and record.turn[row, last] == record.turn[row, column]
        if same and not over:
            found[-1].append(column)
        else:
            found.append([column])
        last = column
    return found


class Models:
    """A view whose models are given functions."""

    def __init__(self, **models) -> None:
        self.models = models

    def model(self, name):
        return self.models[name]


class Numbers(torch.nn.Module):
    """A critic that says given numbers."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.values = torch.nn.Parameter(values)

    def forward(self, *_) -> torch.Tensor:
        return self.values


def numbers(record: Experience, seed: int, *lead: int) -> torch.Tensor:
    return torch.randn(*lead, *record.mask.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------- turns
@pytest.mark.parametrize("place", range(len(RECORDS)))
def test_turns_against_a_walk_over_each_row(place: int) -> None:
    record = RECORDS[place]
    begins, ends, values = torch.zeros_like(record.mask), torch.zeros_like(record.mask), numbers(record, 1)
    total = torch.zeros_like(values)
    for row in range(len(record)):
        for columns in slow_turns(record, row):
            begins[row, columns[0]] = ends[row, columns[-1]] = True
            total[row, columns] = values[row, columns].sum()
    assert torch.equal(turns.turn_begins(record), begins)
    assert torch.equal(turns.turn_ends(record), ends)
    assert torch.allclose(turns.over_turn(values, record), total, atol=1e-12)


def test_without_a_decision_there_is_no_turn() -> None:
    record = replace(RECORDS[0], mask=torch.zeros_like(RECORDS[0].mask))
    assert not turns.turn_begins(record).any()
    assert not turns.turn_ends(record).any()
    assert not turns.over_turn(numbers(record, 1), record).any()
    assert int(turn_td().count(record)) == int(TURN_VALUE.count(record)) == 0


# ---------------------------------------------------------------------------------------------------- critics
@pytest.mark.parametrize("place", range(len(RECORDS)))
def test_turn_td_against_a_slow_reference(place: int) -> None:
    record = RECORDS[place]
    q, value = Numbers(numbers(record, 2, 2)), numbers(record, 3)
    loss = turn_td(0.9)(record, Models(q=q, value_target=lambda context: value))
    expected, count = 0.0, 0
    for row in range(len(record)):
        walked = slow_turns(record, row)
        for k, columns in enumerate(walked):
            end = columns[-1]
            after = 0.0
            if not record.terminal[row, end]:
                goes_on = k + 1 < len(walked) and not record.truncated[row, end]
                there = walked[k + 1][0] if goes_on else end + 1
                after = float(value[row, there]) if there < record.num_columns else 0.0
            target = float(record.reward[row, columns].sum()) + 0.9 * after
            expected += 0.5 * sum((float(q.values[i, row, end].detach()) - target) ** 2 for i in range(2))
            count += 1
    assert float(loss.sum.detach()) == pytest.approx(expected)
    assert int(loss.count) == count
    (slope,) = torch.autograd.grad(loss.sum, q.values)
    assert not slope[:, ~turns.turn_ends(record)].any()


@pytest.mark.parametrize("place", range(len(RECORDS)))
def test_turn_values_against_a_slow_reference(place: int) -> None:
    record = RECORDS[place]
    q, value = numbers(record, 2, 2), Numbers(numbers(record, 3))
    loss = TURN_VALUE(record, Models(q_target=lambda context, action: q, value=value))
    expected = 0.0
    for row in range(len(record)):
        for columns in slow_turns(record, row):
            worth = float(q[:, row, columns[-1]].min())
            expected += 0.5 * (float(value.values[row, columns[0]].detach()) - worth) ** 2
    assert float(loss.sum.detach()) == pytest.approx(expected)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_exact_values_are_where_the_critics_rest(length: int) -> None:
    record = probes.exact_values(EPISODES, LOGITS, length)
    value, q = Numbers(record.column("value")), record.column("q").expand(2, *record.mask.shape)
    models = Models(
        q=lambda context, action: q,
        q_target=lambda context, action: q,
        value_target=lambda context: record.column("value"),
        value=value,
    )
    assert float(turn_td(1.0)(record, models).sum) == pytest.approx(0.0, abs=1e-20)
    chance = record.logp.sum(1).exp()
    error = (record.column("value") - turns.over_turn(q[0] * turns.turn_ends(record), record)) * turns.turn_begins(
        record
    )
    total = torch.zeros(EPISODES.num_states, dtype=torch.float64)
    total.scatter_add_(0, record.context["state"].flatten(), (chance.unsqueeze(1) * error).flatten())
    assert float(total.abs().max()) == pytest.approx(0.0, abs=1e-12)


def test_a_token_critic_reads_the_utterance_and_nothing_after_it() -> None:
    task = catalogue.find_task("twenty-questions-2")
    model = Critic(Transformer(16, 1, 2), ActionValue()).build(task.spec)
    torch.nn.init.normal_(model.get_parameter("body.layers"))
    record = task.demonstrate(np.arange(3), 0)
    plain = model(record.context, record.action)
    end = int(turns.turn_ends(record)[0].nonzero()[0])
    for column, is_seen in ((end, True), (end - 1, True), (end + 1, False)):
        tokens = record.context["tokens"].clone()
        tokens[0, column] = 7
        changed = model({**record.context, "tokens": tokens}, tokens)
        assert torch.equal(changed[:, 0, end], plain[:, 0, end]) != is_seen
    assert plain.shape == (2, *record.mask.shape)


# ---------------------------------------------------------------------------------------------------- credit
@pytest.mark.parametrize("place", range(len(RECORDS)))
def test_one_advantage_a_turn(place: int) -> None:
    record = RECORDS[place].add({"q": numbers(RECORDS[place], 5), "value": numbers(RECORDS[place], 6)})
    expected = torch.zeros_like(record.reward)
    for row in range(len(record)):
        for columns in slow_turns(record, row):
            worth, baseline = record.column("q")[row, columns[-1]], record.column("value")[row, columns[0]]
            expected[row, columns] = worth - baseline
    assert torch.allclose(turn_advantage(record), expected)


# ---------------------------------------------------------------------------------------------------- replay
def test_replayed_rows_are_whole_and_as_wide_as_the_longest() -> None:
    task = catalogue.find_task("twenty-questions-2")
    part, state = ReplaySequences(capacity=8, batch=16, updates=2), ReplaySequences().init(Scene(task))
    short, long = task.demonstrate(np.arange(4), 0), task.demonstrate(np.arange(4, 8), 0)
    long = pad(long, 40)
    long = replace(long, context={**long.context, "valid": torch.ones_like(long.mask)})
    assert len(list(part(feeding(task, short, Draw(0)), state))) == 2
    batches = list(part(feeding(task, long, Draw(1)), state))
    known = [row for record in (short, long) for row in pad(record, 40).rows(slice(0, 4)).action.tolist()]
    for batch in batches:
        assert [row for row in pad(batch, 40).action.tolist() if row not in known] == []
        assert batch.turn is not None
        assert batch.extra == {}
    seen = {tuple(row) for batch in batches for row in pad(batch, 40).action.tolist()}
    assert len(seen) > 4
    later = list(part(feeding(task, concatenate([short, short]), Draw(2)), state))
    assert {tuple(row) for row in later[0].action.tolist()} <= {
        tuple(row) for row in pad(short, 48).trim().action.tolist()
    }


# ---------------------------------------------------------------------------------------------------- archer
def test_the_policy_waits_for_its_critics() -> None:
    rate = Delayed(0.5, share=0.2)
    assert [rate.at(Progress(step=step, num_steps=10)) for step in (0, 1, 2, 9)] == [0.0, 0.0, 0.5, 0.5]


@pytest.mark.parametrize("world", EVERY, ids=[world.name for world in EVERY])
def test_q_learns_from_replay_and_value_and_policy_from_new_turns(world) -> None:
    recipe = turn_critic(world)
    assert [[stage.name for stage in feed.stages] for feed in recipe.feeds] == [["q"], ["value", "policy"], []]
    assert recipe.stages[1].source == NewTurns(recipe.stages[0].source)


def test_archer_finds_the_best_arm_through_its_critics() -> None:
    task = bandit()
    recipe = catalogue.recipe_for("archer", task, {})
    loop = Loop(recipe, task, seed=0, num_steps=20)
    for _ in range(20):
        loop.step()
    assert float(loop.actor.body.table.detach().softmax(-1)[0, -1]) > 0.8


def test_archer_takes_a_step_on_conversations() -> None:
    task = catalogue.find_task("twenty-questions-2")
    recipe = catalogue.recipe_for("archer", task, {"rollout.num_starts": 4, "rollout.group_size": 2})
    small = {"actor.width": 16, "critics.q.width": 16, "critics.value.width": 16}
    small |= {"stages.q.source.updates": 2, "stages.value.source.replay.updates": 2}
    small |= {"stages.policy.source.replay.updates": 2}
    for path, value in small.items():
        recipe = recipe.set(path, value)
    loop = Loop(recipe, task, seed=0, num_steps=2)
    alarms = [alarm for _ in range(2) for alarm in loop.step().alarms]
    assert not [alarm for alarm in alarms if alarm.stop]
    assert loop.engine.updates == 2 * (2 + 2 + 1)
    assert recipe.critics["q"] == Critic(Transformer(16, layers=1), ActionValue())
    assert LANGUAGE in catalogue.methods()["archer"].presets
