"""Games of several players: seats and opponents, records of both forms, and what is gathered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay import recipes
from assay.core.errors import AssayError
from assay.core.record import Draw, InfraFault, Need, Score
from assay.core.slots import DemonstratedTask, GameTask
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.methods.advantage_alignment_llm import LeaveOneOutToGo
from assay.ops import groups
from assay.parts.aggregations import SequenceMean, SequenceSum
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.credit.shaping import Informative
from assay.recipes.presets import preset_for
from assay.rollouts import text
from assay.runs import catalogue
from assay.tasks.games.matrix import (
    COOPERATOR,
    DEFECTOR,
    ITSELF,
    MATCHING_PENNIES,
    PRISONERS_DILEMMA,
    TIT_FOR_TAT,
    MatrixGame,
    Rules,
    Strategy,
)
from assay.tasks.games.repeated import RepeatedGame, TokenGame
from tests.tasks.games.played import FORMS, SAMPLES, STARTS, actor_for, moves_of, played


# ---------------------------------------------------------------------------------------------------- the record
@pytest.mark.parametrize("name", FORMS)
def test_a_game_has_a_row_for_each_player_and_pays_by_the_matrix(name: str) -> None:
    task, fresh = played(name)
    assert isinstance(task, GameTask)
    assert len(fresh) == 2 * len(STARTS)
    assert fresh.player.tolist() == [0] * 5 + [1] * 5
    moves, payoffs = moves_of(task, fresh), task.rules.game.payoffs
    for row in range(len(fresh)):
        (other,) = [k for k in range(len(fresh)) if k != row and fresh.episode[k] == fresh.episode[row]]
        assert fresh.player[other] == 1 - fresh.player[row]
        expected = [
            float(payoffs[fresh.player[row], own, his]) for own, his in zip(moves[row], moves[other], strict=True)
        ]
        assert fresh.reward[row][fresh.mask[row]].tolist() == expected
        assert float(fresh.column("score")[row]) == pytest.approx(np.mean(expected))
        assert fresh.turn[row][fresh.mask[row]].tolist() == list(range(5))
    same = (fresh.group.unsqueeze(1) == fresh.group) == (
        (fresh.column("start").unsqueeze(1) == fresh.column("start")) & (fresh.player.unsqueeze(1) == fresh.player)
    )
    assert bool(same.all())
    assert int(fresh.terminal.sum()) == len(fresh)
    assert not bool(fresh.truncated.any())


@pytest.mark.parametrize("name", FORMS)
def test_recorded_log_probabilities_are_recomputed(name: str) -> None:
    task, fresh = played(name)
    scored = actor_for(task).score(fresh, frozenset({Need.LOGP})).logp
    assert torch.allclose(scored, fresh.logp, atol=1e-5)


def test_tokens_of_a_row_are_own_and_others_moves_in_turn() -> None:
    task, fresh = played("prisoners-dilemma-tokens")
    moves = moves_of(task, fresh)
    for row in range(5):
        expected = [token for pair in zip(moves[row], moves[row + 5], strict=True) for token in pair]
        assert fresh.context["tokens"][row].tolist() == [1, *(2 + move for move in expected)]
        assert fresh.mask[row].tolist() == [False] + [True, False] * 5


def test_states_are_remembered_rounds_from_each_players_side() -> None:
    _, fresh = played("prisoners-dilemma")
    action = fresh.action[:, :5]
    other = action.roll(5, 0)
    assert bool((fresh.context["state"][:, 0] == 0).all())
    assert torch.equal(fresh.context["state"][:, 1:6], 1 + 2 * action + other)


def test_seats_that_differ_are_seen() -> None:
    game = RepeatedGame("pennies", Rules(MATCHING_PENNIES, rounds=2))
    fresh = game.play(actor_for(game), STARTS, SAMPLES, Draw(0), split=0, greedy=False)
    assert game.spec.observation.n == 10
    assert bool((fresh.context["state"][fresh.player == 0] < 5).all())
    assert bool((fresh.context["state"][fresh.player == 1] >= 5).all())


@pytest.mark.parametrize("name", ["prisoners-dilemma", "prisoners-dilemma-tokens"])
def test_a_game_is_a_function_of_start_and_sample_alone(name: str) -> None:
    task, fresh = played(name)
    alone = task.play(actor_for(task), STARTS[3:4], SAMPLES[3:4], Draw(1), split=0, greedy=False)
    for player in (0, 1):
        row = fresh.rows(slice(3 + 5 * player, 4 + 5 * player))
        assert torch.equal(alone.rows(slice(player, player + 1)).action, row.action)
        assert torch.allclose(alone.rows(slice(player, player + 1)).logp, row.logp, atol=1e-6)


@pytest.mark.parametrize("name", ["prisoners-dilemma", "prisoners-dilemma-tokens"])
def test_games_that_chance_ends_are_of_one_length_for_all_copies(name: str) -> None:
    task = catalogue.find_task(name)
    task = replace(task, rules=replace(task.rules, rounds=4, continuation=0.6))
    starts = np.repeat(np.arange(40), 2)
    fresh = task.play(actor_for(task), starts, np.tile([0, 1], 40), Draw(0), split=0, greedy=False)
    length = fresh.mask.sum(1)
    assert set(length.tolist()) == {1, 2, 3, 4}
    for start in range(40):
        assert len(set(length[fresh.column("start") == start].tolist())) == 1
    ended = (fresh.terminal | fresh.truncated) & fresh.mask
    assert bool((ended.sum(1) == 1).all())
    assert bool((length[fresh.truncated.any(1)] == 4).all())
    assert 0 < int(fresh.truncated.sum()) < int((length == 4).sum()) + 1
    assert bool((fresh.reward[~fresh.mask] == 0).all())
    assert bool((fresh.logp[~fresh.mask] == 0).all())


# ---------------------------------------------------------------------------------------------------- opponents
@pytest.mark.parametrize("form", [RepeatedGame, TokenGame])
def test_held_out_starts_meet_their_opponents_from_both_seats(form) -> None:
    opponents = (ITSELF, DEFECTOR, COOPERATOR, TIT_FOR_TAT)
    task = form("tournament", Rules(PRISONERS_DILEMMA, rounds=6, opponents=opponents))
    starts = np.arange(8)
    fresh = task.judge(task.play(actor_for(task), starts, 0 * starts, Draw(2), split=1, greedy=False), 1)
    assert len(fresh) == 8
    assert fresh.column("start").tolist() == list(range(8))
    assert fresh.player.tolist() == [0] * 4 + [1] * 4
    moves = moves_of(task, fresh)
    for row in (1, 5):
        assert [-3.0 if move == 0 else -2.0 for move in moves[row]] == fresh.reward[row][fresh.mask[row]].tolist()
    for row in (2, 6):
        assert [-1.0 if move == 0 else 0.0 for move in moves[row]] == fresh.reward[row][fresh.mask[row]].tolist()
    for row in (3, 7):
        echoed = [0, *moves[row][:-1]]
        expected = [float(PRISONERS_DILEMMA.payoffs[0, own, his]) for own, his in zip(moves[row], echoed, strict=True)]
        assert fresh.reward[row][fresh.mask[row]].tolist() == expected


def test_a_mixed_strategy_is_drawn_as_often_as_it_says() -> None:
    half = Strategy("mixed", (0.25,) * 5)
    task = RepeatedGame("mixed", Rules(PRISONERS_DILEMMA, rounds=16, opponents=(half,)))
    starts = np.arange(200)
    fresh = task.play(actor_for(task), starts, 0 * starts, Draw(2), split=1, greedy=False)
    own, reward = fresh.action[fresh.mask], fresh.reward[fresh.mask]
    cooperated = torch.where(own == 0, reward == -1.0, reward == 0.0)
    assert float(cooperated.float().mean()) == pytest.approx(0.25, abs=0.03)


def test_players_are_evaluated_as_they_sample() -> None:
    task = catalogue.find_task("matching-pennies")
    scores = evaluation.scores(preset_for(task).actor.build(task.spec), task, num=50)
    assert len(scores) == 50
    assert np.std(scores) > 0


def test_rules_that_cannot_be_are_refused() -> None:
    with pytest.raises(AssayError, match="rounds >= 1"):
        Rules(PRISONERS_DILEMMA, rounds=0)
    with pytest.raises(AssayError, match="2 moves"):
        MatrixGame(((1.0,),), ((1.0,),))


def test_demonstrations_are_legal_games() -> None:
    task = catalogue.find_task("matching-pennies-tokens")
    assert isinstance(task, DemonstratedTask)
    shown = task.demonstrate(np.arange(6), 0)
    assert len(shown) == 6
    assert bool((shown.logp == 0).all())
    assert bool((shown.context["tokens"][:, 2:] >= 2).all())
    assert torch.equal(task.demonstrate(np.arange(3, 6), 0).action, shown.action[3:])


def test_a_game_can_be_read(tmp_path) -> None:
    task, fresh = played("prisoners-dilemma-tokens")
    fresh = LeaveOneOutToGo()(fresh)
    told = task.describe(fresh, 7)
    assert told["player"] == 1
    assert len(told["moves"]) == len(told["credit"]) == 5
    assert set(told["moves"]) <= {"C", "D"}


# ---------------------------------------------------------------------------------------------------- statistics
def test_players_outcomes_are_not_added_up() -> None:
    _, fresh = played("prisoners-dilemma")
    assert torch.allclose(groups.outcome(fresh), (fresh.reward * fresh.mask).sum(1))
    assert int(SequenceSum().count(fresh)) == len(fresh)
    assert float(SequenceMean().weigh(fresh).sum()) == pytest.approx(len(fresh))
    advantage = OutcomeCredit(GroupMean())(fresh).column("advantage")[:, 0]
    for group in fresh.group.unique():
        assert float(advantage[fresh.group == group].sum()) == pytest.approx(0.0, abs=1e-4)


def test_selection_keeps_a_start_for_all_players_or_for_none() -> None:
    _, fresh = played("prisoners-dilemma")
    told_apart = (fresh.player == 1) & (torch.arange(10) == 9)
    outcome = told_apart.to(fresh.reward.dtype).unsqueeze(1) * fresh.mask
    fresh = fresh.add({"place": torch.arange(10)})
    kept = Informative()(replace(fresh, reward=outcome))
    assert kept.column("place").tolist() == (fresh.column("start") == 8).nonzero().squeeze(1).tolist()
    alone = fresh.rows(fresh.player == 1)
    assert Informative()(replace(alone, reward=outcome[5:])).column("place").tolist() == [7, 8, 9]
    assert len(Informative()(replace(fresh, reward=torch.zeros_like(fresh.reward)))) == 0


@pytest.mark.parametrize("starts", [3, 4])
def test_the_loop_gathers_whole_games_of_as_many_starts_as_were_asked_for(starts: int) -> None:
    task = catalogue.find_task("prisoners-dilemma")
    recipe = recipes.dapo(preset_for(task)).set("rollout.num_starts", starts).set("rollout.group_size", 3)
    fresh = Loop(recipe, task, seed=0, num_steps=1).step().fresh
    assert len(fresh.column("start").unique()) == starts
    assert len(fresh) == starts * 3 * 2, "three games of two players at each"


def test_a_fault_takes_the_whole_game_out() -> None:
    _, fresh = played("prisoners-dilemma")
    outcomes = [InfraFault("judge") if row == 2 else Score(1.0) for row in range(len(fresh))]
    judged = text.with_outcomes(fresh, outcomes)
    assert judged.mask.any(1).tolist() == [row not in (2, 7) for row in range(10)]
