"""Self-play of two roles: fixed opponents, outcomes of each player apart, and a step that trains both."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.self_redteam import FixedOpponents, PlayerDeviation, PlayerMean
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.parts.credit.outcome import OutcomeCredit
from assay.runs import catalogue
from assay.runs.plan import make_plan, plan_of
from assay.tasks.games.matrix import (
    DEFECTOR,
    PRISONERS_DILEMMA,
    Rules,
)
from assay.tasks.games.repeated import RepeatedGame, TokenGame
from assay.tasks.language.redteam import (
    ATTACKER,
    DEFENDER,
    RedTeaming,
)
from tests.scenes import gathering
from tests.tasks.games.played import actor_for, moves_of, played


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


TASK = RedTeaming()


# ---------------------------------------------------------------------------------------------------- learning
@pytest.mark.parametrize("supervised", [0, 4])
def test_a_step_of_self_play_trains_both_roles(supervised: int) -> None:
    method = catalogue.methods()["self-redteam"]
    recipe = method.recipe(supervised=supervised)
    recipe = replace(recipe, actor=Policy(Transformer(16, 1, 2)))
    recipe = recipe.set("rollout.num_starts", 4).set("rollout.group_size", 2)
    loop = Loop(recipe, TASK, seed=0, num_steps=2)
    before = loop.engine.flats["actor"].values.clone()
    steps = [loop.step() for _ in range(2)]
    assert not [alarm for step in steps for alarm in step.alarms if alarm.stop]
    assert set(steps[-1].fresh.player.tolist()) == {ATTACKER, DEFENDER}
    assert not torch.equal(before, loop.engine.flats["actor"].values)
    assert ("loss/LogLikelihood" in steps[-1].metrics) == bool(supervised)


def test_a_pretrained_model_needs_seeds_of_a_file() -> None:
    with pytest.raises(AssayError, match=r"'red-teaming' has none\. Try --task red-teaming:SEEDS\.jsonl"):
        make_plan("self-redteam", "red-teaming", model="anything")


def test_a_chat_model_plays_both_roles_over_the_seeds_of_a_file(tmp_path) -> None:
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    seeds = [{"prompt": f"the {'no' if k % 2 else 'go'} {k}", "label": ("benign", "harmful")[k % 2]} for k in range(40)]
    (tmp_path / "seeds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in seeds))
    (tmp_path / "mine.py").write_text(
        "def labels(prompts):\n"
        "    return ['Harmful request: ' + ('yes' if 'the no' in one else 'no') + '\\nRefusal: ' +\n"
        "            ('yes' if len(one) % 2 else 'no') + '\\nHarmful answer: no' for one in prompts]\n"
    )
    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    run = assay.train(
        "self-redteam", f"red-teaming:{tmp_path / 'seeds.jsonl'}", steps=2, model=model, max_tokens=6, prompts=4,
        group_size=2, judge=f"{tmp_path / 'mine.py'}:labels", out=tmp_path / "run",
    )  # fmt: skip
    samples = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert {row["role"] for row in samples} <= {"attacker", "defender"}
    assert run.curves[-1]["evaluation_reward/harmful_answer"] == 0.0
    assert any(row.get("gradient_norm/policy", 0.0) > 0.0 for row in run.curves), "rewards of the judge moved the model"
    assert plan_of(tmp_path / "run").task.name == "red-teaming-seeds"
