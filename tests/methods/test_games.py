"""Games of several players: seats and opponents, records of both forms, credit across players, and what it leads to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay import recipes
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault, Need, Score, concatenate
from assay.core.slots import DemonstratedTask, GameTask, Scene
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.methods.advantage_alignment_llm.credit import AlignAdvantages, LeaveOneOutToGo
from assay.methods.self_redteam.credit import PlayerDeviation, PlayerMean
from assay.methods.self_redteam.rollout import FixedOpponents
from assay.ops import groups
from assay.parts.aggregations import SequenceMean, SequenceSum
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.credit.shaping import Informative
from assay.parts.credit.temporal import Gae, RewardToGo, Whiten
from assay.parts.rollouts.episodes import Episodes
from assay.parts.sources.fresh import FreshSequences
from assay.playing import text
from assay.recipes.defaults import defaults_of
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
from tests.scenes import gathering

STARTS, SAMPLES = np.array([3, 3, 8, 8, 8]), np.array([0, 1, 0, 1, 2])
FORMS = ["prisoners-dilemma", "prisoners-dilemma-vector", "prisoners-dilemma-tokens", "matching-pennies-tokens"]


def actor_for(task):
    torch.manual_seed(5)
    actor = defaults_of(task).actor.build(task.spec)
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return actor


def played(name: str, split: int = 0, rounds: int = 5, continuation: float = 1.0) -> tuple[GameTask, Experience]:
    task = catalogue.find_task(name)
    task = replace(task, rules=replace(task.rules, rounds=rounds, continuation=continuation))
    actor = actor_for(task)
    return task, task.judge(task.play(actor, STARTS, SAMPLES, Draw(1), split=split, greedy=False), split)


def moves_of(task, fresh: Experience) -> list[list[int]]:
    token = fresh.action - 2 if isinstance(task, TokenGame) else fresh.action
    return [row[there].tolist() for row, there in zip(token, fresh.mask, strict=True)]


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
    scores = evaluation.scores(defaults_of(task).actor.build(task.spec), task, num=50)
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
    recipe = recipes.dapo(defaults_of(task)).set("rollout.num_starts", starts).set("rollout.group_size", 3)
    fresh = Loop(recipe, task, seed=0, num_steps=1).step().fresh
    assert len(fresh.column("start").unique()) == starts
    assert len(fresh) == starts * 3 * 2, "three games of two players at each"


def test_a_fault_takes_the_whole_game_out() -> None:
    _, fresh = played("prisoners-dilemma")
    outcomes = [InfraFault("judge") if row == 2 else Score(1.0) for row in range(len(fresh))]
    judged = text.with_outcomes(fresh, outcomes)
    assert judged.mask.any(1).tolist() == [row not in (2, 7) for row in range(10)]


# ---------------------------------------------------------------------------------------------------- credit
def slow_to_go(fresh: Experience, discount: float) -> torch.Tensor:
    """Turn by turn, row by row."""
    result = torch.zeros_like(fresh.reward)
    turns = [{} for _ in range(len(fresh))]
    for row in range(len(fresh)):
        value = 0.0
        for turn in sorted(set(fresh.turn[row][fresh.mask[row]].tolist()), reverse=True):
            here = fresh.mask[row] & (fresh.turn[row] == turn)
            value = float(fresh.reward[row][here].sum()) + discount * value
            turns[row][turn] = value
    for row in range(len(fresh)):
        for turn, value in turns[row].items():
            others = [
                turns[k][turn]
                for k in range(len(fresh))
                if k != row and fresh.group[k] == fresh.group[row] and turn in turns[k]
            ]
            here = fresh.mask[row] & (fresh.turn[row] == turn)
            result[row][here] = value - (sum(others) / len(others) if others else 0.0)
    return result


def slow_alignment(fresh: Experience, beta: float, discount: float) -> torch.Tensor:
    """The formula's sums as loops."""
    result, advantage = torch.zeros_like(fresh.reward), fresh.column("advantage")

    def own(row: int, turn: int) -> float:
        here = fresh.mask[row] & (fresh.turn[row] == turn)
        return float(advantage[row][here].mean()) if bool(here.any()) else 0.0

    for row in range(len(fresh)):
        rivals = [k for k in range(len(fresh)) if k != row and fresh.episode[k] == fresh.episode[row]]
        for column in fresh.mask[row].nonzero().flatten().tolist():
            turn = int(fresh.turn[row, column])
            past = sum(discount ** (turn - k) * own(row, k) for k in range(turn))
            theirs = sum(own(k, turn) for k in rivals)
            result[row, column] = advantage[row, column] + beta * discount * past * theirs
    return result


def several_tokens_a_turn(fresh: Experience) -> Experience:
    """Every column twice: turns of two decisions, the reward on the second."""
    twice = fresh.map(lambda column: column.repeat_interleave(2, 1) if column.dim() >= 2 else column)
    second = torch.arange(twice.num_columns) % 2 == 1
    ends = {name: getattr(twice, name) & second for name in ("terminal", "truncated")}
    return replace(twice, reward=twice.reward * second, **ends)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("turns", ["one decision", "two decisions"])
def test_credit_of_games_is_the_formula(name: str, turns: str) -> None:
    _, fresh = played(name, continuation=0.8)
    fresh = several_tokens_a_turn(fresh) if turns == "two decisions" else fresh
    base = LeaveOneOutToGo(0.9)(fresh)
    assert torch.allclose(base.column("advantage"), slow_to_go(fresh, 0.9), atol=1e-4)
    aligned = AlignAdvantages(0.7, 0.9)(base)
    assert torch.allclose(aligned.column("advantage"), slow_alignment(base, 0.7, 0.9), atol=1e-3)
    assert torch.equal(AlignAdvantages(0.0)(base).column("advantage"), base.column("advantage"))


def test_both_forms_of_one_game_have_one_credit() -> None:
    _, tokens = played("prisoners-dilemma-tokens", continuation=0.8)
    index = torch.arange(tokens.num_columns - 1) % 2 == 0
    columns = tokens.columns(1, tokens.num_columns).map(lambda c: c[:, index] if c.dim() >= 2 else c)
    for credit in ((LeaveOneOutToGo(0.9), AlignAdvantages()), (RewardToGo(0.9), AlignAdvantages())):
        one, other = tokens, columns
        for part in credit:
            one, other = part(one), part(other)
        assert torch.allclose(one.column("advantage")[:, 1:][:, index], other.column("advantage"), atol=1e-4)


def test_alignment_without_opponents_changes_nothing() -> None:
    _, fresh = played("prisoners-dilemma")
    base = LeaveOneOutToGo()(fresh)
    for changes in ({"player": None}, {"episode": None}, {"episode": torch.arange(len(fresh))}):
        lonely = AlignAdvantages(3.0)(replace(base, **changes))
        assert torch.equal(lonely.column("advantage"), base.column("advantage"))


def test_three_opponents_are_added_up_and_an_absent_one_counts_nothing() -> None:
    _, fresh = played("prisoners-dilemma")
    base = LeaveOneOutToGo()(fresh)
    four = replace(base, episode=torch.tensor([0, 0, 1, 1, 2, 0, 0, 1, 1, 2]), player=torch.arange(10))
    expected = slow_alignment(four, 0.5, 0.9)
    assert torch.allclose(AlignAdvantages(0.5, 0.9)(four).column("advantage"), expected, atol=1e-3)
    gone = replace(base, mask=base.mask & (torch.arange(10) != 7).unsqueeze(1))
    aligned = AlignAdvantages()(gone).column("advantage")
    assert torch.equal(aligned[2], base.column("advantage")[2])
    assert bool((aligned[7] == 0).all())


def test_a_group_of_one_and_equal_rewards_are_finite() -> None:
    task = catalogue.find_task("prisoners-dilemma")
    alone = task.play(actor_for(task), np.array([4]), np.array([0]), Draw(0), split=0, greedy=False)
    assert torch.equal(LeaveOneOutToGo()(alone).column("advantage"), RewardToGo()(alone).column("advantage"))
    equal = replace(alone, reward=torch.ones_like(alone.reward) * alone.mask)
    credited = AlignAdvantages()(LeaveOneOutToGo()(concatenate([equal, equal])))
    assert bool((credited.column("advantage") == 0).all())


def test_no_gradient_reaches_credit() -> None:
    _, fresh = played("prisoners-dilemma")
    fresh = replace(fresh, reward=fresh.reward.clone().requires_grad_())
    assert not AlignAdvantages()(LeaveOneOutToGo()(fresh)).column("advantage").requires_grad


# ---------------------------------------------------------------------------------------------------- learning
@pytest.mark.parametrize("name", ["prisoners-dilemma", "prisoners-dilemma-vector", "prisoners-dilemma-tokens"])
def test_alignment_follows_generalised_advantages_in_both_worlds(name: str) -> None:
    task = catalogue.find_task(name)
    task = replace(task, rules=replace(task.rules, rounds=4))
    base = recipes.ppo(defaults_of(task))
    recipe = replace(
        base,
        rollout=Episodes(2, 3),
        source=FreshSequences(),
        credit=(Gae(0.96, 0.95), AlignAdvantages(), Whiten()),
    )
    loop = Loop(recipe, task, seed=0, num_steps=2)
    steps = [loop.step() for _ in range(2)]
    assert not [alarm for step in steps for alarm in step.alarms if alarm.stop]
    assert torch.isfinite(loop.engine.flats["actor"].values).all()


def test_naive_players_defect_and_aligned_ones_cooperate_and_retaliate() -> None:
    task = catalogue.find_task("prisoners-dilemma")
    found = {}
    for beta in (0.0, 1.0):
        recipe = catalogue.recipe_for("advantage-alignment-llm", task, {"beta": beta})
        loop = Loop(recipe, task, seed=0, num_steps=60)
        for _ in range(60):
            loop.step()
        found[beta] = loop.actor.body.table.detach().softmax(-1)[:, 0]
    assert bool((found[0.0] < 0.5).all())
    assert float(found[1.0][1]) > 0.7, "cooperates after mutual cooperation"
    assert float(found[1.0][4]) < 0.2, "defects after mutual defection"


def test_the_same_seed_gives_the_same_games() -> None:
    task = catalogue.find_task("stag-hunt")
    values = []
    for _ in range(2):
        loop = Loop(catalogue.recipe_for("advantage-alignment-llm", task, {}), task, seed=3, num_steps=2)
        loop.step()
        values.append(loop.engine.flats["actor"].values.clone())
    assert torch.equal(*values)


# ---------------------------------------------------------------------------------------------------- fixed opponents
@pytest.mark.parametrize("form", [RepeatedGame, TokenGame])
def test_training_against_fixed_opponents_has_the_policys_rows_alone(form) -> None:
    task = form("defectors", Rules(PRISONERS_DILEMMA, rounds=4, opponents=(DEFECTOR,)))
    for player in (0, 1):
        rollout = FixedOpponents(num_starts=3, group_size=2, player=player)
        fresh = rollout(gathering(task, actor_for(task), np.arange(3), Draw(0)), rollout.init(Scene(task)))
        assert fresh.player.tolist() == [player] * 6
        moves = moves_of(task, fresh)
        for row in range(6):
            expected = [-3.0 if move == 0 else -2.0 for move in moves[row]]
            assert fresh.reward[row][fresh.mask[row]].tolist() == expected


def test_fixed_opponents_need_a_game_and_a_seat() -> None:
    with pytest.raises(AssayError, match="needs a game"):
        FixedOpponents().init(Scene(catalogue.find_task("addition-1")))
    with pytest.raises(AssayError, match="has no player 2"):
        FixedOpponents(player=2).init(Scene(catalogue.find_task("chicken")))


def test_outcomes_are_normalised_for_each_player_apart() -> None:
    _, fresh = played("matching-pennies-tokens")
    credit = OutcomeCredit(PlayerMean(), PlayerDeviation(0.0))
    advantage = credit(fresh).column("advantage")
    outcome = (fresh.reward * fresh.mask).sum(1)
    for player in (0, 1):
        own = fresh.player == player
        expected = (outcome[own] - outcome[own].mean()) / outcome[own].std()
        assert torch.allclose(advantage.amax(1)[own] + advantage.amin(1)[own], expected, atol=1e-5)
    other = torch.where(fresh.player.unsqueeze(1) == 1, 10 * fresh.reward + 3, fresh.reward) * fresh.mask
    assert torch.allclose(credit(replace(fresh, reward=other)).column("advantage"), advantage, atol=1e-4)
    whole = credit(replace(fresh, player=None, episode=None)).column("advantage").sum(1) / 5
    assert torch.allclose(whole, (outcome - outcome.mean()) / outcome.std(), atol=1e-5)
