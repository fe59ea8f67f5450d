"""Text games of other libraries: with stand-ins for the libraries, and with the real ones where they are installed."""

from __future__ import annotations

import gc
import random
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay
from assay.claims.laws.session import check_sessions
from assay.core.errors import AssayError
from assay.core.record import PolicyFault, Score
from assay.runs.catalogue import find_task
from assay.tasks.adapters import text_worlds
from assay.tasks.adapters.text_worlds import KnownWords, TextWorlds
from assay.tasks.language.dialogue import DialogueTask


@dataclass
class Door:
    """A stand-in of TextWorldExpress: the way to the coin, left or right, is the parity of the seed."""

    envStepLimit: int
    names: tuple[str, ...] = ("coin",)
    seed: int = 0
    steps: int = 0
    num_resets: int = 0
    settings: str = ""

    def load(self, name: str, settings: str) -> None:
        if name not in self.names:
            raise ValueError(f"Unknown game ({name}).")
        self.settings = settings

    def getValidSeedsTrain(self) -> list[int]:
        return [0, 1, 2]

    def getValidSeedsTest(self) -> list[int]:
        return [10, 11]

    def reset(self, seed: int, gameFold: str, generateGoldPath: bool) -> tuple[str, dict[str, Any]]:
        assert (gameFold == "test") == (seed >= 10)
        self.seed, self.steps = seed, 0
        self.num_resets += 1
        return "A hall.", {"taskDescription": "Find the coin.", "validActions": ["go right", "go left"]}

    def getGoldActionSequence(self) -> list[str]:
        return ["look", "go right" if self.seed % 2 else "go left"]

    def step(self, said: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.steps += 1
        if said == "break":
            raise OSError("the process is gone")
        is_won = said == self.getGoldActionSequence()[1]
        told = "You have the coin." if is_won else f"You said {said} in step {self.steps}."
        return told, 0.0, is_won or said == "quit", {"score": 1.0 if is_won else 0.25}

    def close(self) -> None: ...


class Card:
    """A stand-in of a game of TextArena: numbers that Python's global generator draws."""

    players = 1

    def reset(self, num_players: int, seed: int) -> None:
        assert num_players == self.players, f"The number of players has to be {self.players}, received {num_players}"
        random.seed(seed)
        self.told, self.ends, self.lost = [(-1, f"Guess {random.randrange(1000)}", None)], False, False

    def get_observation(self) -> tuple[int, list[Any]]:
        told, self.told = self.told, []
        return 0, told

    def step(self, said: str) -> tuple[bool, dict[str, Any]]:
        self.told = [(0, said, None), (-1, f"drawn {random.randrange(1000)}", None)]
        self.ends, self.lost = said in ("[stop]", "[bad]"), said == "[bad]"
        return self.ends, {}

    def close(self) -> Any:
        return {0: -1.0 if self.lost else 0.5}, {0: {"invalid_move": self.lost}}


class Pair(Card):
    """A game for two."""

    players = 2


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Door]]:
    """Stand-ins in the places of the libraries; the games that were started."""
    made: list[Door] = []

    def started(envStepLimit: int) -> Door:
        made.append(Door(envStepLimit))
        return made[-1]

    def make(name: str) -> Card:
        games: dict[str, type[Card]] = {"Card-v0-raw": Card, "Pair-v0-raw": Pair}
        if name == "Words-v0-raw":
            raise LookupError("\n***\n  Resource 'words' not found.\n")
        if name not in games:
            raise ValueError(f"Environment {name} not found in registry.")
        return games[name]()

    for name, content in (("textworld_express", {"TextWorldExpressEnv": started}), ("textarena", {"make": make})):
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    for memory in (text_worlds.places_of, text_worlds.item_of):
        memory.cache_clear()
    yield made
    for memory in (text_worlds.places_of, text_worlds.item_of):
        memory.cache_clear()


def partner_of(name: str) -> tuple[DialogueTask, TextWorlds]:
    """The task of an address, and its partner."""
    task = find_task(name)
    assert isinstance(task, DialogueTask)
    assert isinstance(task.partner, TextWorlds)
    return task, task.partner


def test_games_are_items_with_their_solutions_and_words(libraries: list[Door]) -> None:
    task, partner = partner_of("textworld-express:coin:turns=3,doors=0")
    assert task.max_turns == 3
    assert libraries[0].settings == "doors=0"
    assert partner.item(1, 0).prompt == "Find the coin.\nA hall.\nCommands: go left, go right\n"
    assert partner.item(1, 0).demonstration == "look\ngo right"
    assert partner.item(4, 0).demonstration == partner.item(1, 0).demonstration, "three training games"
    assert partner.item(0, 1).facts == {"ordinal": 0, "split": 1}
    assert isinstance(task.tokenizer, KnownWords)
    assert task.tokenizer.decode(task.tokenizer.encode("go left, stranger!")) == "go left , ? ?"
    shown = task.demonstrate(np.arange(4), 0)
    assert shown.reward.sum(1).tolist() == [1.0] * 4


@pytest.mark.parametrize("name", ["textworld-express:coin", "textarena:Card-v0"])
def test_sessions_hold_their_laws(name: str, libraries: list[Door]) -> None:
    _, partner = partner_of(name)
    before = random.getstate()
    assert all(finding.held for finding in check_sessions(partner))
    assert random.getstate() == before, "Python's own generator is left as it was"


def test_sessions_that_share_a_process_begin_again_and_repeat_what_was_said(
    libraries: list[Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_worlds, "AT_ONCE", 1)
    _, partner = partner_of("textworld-express:coin")
    first, second = partner.open(partner.item(0, 0), 0), partner.open(partner.item(1, 0), 0)
    assert first.place is second.place
    assert [first.reply("a").text, second.reply("b").text] == ["You said a in step 1.\n", "You said b in step 1.\n"]
    assert first.reply("a\nc").text == "You said a c in step 2.\n"
    assert (second.reward(), second.reply("go right").outcome) == (Score(0.25), Score(1.0))
    assert first.reply("go left").outcome == Score(1.0)
    game = libraries[-1]
    monkeypatch.setattr(game, "step", lambda said: (f"other {said}", 0.0, False, {"score": 0.0}))
    with pytest.raises(RuntimeError, match="did not repeat its reply to 'b'"):
        second.reply("d")
    assert first.place.world is None, "the game that differed is left"


def test_a_process_that_is_gone_is_a_fault_of_that_row_and_replaced(libraries: list[Door]) -> None:
    _, partner = partner_of("textworld-express:coin")
    lost = partner.open(partner.item(0, 0), 0)
    with pytest.raises(OSError, match="the process is gone"):
        lost.reply("break")
    lost.close()
    other = partner.open(partner.item(0, 0), 0)
    assert other.reply("go left").outcome == Score(1.0)
    assert other.place is lost.place


def test_a_game_lost_by_invalid_moves_is_a_fault_of_the_policy(libraries: list[Door]) -> None:
    _, partner = partner_of("textarena:Card-v0")
    for said, outcome in (("stop", Score(0.5)), ("[bad]", PolicyFault("invalid move", -1.0))):
        session = partner.open(partner.item(0, 0), 0)
        assert session.reply("3").text.startswith("drawn ")
        assert session.reply(said).outcome == outcome
    assert partner.item(0, 0).prompt != partner.item(1, 0).prompt


def test_a_small_model_is_trained_on_games_and_their_record_is_read(libraries: list[Door], tmp_path: Path) -> None:
    sizes = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}
    options: dict[str, Any] = {"steps": 1, "prompts": 2, "group_size": 2, "eval_prompts": 4, "settings": sizes}
    run = assay.train("grpo", "textworld-express:coin:turns=2", warmup=2, out=tmp_path / "run", **options)
    assert run.curves[-1]["session/replies"] > 0
    assert not (tmp_path / "run" / "replay.txt").exists()
    bare = assay.train("grpo", "textarena:Card-v0:turns=2", out=tmp_path / "bare", max_tokens=48, **options)
    assert "session/faults" in bare.curves[-1]


def test_a_chat_model_plays_with_the_rules_before_the_game(
    libraries: list[Door], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from assay.tasks.adapters.pretrained import with_model
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    kind = replace(text_worlds.KINDS["textworld-express"], shown=100)
    monkeypatch.setitem(text_worlds.KINDS, "textworld-express", kind)  # type: ignore[arg-type]
    model, name = str(save_chat_model(tmp_path / "model", TEMPLATES["chatml"])), "textworld-express:coin:turns=3"
    task = with_model(find_task(name), model)
    assert isinstance(task, DialogueTask)
    assert task.max_reply < 150, "bytes, and not the longest word times the number of words"
    (item,) = task.items_of(np.arange(1), 0)
    assert str(item.prompt).count("Write one command at a time") == 1
    run = assay.train("grpo", name, model=model, steps=1, prompts=2, group_size=2, eval_prompts=4, out=tmp_path / "run")
    assert run.curves[-1]["session/replies"] > 1


BAD = [
    ("textworld-express:gold", "textworld-express refuses 'gold': Unknown game"),
    ("textworld-express:", "names no game"),
    ("textworld-express:coin:turns=many", "turns is 'many'"),
    ("textworld-express:coin:turns", "cannot be parsed"),
    ("textarena:Pair-v0", "no game for one player: The number of players has to be 2"),
    ("textarena:None-v0", "has no game 'None-v0'"),
    ("textarena:Words-v0", "needs data that is not here: Resource 'words' not found"),
    ("textarena:Card-v0:level=3", "has no setting 'level'"),
]


@pytest.mark.parametrize(("name", "words"), BAD)
def test_what_does_not_fit_is_one_sentence(name: str, words: str, libraries: list[Door]) -> None:
    with pytest.raises(AssayError, match=words):
        find_task(name)


@pytest.mark.parametrize(
    "name", ["textworld-express:coin", "scienceworld:boil", "textarena:Mastermind-v0", "minigrid:MiniGrid-Empty-5x5-v0"]
)
def test_a_library_that_is_not_installed_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = name.partition(":")[0].replace("-", "_")
    monkeypatch.setitem(sys.modules, module, None)
    text_worlds.places_of.cache_clear()
    with pytest.raises(AssayError, match=rf"{module} is needed for task '{name}'.*pip install 'assay\[worlds\]'"):
        find_task(name)


REAL = [
    ("textworld_express", "textworld-express:coin:numLocations=2,includeDoors=0"),
    ("scienceworld", "scienceworld:find-plant:simplifications=easy"),
    ("textarena", "textarena:Mastermind-v0"),
    ("minigrid", "minigrid:MiniGrid-DoorKey-5x5-v0"),
]


@pytest.mark.parametrize(("module", "name"), REAL)
def test_the_real_library_holds_the_laws(module: str, name: str) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed: pip install 'assay[worlds]'")
    task, partner = partner_of(name)
    assert all(finding.held for finding in check_sessions(partner))
    if partner.item(0, 0).demonstration:
        assert task.demonstrate(np.arange(2), 0).reward.sum(1).tolist() == [1.0, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a folder that ScienceWorld leaves to the collector
        for place in (partner.places.first, *partner.places.all):
            place.drop()
        text_worlds.places_of.cache_clear()
        gc.collect()


def test_the_view_of_a_grid_is_told_in_words() -> None:
    pytest.importorskip("minigrid", reason="minigrid is not installed: pip install 'assay[worlds]'")
    _, partner = partner_of("minigrid:MiniGrid-Empty-5x5-v0:turns=8")
    session = partner.open(partner.item(0, 0), 0)
    assert partner.item(0, 0).prompt == "mission : get to the green goal square\ngoal 2 ahead and 2 right\n"
    assert session.reply("fly").text.startswith("no such command : turn left")
    told = [session.reply(words) for words in ["go forward"] * 2 + ["turn right", "go forward", "go forward"]]
    assert told[0].text == "goal 1 ahead and 2 right\n"
    assert isinstance(told[-1].outcome, Score)
    assert told[-1].outcome.value > 0.9
