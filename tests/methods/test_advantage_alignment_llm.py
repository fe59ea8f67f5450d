"""Credit across players against the formula, and what aligned players learn to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay import recipes
from assay.core.record import Draw, Experience, concatenate
from assay.engine.loop import Loop
from assay.methods.advantage_alignment_llm import AlignAdvantages, LeaveOneOutToGo
from assay.parts.credit.temporal import Gae, RewardToGo, Whiten
from assay.parts.rollouts.episodes import Episodes
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.presets import preset_for
from assay.runs import catalogue
from tests.tasks.games.played import FORMS, actor_for, played


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
    base = recipes.ppo(preset_for(task))
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
