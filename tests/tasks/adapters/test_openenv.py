"""Environments of OpenEnv's protocol, behind a stand-in of its server: one environment a connection, JSON messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import pytest

import assay
from assay.claims.laws.session import check_sessions
from assay.core.errors import AssayError
from assay.core.record import PolicyFault, Score
from assay.runs.catalogue import find_task
from assay.tasks.adapters import text_worlds
from assay.tasks.adapters.text_worlds import TextWorlds
from assay.tasks.language.dialogue import DialogueTask

server = pytest.importorskip(
    "websockets.sync.server", reason="websockets is not installed: pip install 'assay[openenv]'"
)
TEXT = {"action": {"digit": "string"}, "observation": {"text": "string", "tries": "integer"}}
SEVERAL = {"action": {"digit": "integer", "why": "string"}, "observation": {"tries": "integer"}}


@dataclass
class Digits:
    """A server whose environments hide the digit seed % 3: 1 for it, -0.25 for another one."""

    fields: dict[str, dict[str, str]] = field(default_factory=lambda: TEXT)
    most: int = 3
    is_seeded: bool = True
    used: int = 0
    resets: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def schema(self) -> str:
        """What GET /schema says."""
        told = {
            part: {"properties": {name: {"type": kind} for name, kind in {**fields, "metadata": "object"}.items()}}
            for part, fields in self.fields.items()
        }
        return json.dumps(told)

    def talk(self, socket: Any) -> None:
        """A connection: an environment, if there is a place."""
        with self.lock:
            self.used += 1
            is_full = self.used > self.most
        try:
            if is_full:
                socket.send(json.dumps({"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "full"}}))
                return
            secret, tries = 0, 0
            for message in map(json.loads, socket):
                answer = {"observation": {"tries": tries, "metadata": {}}, "reward": None, "done": False}
                if message["type"] == "reset":
                    self.resets += 1
                    secret, tries = message["data"]["seed"] % 3, 0
                    said = f"digit of {secret if self.is_seeded else self.resets}"
                    answer["observation"] = {"text": said, "tries": 0, "metadata": {"at": self.resets}}
                elif message["type"] == "step":
                    digit = message["data"].get("digit")
                    if digit is None or not str(digit).strip().isdigit():
                        refused = {"code": "VALIDATION_ERROR", "message": "digit is no digit"}
                        socket.send(json.dumps({"type": "error", "data": refused}))
                        continue
                    tries, is_right = tries + 1, int(digit) == secret
                    seen = {"text": "right" if is_right else "wrong", "tries": tries, "metadata": {}}
                    answer = {"observation": seen, "reward": 1.0 if is_right else -0.25, "done": is_right}
                socket.send(json.dumps({"type": "observation", "data": answer}))
        finally:
            with self.lock:
                self.used -= 1


@contextmanager
def serving(digits: Digits) -> Iterator[str]:
    """Serves environments at the address inside the block."""

    def page(socket: Any, request: Any) -> Any:
        return socket.respond(HTTPStatus.OK, digits.schema()) if request.path == "/schema" else None

    with server.serve(digits.talk, "127.0.0.1", 0, process_request=page) as there:
        thread = threading.Thread(target=there.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{there.socket.getsockname()[1]}"
        finally:
            for places in [text_worlds.places_of(*key) for key in used]:
                for place in (places.first, *places.all):
                    place.drop()
            used.clear()
            for memory in (text_worlds.places_of, text_worlds.item_of):
                memory.cache_clear()
            there.shutdown()
            thread.join()


used: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []
"""Names of the places that a test has used."""


def worlds_of(name: str) -> TextWorlds:
    task = find_task(name)
    assert isinstance(task, DialogueTask)
    worlds = task.partner
    assert isinstance(worlds, TextWorlds)
    used.append((worlds.library, worlds.game, worlds.settings))
    return worlds


@pytest.mark.parametrize("most", [1, 2, 5])
def test_sessions_hold_the_laws_however_few_places_there_are(most: int) -> None:
    with serving(Digits(most=most)) as url:
        worlds = worlds_of(f"openenv:{url}:turns=4")
        assert worlds.places.most == most - 1
        assert all(finding.held for finding in check_sessions(worlds))
        games = [worlds.open(worlds.item(ordinal, 0), 0) for ordinal in range(4)]
        assert [game.reply("0").text for game in games] == ["right\n", "wrong\n", "wrong\n", "right\n"]
        assert [game.reply("2").outcome for game in games[1:3]] == [Score(0.75), None]
        assert games[2].reward() == Score(-0.5)


def test_prompts_are_what_a_reset_shows_and_odd_seeds_are_held_out() -> None:
    with serving(Digits()) as url:
        worlds = worlds_of(f"openenv:{url}")
        shown = [worlds.item(ordinal, split).prompt for ordinal in range(2) for split in range(2)]
        assert shown == ["digit of 0\n", "digit of 1\n", "digit of 2\n", "digit of 0\n"]
        assert "the next action's digit (string)" in worlds.introduction


def test_an_action_with_several_fields_is_json() -> None:
    with serving(Digits(SEVERAL)) as url:
        worlds = worlds_of(f"openenv:{url}")
        assert "JSON object with the fields digit (integer), why (string)" in worlds.introduction
        game = worlds.open(worlds.item(1, 0), 0)
        assert json.loads(game.reply('{"digit": 1, "why": "a guess"}').text) == {"text": "wrong", "tries": 1}
        assert game.reply('{"digit": 2, "why": "the rest"}').outcome == Score(0.75)


@pytest.mark.parametrize("said", ["seven", "[1]", "{", "[" * 5000])
@pytest.mark.parametrize("fields", [TEXT, SEVERAL])
def test_an_action_that_is_none_is_a_fault_of_the_policy(said: str, fields: dict[str, dict[str, str]]) -> None:
    with serving(Digits(fields)) as url:
        worlds = worlds_of(f"openenv:{url}")
        assert isinstance(worlds.open(worlds.item(0, 0), 0).reply(said).outcome, PolicyFault)


@pytest.mark.parametrize(
    ("digits", "settings", "said"),
    [
        (Digits(), ":action=code", "action is 'code', but the server's schema has digit"),
        (Digits(), ":show=stdout", "show is 'stdout', but the server's schema has text, tries"),
        (Digits(), ":size=3", "has no setting 'size'. It has: action, show, turns"),
        (Digits(is_seeded=False), "", "another text after a second reset with seed 0"),
        (Digits(most=0), "", "has no place for an environment.*max_concurrent_envs"),
    ],
)
def test_what_cannot_be_played_is_refused_before_training(
    digits: Digits, settings: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.tasks.adapters.openenv.PATIENCE", 0.1)
    with serving(digits) as url, pytest.raises(AssayError, match=said):
        find_task(f"openenv:{url}{settings}")


@pytest.mark.parametrize("name", ["openenv:http://127.0.0.1:9", "openenv:somewhere", "openenv:ftp://x"])
def test_a_server_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(AssayError, match=r"names no server|Start the environment's server|cannot be parsed"):
        find_task(name)


def test_a_connection_that_was_left_is_opened_again() -> None:
    digits = Digits(most=1)
    with serving(digits) as url:
        worlds = worlds_of(f"openenv:{url}")
        game = worlds.open(worlds.item(0, 0), 0)
        place = worlds.places.first
        assert place.world is not None
        place.world.close()
        assert game.reply("1").text == "wrong\n"


def test_it_trains(tmp_path: Any) -> None:
    with serving(Digits(most=2)) as url:
        worlds_of(f"openenv:{url}:turns=2")
        run = assay.train(
            "grpo", task=f"openenv:{url}:turns=2", steps=1, prompts=2, group_size=2, max_tokens=4, eval_prompts=2,
            out=tmp_path / "run",
        )  # fmt: skip
        assert run.after is not None
