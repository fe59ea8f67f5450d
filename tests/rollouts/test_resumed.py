"""Episodes that continue from a record: in pieces, from a prefix, from nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay import recipes
from assay.claims import probes
from assay.rollouts.resumed_episodes import first_decisions
from assay.tasks.language.addition import addition
from assay.tasks.language.sorting import sorting
from tests.methods.rollouts import DRAW, STARTS, TASKS, actor_of, decisions


# ---------------------------------------------------------------------------------------------------- going on
@pytest.mark.parametrize("name", TASKS)
def test_going_on_from_nothing_is_playing(name: str) -> None:
    task, samples = TASKS[name], np.array([0, 2, 1])
    actor = actor_of(task)
    played = task.play(actor, STARTS, samples, DRAW, split=0, greedy=False)
    resumed = task.resume(actor, task.begin(STARTS, 0), samples, DRAW, split=0)
    for column in ("action", "mask", "logp", "reward", "terminal", "truncated", "group"):
        assert torch.equal(getattr(resumed, column), getattr(played, column)), column
    assert torch.equal(resumed.column("answer"), played.mask)


@pytest.mark.parametrize("name", TASKS)
def test_an_episode_in_pieces_is_the_episode(name: str) -> None:
    task, samples = TASKS[name], np.array([0, 2, 1])
    actor, limit = actor_of(task), 40 if name == "torques" else 3  # its episodes have 200 decisions, replayed each time
    whole = task.play(actor, STARTS, samples, DRAW, split=0, greedy=False)
    begun, pieces = task.begin(STARTS, 0), [[], [], []]
    for _ in range(task.spec.horizon):
        begun = task.resume(actor, begun, samples, DRAW, split=0, limit=limit)
        for row in range(3):
            assert len(decisions(begun, row)) <= limit
            pieces[row] += decisions(begun, row)
        if (begun.column("answer").sum(1) == whole.mask.sum(1)).all():
            break
        if name != "tokens":
            begun = begun.rows(slice(0, 3))
    assert pieces == [decisions(whole, row) for row in range(3)]


def test_unfinished_rows_are_not_judged() -> None:
    task = addition(2)
    open_rows = task.resume(actor_of(task), task.begin(STARTS, 0), np.zeros(3, np.int64), DRAW, split=0, limit=1)
    judged = task.judge(open_rows, 0)
    ended = (open_rows.action == task.tokenizer.vocabulary.eos).any(1)
    assert judged.terminal.any(1).tolist() == ended.tolist()
    assert not judged.reward[~ended].any()
    assert not judged.column("policy_fault")[~ended].any()


# ---------------------------------------------------------------------------------------------------- prefixes
def test_prefix_and_completion_are_verified_together() -> None:
    task = sorting(3)
    shown = task.demonstrate(STARTS, 0)
    begun = first_decisions(shown, shown.mask.sum(1) - 1)
    fresh = task.judge(task.resume(actor_of(task), begun, np.zeros(3, np.int64), DRAW, split=0), 0)
    right = [decisions(fresh, row) == [task.tokenizer.vocabulary.eos] for row in range(3)]
    assert fresh.column("score").tolist() == [float(one) for one in right]
    assert task.completions(shown)[0][:3] == task.completions(fresh)[0][:3]
    assert fresh.mask.sum(1).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["tokens", "torques", "numbered"])
def test_nothing_to_decide_is_no_decision_and_no_step(name: str) -> None:
    task = TASKS[name]
    shown = task.demonstrate(STARTS, 0)
    fresh = task.resume(actor_of(task), first_decisions(shown, shown.mask.sum(1)), np.zeros(3, np.int64), DRAW, split=0)
    assert not fresh.mask.any()
    assert probes.loss(recipes.grpo(), fresh, fresh.logp.clone().requires_grad_()).loss.item() == 0.0
