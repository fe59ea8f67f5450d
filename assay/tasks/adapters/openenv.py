"""Environments that speak OpenEnv's protocol, behind a server of their own: openenv:URL, or openenv:URL:SETTING=VALUE.

    openenv:http://127.0.0.1:8000          openenv:http://127.0.0.1:8000:turns=4,action=code,show=stdout

A connection is one environment, as in OpenEnv's own client. What it shows after `reset` is the prompt, an utterance is
an action, and the outcome is the sum of the rewards. Of an action with one field the utterance is that field, as it is
with `action=FIELD`; of one with several it is a JSON object. What is shown is the observation's one text, the field
`show=FIELD`, or the observation as JSON. An action that the server's schema refuses is a fault of the policy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, build_opener

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Outcome, PolicyFault, Score
from assay.tasks.adapters.text_world_kinds import World

EXTRA = "openenv"
WAIT, PATIENCE = 60.0, 5.0
"""Seconds for an answer of the server, and for a place that another connection is leaving."""
MOST_BYTES = 1 << 22
"""The longest answer of the server."""
BESIDE = frozenset({"metadata", "reward", "done"})
"""Fields of every action and observation that are not its content."""
NUMBERS: Mapping[str, Any] = {"integer": int, "number": float}


class Full(Exception):
    """The server has no place for one more environment."""


class OpenEnv(World):
    """One environment of a server. `reset` gets the game's number as its seed, and must show the same for the same."""

    vocabulary = ""

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        self.name, self.url = f"task 'openenv:{url}'", checked_url(url)
        self.client = require("websockets.sync.client", EXTRA, self.name)
        self.closed = require("websockets.exceptions", EXTRA, self.name).ConnectionClosed
        if odd := sorted(set(settings) - {"action", "show"}):
            raise AssayError(f"{self.name} has no setting '{odd[0]}'. It has: action, show, turns")
        schema = self.fetched("/schema")
        self.fields = content(schema, "action")
        self.action = one_of(self.name, "action", settings, self.fields, list(self.fields))
        seen = content(schema, "observation")
        texts = [field for field, kind in seen.items() if kind == "string"]
        self.show = one_of(self.name, "show", settings, seen, texts)
        self.introduction = f"You act in an environment. Write {self.form()} and nothing else."
        self.first: dict[tuple[int, int], str] = {}
        self.total, self.socket = 0.0, self.connected()
        self.begin(0, 0)
        self.begin(0, 0)

    def form(self) -> str:
        """Returns how an action is written."""
        if self.action is not None:
            return f"the next action's {self.action} ({self.fields[self.action]})"
        fields = ", ".join(f"{field} ({kind})" for field, kind in self.fields.items())
        return f"the next action as a JSON object with the fields {fields}"

    # ------------------------------------------------------------------------------------------------ the server
    def fetched(self, path: str) -> Mapping[str, Any]:
        """Returns what the server says at a path."""
        try:
            with build_opener().open(Request(self.url + path), timeout=WAIT) as answer:
                found = json.loads(answer.read(MOST_BYTES))
        except (URLError, OSError, ValueError) as error:
            why = f"{self.url}{path} cannot be read ({error})"
            raise AssayError(f"{self.name}: {why}. Start the environment's server, or correct the address") from None
        return found if isinstance(found, Mapping) else {}

    def connected(self) -> Any:
        """Returns a connection, which is an environment of its own."""
        address = f"ws{self.url.removeprefix('http')}/ws"
        try:
            opened = self.client.connect(address, open_timeout=WAIT, max_size=MOST_BYTES)
            return ExitStack().enter_context(opened)  # stays open: it is closed by `close`
        except Exception as error:
            raise AssayError(f"{self.name}: {address} cannot be reached ({error})") from None

    def exchanged(self, socket: Any, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the answer to a message; a server that has no place has answered, and left, before it was sent."""
        with suppress(self.closed):
            socket.send(json.dumps(message))
        answer: Mapping[str, Any] = json.loads(socket.recv(timeout=WAIT))
        return answer

    def asked(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the answer to a message; Full if the server has no place, RuntimeError for its other errors."""
        answer = self.exchanged(self.socket, {"type": kind, "data": data})
        told = answer.get("data", {})
        if answer.get("type") == "observation":
            return dict(told)
        code, sentence = told.get("code"), str(told.get("message"))[:200]
        if code == "CAPACITY_REACHED":
            raise Full(sentence)
        if code == "VALIDATION_ERROR" and kind == "step":
            raise ValueError(sentence)
        raise RuntimeError(f"the environment's server says {code}: {sentence}")

    def has_place(self, socket: Any) -> bool:
        """Returns whether a new connection got an environment; it is closed if not."""
        answer = self.exchanged(socket, {"type": "state"})
        is_full = answer.get("type") == "error" and answer.get("data", {}).get("code") == "CAPACITY_REACHED"
        if is_full:
            socket.close()
        return not is_full

    # ------------------------------------------------------------------------------------------------ a game
    def begin(self, ordinal: int, split: int, is_shown: bool = False) -> str:
        """Resets with seed 2 * ordinal + split: even numbers are training's."""
        begun, self.total = self.reset(2 * ordinal + split), 0.0
        text = self.text_of(begun)
        if self.first.setdefault((ordinal, split), text) != text:
            what = f"{self.name} shows another text after a second reset with seed {2 * ordinal + split}"
            raise AssayError(f"{what}. The answers of a group need the same prompt: let its reset take the seed")
        return text

    def reset(self, seed: int) -> Mapping[str, Any]:
        """Resets, on a new connection if the server has left this one, or has had no place a moment ago."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.asked("reset", {"seed": seed})
            except (Full, self.closed) as error:
                if time.monotonic() > until:
                    what = f"{self.name}: the server has no place for an environment ({error})"
                    raise AssayError(f"{what}. Raise its max_concurrent_envs, or end its other clients") from None
            self.close()
            time.sleep(0.05)
            self.socket = self.connected()

    def step(self, said: str) -> tuple[str, Outcome | None]:
        """Sends an action."""
        try:
            found = self.asked("step", self.action_of(said))
        except ValueError as error:
            return f"no such action: {error}", PolicyFault("invalid action")
        self.total += float(found.get("reward") or 0.0)
        return self.text_of(found), self.score() if found.get("done") else None

    def action_of(self, said: str) -> Mapping[str, Any]:
        """Returns an utterance as an action; ValueError for other text."""
        if self.action is not None:
            return {self.action: NUMBERS.get(self.fields[self.action], str)(said)}
        try:
            found = json.loads(said)
        except RecursionError:
            found = None
        if not isinstance(found, dict):
            raise ValueError("an action is a JSON object")
        return found

    def text_of(self, found: Mapping[str, Any]) -> str:
        """Returns what is shown of an observation."""
        seen = {key: value for key, value in found.get("observation", {}).items() if key not in BESIDE}
        return str(seen.get(self.show, "")) if self.show is not None else json.dumps(seen)

    def solution(self) -> list[str]:
        """Returns no commands: a server tells none."""
        return []

    def score(self) -> Outcome:
        """Returns the sum of the rewards."""
        return Score(self.total)

    def close(self) -> None:
        """Ends the connection, and with it the environment."""
        with suppress(Exception):
            self.socket.close()


def checked_url(url: str) -> str:
    """Returns an http address without its last slash."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise AssayError(f"task 'openenv:{url}' names no server. Write openenv:http://HOST:PORT")
    return url.rstrip("/")


def content(schema: Mapping[str, Any], part: str) -> dict[str, str]:
    """Returns the fields of an action or observation, each with its JSON type ("any" if there are several)."""
    fields = schema.get(part, {}).get("properties", {})
    return {name: str(one.get("type", "any")) for name, one in fields.items() if name not in BESIDE}


def one_of(
    name: str, setting: str, settings: Mapping[str, str], known: Mapping[str, str], usual: list[str]
) -> str | None:
    """Returns the field that a setting names, else the one usual field, else None."""
    wanted = settings.get(setting)
    if wanted is not None and wanted not in known:
        raise AssayError(
            f"{name}: {setting} is '{wanted}', but the server's schema has {', '.join(known) or 'no field'}"
        )
    return wanted if wanted is not None else usual[0] if len(usual) == 1 else None


def places_at(url: str, settings: Mapping[str, str], most: int) -> int:
    """Returns how many environments the server has at a time, at most `most`, by asking for them."""
    first = OpenEnv(url, settings)
    sockets = [first.socket]
    try:
        while len(sockets) < most and first.has_place(socket := first.connected()):
            sockets.append(socket)
    finally:
        for one in sockets:
            one.close()
    return len(sockets)
