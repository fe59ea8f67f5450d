"""Games with talk: who writes and reads what, what is decided, and what is paid."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.core.record import Draw, Experience
from assay.runs import catalogue
from assay.tasks.games.talk import TalkGame
from tests.tasks.games.played import actor_for

STARTS, SAMPLES = np.array([3, 3, 8]), np.array([0, 1, 0])


def task_named(name: str = "prisoners-dilemma-talk") -> TalkGame:
    task = catalogue.find_task(name)
    assert isinstance(task, TalkGame)
    return task


def played(task: TalkGame, split: int = 0, greedy: bool = False) -> Experience:
    return task.judge(task.play(actor_for(task), STARTS, SAMPLES, Draw(1), split=split, greedy=greedy), split)


def rounds_of(fresh: Experience) -> torch.Tensor:
    """Returns the tokens after bos by round: own words, the other's words, own move, the other's move."""
    return fresh.action[:, 1:].reshape(len(fresh), 8, 8)


def test_each_player_reads_what_the_other_wrote() -> None:
    fresh = played(task_named())
    one, two = rounds_of(fresh)[:3], rounds_of(fresh)[3:]
    assert torch.equal(one[..., :3], two[..., 3:6])
    assert torch.equal(one[..., 3:6], two[..., :3])
    assert torch.equal(one[..., 6], two[..., 7])
    assert len(fresh.action[:, 1:].unique()) == 2


def test_own_words_and_moves_are_decisions_of_one_turn() -> None:
    fresh = played(task_named())
    decided = fresh.mask[:, 1:].reshape(6, 8, 8)
    assert decided.all((0, 1)).tolist() == [True] * 3 + [False] * 3 + [True, False]
    assert fresh.turn is not None
    assert fresh.turn[0, 1:].tolist() == [place // 8 for place in range(64)]
    assert torch.equal(fresh.terminal.nonzero()[:, 1], torch.full((6,), 63))


def test_the_payoff_is_at_the_move_and_the_score_is_a_rounds() -> None:
    task = task_named()
    fresh = played(task)
    seen, paid = rounds_of(fresh), fresh.reward[:, 1:].reshape(6, 8, 8)
    table = task.rules.game.payoffs[0]
    torch.testing.assert_close(paid[..., 6], table[seen[..., 6] - 2, seen[..., 7] - 2])
    assert not paid[..., [0, 1, 2, 3, 4, 5, 7]].any()
    torch.testing.assert_close(fresh.column("score"), paid[..., 6].mean(1))


def test_the_recorded_log_probabilities_are_those_of_the_actor() -> None:
    task = task_named()
    fresh, actor = played(task), actor_for(task)
    with torch.no_grad():
        torch.testing.assert_close(actor.score(fresh, frozenset()).logp, fresh.logp, rtol=1e-4, atol=1e-5)


def test_a_defector_talks_of_cooperation() -> None:
    task = task_named("prisoners-dilemma-talk-against-defectors")
    fresh = played(task, split=1)
    seen = rounds_of(fresh)
    assert (seen[..., 3:6] == 2).all()
    assert (seen[..., 7] == 3).all()


def test_games_are_shown_with_their_messages() -> None:
    task = task_named()
    told = task.describe(played(task), 0)
    assert [len(one) for one in told["said"]] == [3] * 8
    assert len(told["moves"]) == len(told["payoffs"]) == 8
    assert told["payoff"] == pytest.approx(sum(told["payoffs"]) / 8)


def test_demonstrations_have_the_format_of_games() -> None:
    task = task_named("stag-hunt-talk")
    shown = task.demonstrate(np.arange(4), 0)
    assert torch.equal(shown.mask, played(task).mask[:4])
    assert not shown.logp.any()
    assert torch.isfinite(shown.column("score")).all()
    assert torch.equal(task.demonstrate(np.arange(4), 0).action, shown.action)


def test_greedy_games_repeat() -> None:
    task = task_named()
    assert torch.equal(played(task, greedy=True).action, played(task, greedy=True).action)
