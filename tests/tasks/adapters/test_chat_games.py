"""Matrix games as conversations of a chat model: who reads what, which letter is a move, payoffs, and a step of
training.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need
from assay.core.slots import CountedTask, GameTask
from assay.core.verifier import COMPONENT
from assay.engine.loop import Loop
from assay.methods.advantage_alignment_llm import recipe
from assay.models.pretrained.transformers import Pretrained
from assay.parts.rollouts.episodes import Episodes
from assay.runs import catalogue, language
from assay.tasks.adapters.chat_games import UNREAD, ChatGame
from assay.tasks.adapters.pretrained import with_model
from tests.models.test_conversations import TEMPLATES, save_chat_model

STARTS, SAMPLES = np.array([0, 0, 1]), np.array([0, 1, 0])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_chat_model(tmp_path_factory.mktemp("chat") / "model", TEMPLATES["chatml"])


def game(model: str, name: str = "prisoners-dilemma-talk", rounds: int = 2, **rules: Any) -> ChatGame:
    task: Any = catalogue.find_task(name)
    made = with_model(replace(task, rules=replace(task.rules, rounds=rounds, **rules)), model, max_tokens=12)
    assert isinstance(made, ChatGame)
    return made


class Scripted:
    """A player that says what `script` says to the last message; its decoder gives certain logits."""

    def __init__(self, tokenizer: Any, script: Any) -> None:
        self.tokenizer, self.script = tokenizer, script

    def decoder(self, prompts: Any, repeats: Any, num_new: int) -> Any:
        eos, rows = self.tokenizer.vocabulary.eos, []
        for prompt, times in zip(prompts, repeats, strict=True):
            said = self.tokenizer.encode(self.script(self.tokenizer.decode(prompt)))
            rows += [([*said, eos] + [eos] * num_new)[:num_new]] * times
        return Spoken(torch.tensor(rows), self.tokenizer.vocabulary.size)


class Spoken:
    def __init__(self, tokens: torch.Tensor, size: int) -> None:
        self.tokens, self.time, self.size = tokens, 0, size

    def logits(self) -> torch.Tensor:
        return (torch.nn.functional.one_hot(self.tokens[:, self.time], self.size).float() - 1.0) * 1e9

    def push(self, tokens: torch.Tensor) -> None:
        self.time += 1

    def keep(self, rows: torch.Tensor) -> None:
        self.tokens = self.tokens[rows]


def played(task: ChatGame, script: Any, split: int = 0) -> Experience:
    fresh = task.play(Scripted(task.tokenizer, script), STARTS, SAMPLES, Draw(0), split=split, greedy=False)
    return task.judge(fresh, split)


def shown(task: ChatGame, fresh: Experience, row: int) -> str:
    return task.tokenizer.decode(fresh.action[row, fresh.context["valid"][row]].tolist())


def grim(told: str) -> str:
    """Says hello, cooperates at first, and defects once the other did."""
    if told.rpartition("user")[2].startswith("\nRound") or "short message" in told.rpartition("user")[2]:
        return "hello"
    return "D" if "other player D" in told else "C"


def test_players_read_messages_and_moves_of_each_other(model: str) -> None:
    task = game(model)
    assert isinstance(task, GameTask)
    assert isinstance(task, CountedTask)
    fresh = played(task, grim)
    assert fresh.player is not None
    assert fresh.player.tolist() == [0, 0, 0, 1, 1, 1]
    for row in range(6):
        told = shown(task, fresh, row)
        assert told.count("The other player wrote: hello") == 2
        assert told.count("You played C, the other player C, and you got -1 points.") == 1, "not after the last round"
        assert task.describe(fresh, row)["payoffs"] == [-1.0, -1.0]
    assert fresh.column("score").tolist() == [-1.0] * 6
    assert fresh.column(COMPONENT + UNREAD).tolist() == [0.0] * 6
    assert fresh.turn is not None
    assert set(fresh.turn[0][fresh.mask[0]].tolist()) == {0, 1}
    assert (fresh.reward != 0).sum(1).tolist() == [2] * 6, "a payoff at each move"


def test_a_move_is_the_last_letter_that_names_one(model: str) -> None:
    task = game(model, "prisoners-dilemma", rounds=1)
    assert [task.move_in(one) for one in ("C", "not C but D", "I Cooperate", "", "d")] == [0, 1, None, None, None]
    fresh = played(task, lambda told: "no letter")
    assert fresh.column(COMPONENT + UNREAD).tolist() == [1.0] * 6
    again = played(task, lambda told: "no letter")
    assert torch.equal(fresh.reward, again.reward), "chance is a function of the game"


def test_held_out_games_are_against_the_opponents_of_the_rules(model: str) -> None:
    task = game(model, "prisoners-dilemma-talk-against-defectors")
    fresh = played(task, grim, split=1)
    assert len(fresh) == 3
    assert fresh.column("score").tolist() == [-2.5] * 3, "exploited once, then both defect"


def test_recorded_probabilities_are_those_of_the_conversation(model: str) -> None:
    task = game(model, rounds=1)
    actor = Pretrained(model).build(task.spec)
    fresh = task.play(actor, STARTS, SAMPLES, Draw(0), split=0, greedy=False)
    with torch.no_grad():
        again = actor.score(fresh, frozenset({Need.LOGP})).logp
    assert torch.allclose(again[fresh.mask], fresh.logp[fresh.mask], atol=1e-4)
    said = [fresh.action[row][fresh.mask[row]].tolist() for row in range(6)]
    assert said[0] != said[3], "players of one game draw numbers of their own"
    one = task.play(actor, STARTS[2:], SAMPLES[2:], Draw(0), split=0, greedy=False)
    assert one.action[0][one.mask[0]].tolist() == said[2], "whatever else is in the batch"


def test_a_step_of_aligned_advantages_trains_a_chat_model(model: str) -> None:
    task = game(model, rounds=2)
    ours = replace(recipe(), actor=Pretrained(model), rollout=Episodes(2, 2))
    loop = Loop(ours, task, seed=0, num_steps=1)
    before = loop.engine.flats["actor"].values.clone()
    step = loop.step()
    assert not [alarm for alarm in step.alarms if alarm.stop]
    assert len(step.fresh) == 8
    assert not torch.equal(before, loop.engine.flats["actor"].values)


def test_options_of_language_need_a_model_and_reach_the_game(model: str) -> None:
    plain = catalogue.find_task("prisoners-dilemma-talk")
    assert language.changed_task(plain, 5, None, False) is plain
    with pytest.raises(AssayError, match=r"--max-tokens is for language tasks.*--model"):
        language.check_task(recipe(), plain, 5, None)
    changed = language.changed_task(game(model), 5, "be kind", False)
    assert (changed.max_tokens, changed.system) == (5, "be kind")
    assert len(changed.fitting("word " * 50)) < 250
