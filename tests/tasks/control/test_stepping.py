"""Whole episodes of stepped tasks: starts, splits, groups, masks, scores and demonstrations."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw, Origin
from assay.core.slots import DemonstratedTask, SteppingTask, Task
from assay.core.spaces import Box, Context, Discrete
from assay.ops.random import uniform
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.stepping import Scripted, SteppedTask, start_seeds
from assay.tasks.tabular.bandit import bandit
from assay.tasks.tabular.table import chain, gridworld, table_of

TASKS = [cartpole(), pendulum(), chain(4), gridworld(3, slip=0.2), bandit((0.0, 1.0), noise=0.5)]
by_name = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


class Chaotic:
    """An actor that takes its actions from the uniform numbers, whatever it sees."""

    num_draws = 1

    def __init__(self, task: SteppedTask) -> None:
        self.space = task.spec.action

    def act(self, context: Context, uniform: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        num = len(next(iter(context.values())))
        number = torch.full((num, 1), 0.5) if uniform is None else uniform
        if isinstance(self.space, Discrete):
            return (number[:, 0] * self.space.n).long(), torch.full((num,), -1.0)
        return 4 * number.expand(-1, self.space.size) - 2, torch.full((num,), -1.0)


def episodes(task: SteppedTask, starts: list[int], samples: list[int], split: int = 0, greedy: bool = False):
    return task.play(Chaotic(task), np.array(starts), np.array(samples), Draw(11), split=split, greedy=greedy)


@by_name
def test_a_stepped_task_has_all_three_faces(task: SteppedTask) -> None:
    assert isinstance(task, Task)
    assert isinstance(task, SteppingTask)
    assert isinstance(task, DemonstratedTask)
    assert hash(task) == hash(replace(task))


@by_name
def test_the_spec_fits_what_is_seen(task: SteppedTask) -> None:
    context = task.simulate(3).reset(np.arange(3))
    if isinstance(task.spec.observation, Box):
        (seen,) = (context["observation"],)
        assert seen.shape == (3, task.spec.observation.size)
        assert seen.dtype == torch.float32
        assert bool((seen <= torch.tensor(task.spec.observation.high)).all())
    else:
        assert context["state"].dtype == torch.int64
        assert int(context["state"].max()) < task.spec.observation.n


@by_name
def test_members_of_a_group_share_their_start_and_starts_differ_between_splits(task: SteppedTask) -> None:
    train, held_out = episodes(task, [4, 4, 9], [0, 1, 0]), episodes(task, [4, 4, 9], [0, 1, 0], split=1)
    for name, column in train.context.items():
        assert torch.equal(column[0, 0], column[1, 0])
        if name == "observation":
            assert not torch.equal(column[0, 0], column[2, 0])
            assert not torch.equal(column[0, 0], held_out.context[name][0, 0])
    assert train.group.tolist() == [4, 4, 9]
    assert train.column("start").tolist() == [4, 4, 9]


def test_seeds_of_the_splits_never_meet() -> None:
    train, held_out = start_seeds(0, np.arange(100_000)), start_seeds(1, np.arange(100_000))
    assert train.min() >= 0
    assert len(np.unique(train)) == 100_000
    assert bool((train % 2 == 0).all())
    assert bool((held_out % 2 == 1).all())


def test_the_first_state_is_the_hash_of_split_and_ordinal() -> None:
    seed = start_seeds(1, np.array([17]))[0]
    expected = 0.1 * uniform(Draw(int(seed)), 0, np.arange(4)) - 0.05
    seen = episodes(cartpole(), [17], [0], split=1).context["observation"][0, 0]
    np.testing.assert_array_equal(seen.numpy(), expected.astype(np.float32))


@by_name
def test_an_episode_does_not_depend_on_its_neighbours(task: SteppedTask) -> None:
    together, alone = episodes(task, [1, 2, 3], [0, 0, 5]), episodes(task, [3], [5])
    length = int(alone.mask.sum())
    assert int(together.mask[2].sum()) == length
    assert torch.equal(together.action[2, :length], alone.action[0, :length])
    assert torch.equal(together.reward[2, :length], alone.reward[0, :length])
    for name, column in alone.context.items():
        assert torch.equal(together.context[name][2, : length + 1], column[0, : length + 1])


@by_name
def test_rows_are_decisions_then_the_final_context(task: SteppedTask) -> None:
    experience = episodes(task, [1, 2, 3, 4], [0, 0, 0, 0])
    ended = experience.terminal | experience.truncated
    for row in range(4):
        length = int(experience.mask[row].sum())
        assert bool(experience.mask[row, :length].all())
        assert bool(ended[row, length - 1])
        assert int(ended[row].sum()) == 1
        assert experience.num_columns > length
        assert not experience.reward[row, length:].any()


@by_name
def test_the_score_is_the_undiscounted_return(task: SteppedTask) -> None:
    experience = episodes(task, [1, 2, 3], [0, 0, 0])
    judged = task.judge(experience, 0)
    torch.testing.assert_close(judged.column("score"), (experience.reward * experience.mask).sum(1))
    assert judged.reward is experience.reward
    for row in range(3):
        told = task.describe(judged, row)
        assert told["return"] == pytest.approx(float(judged.column("score")[row]))
        assert told["length"] == int(experience.mask[row].sum())
        assert len(told["actions"]) == len(told["rewards"]) == min(500, told["length"])


@by_name
def test_demonstrations_say_that_the_policy_did_not_act(task: SteppedTask) -> None:
    shown = task.demonstrate(np.arange(3), 0)
    assert shown.source.tolist() == [Origin.DATASET] * 3
    assert shown.source.dtype == torch.int64
    assert not shown.logp.any()
    again = task.demonstrate(np.arange(3), 0)
    assert torch.equal(shown.action, again.action)


def test_a_task_without_an_expert_says_so() -> None:
    with pytest.raises(AssayError, match=r"'cartpole' has no scripted expert.*--data FILE.*expert="):
        replace(cartpole(), expert=None).demonstrate(np.arange(2), 0)


def test_a_scripted_actor_takes_part_in_play_like_any_other() -> None:
    task = chain(4)
    actor = Scripted(lambda context: torch.ones_like(context["state"]))
    experience = task.play(actor, np.arange(2), np.zeros(2, int), Draw(0), split=0, greedy=False)
    assert experience.context["state"].tolist() == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert experience.mask.tolist() == [[True, True, True, False]] * 2
    assert experience.reward.tolist() == [[0, 0, 1, 0]] * 2
    assert experience.terminal.tolist() == [[False, False, True, False]] * 2


def test_only_tables_have_arrays() -> None:
    assert table_of(chain(4)).P.shape == (4, 2, 4)
    assert table_of(chain(4)).R.tolist() == [[0, 0], [0, 0], [0, 1], [0, 0]]
    with pytest.raises(AssayError, match="'cartpole' is not a table"):
        table_of(cartpole())


def test_the_exact_value_of_a_policy_is_what_play_gives_on_average() -> None:
    task = gridworld(3, slip=0.3)
    table = table_of(task)
    state, expected = table.initial.clone(), 0.0
    for _ in range(table.horizon):
        state = state * ~table.terminal
        expected += float(state @ table.R.gather(1, table.optimal[:, None])[:, 0])
        state = torch.einsum("s,st->t", state, table.P[torch.arange(9), table.optimal])
    scores = task.judge(task.demonstrate(np.arange(20_000), 0), 0).column("score")
    assert abs(float(scores.mean()) - expected) < 4 * float(scores.std()) / 20_000**0.5
