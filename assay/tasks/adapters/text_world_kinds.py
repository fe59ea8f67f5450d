"""Text games of other libraries under one interface: TextWorldExpress, ScienceWorld, TextArena, and MiniGrid in words.

The first two run in a Java process that each game starts, TextArena draws from global generators (their states are
kept for each game), and MiniGrid's view of 7 x 7 fields is written as a list of what is seen.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Outcome, PolicyFault, Score

EXTRA = "worlds"
FOREVER = 1 << 30
"""A limit of steps that is not reached: the limit is that of turns."""
ONE_AT_A_TIME = threading.Lock()
"""Held while a game uses the global generators."""


class World(Protocol):
    """A game that is begun again and again. An exception of `begin` or `step` is a fault of the infrastructure."""

    introduction: str
    vocabulary: str
    """Text whose words a small model must know, beside those of its prompts and solutions."""

    def begin(self, ordinal: int, split: int, is_shown: bool = False) -> str:
        """Begins game `ordinal` of a split; returns its prompt. `is_shown`: `solution` will be asked for."""

    def solution(self) -> list[str]:
        """Returns the commands that win the game as it was begun; none if the library knows none."""

    def step(self, said: str) -> tuple[str, Outcome | None]:
        """Returns what a command shows, and the outcome if it ended the game."""

    def score(self) -> Outcome:
        """Returns the outcome of the game as it stands."""

    def close(self) -> None:
        """Ends the game and what it has started."""


class Express(World):
    """A game of TextWorldExpress: its own commands are listed in the prompt, the score is from 0 to 1."""

    introduction = "You play a text game. Write one command at a time and nothing else, such as 'look around'."
    vocabulary = ""

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        package = require("textworld_express", EXTRA, f"task 'textworld-express:{name}'")
        self.game = with_java(lambda: package.TextWorldExpressEnv(envStepLimit=FOREVER))
        try:
            self.game.load(name, ",".join(f"{key}={value}" for key, value in settings.items()))
        except ValueError as error:
            self.close()
            raise AssayError(f"textworld-express refuses '{name}': {str(error).strip()}") from None
        self.seeds = (self.game.getValidSeedsTrain(), self.game.getValidSeedsTest())
        self.last = 0.0

    def begin(self, ordinal: int, split: int, is_shown: bool = False) -> str:
        seeds = self.seeds[split]
        fold, seed = ("test" if split else "train"), seeds[ordinal % len(seeds)]
        seen, info = self.game.reset(seed=seed, gameFold=fold, generateGoldPath=is_shown)
        self.last = 0.0
        return f"{info['taskDescription']}\n{seen}\nCommands: {', '.join(sorted(info['validActions']))}"

    def solution(self) -> list[str]:
        return [str(one) for one in self.game.getGoldActionSequence()]

    def step(self, said: str) -> tuple[str, Outcome | None]:
        seen, _, is_over, info = self.game.step(said)
        self.last = float(info["score"])
        return str(seen), self.score() if is_over else None

    def score(self) -> Outcome:
        return Score(self.last)

    def close(self) -> None:
        self.game.close()


class Science(World):
    """A task of ScienceWorld, whose variations are its games; the score is the simulator's / 100, and 0 for a failure.

    The setting `simplifications` is the simulator's, its names joined by "+": `simplifications=easy`.
    """

    vocabulary = ""

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        package = require("scienceworld", EXTRA, f"task 'scienceworld:{name}'")
        self.game = with_java(lambda: package.ScienceWorldEnv("", envStepLimit=FOREVER))
        self.name, self.simple, self.last = name, settings.get("simplifications", "").replace("+", ","), 0.0
        others = sorted(set(settings) - {"simplifications"})
        try:
            if others:
                raise ValueError(f"there is no setting '{others[0]}'. It has: simplifications, turns")
            self.game.load(name, 0, self.simple)
        except ValueError as error:
            self.close()
            raise AssayError(f"scienceworld refuses '{name}': {error}") from None
        self.games = (list(self.game.get_variations_train()), list(self.game.get_variations_test()))
        forms = ", ".join(self.game.get_possible_actions())
        self.introduction = f"Write one command at a time and nothing else, of these forms: {forms}."

    def begin(self, ordinal: int, split: int, is_shown: bool = False) -> str:
        games = self.games[split]
        self.game.load(self.name, games[ordinal % len(games)], self.simple, generateGoldPath=is_shown)
        seen, _ = self.game.reset()
        self.last = 0.0
        return f"{self.game.get_task_description()}\n{seen}"

    def solution(self) -> list[str]:
        return [str(one) for one in self.game.get_gold_action_sequence()]

    def step(self, said: str) -> tuple[str, Outcome | None]:
        seen, _, is_over, info = self.game.step(said)
        self.last = max(0.0, float(info["score"]) / 100.0)
        return str(seen), self.score() if is_over else None

    def score(self) -> Outcome:
        return Score(self.last)

    def close(self) -> None:
        self.game.close()


class Arena(World):
    """A game of TextArena for one player; the reward is the library's, a game lost by invalid moves a fault."""

    introduction = "Write one move at a time, in square brackets."
    vocabulary = ""

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        package = require("textarena", EXTRA, f"task 'textarena:{name}'")
        if settings:
            raise AssayError(f"task 'textarena:{name}' has no setting '{next(iter(settings))}'. It has: turns")
        try:
            self.game = package.make(f"{name}-raw")
        except ValueError:
            raise AssayError(f"textarena has no game '{name}'. Its list has names such as Mastermind-v0") from None
        except LookupError as error:
            line = next((line.strip() for line in str(error).splitlines() if line.strip(" *")), "")
            raise AssayError(f"textarena's {name} needs data that is not here: {line}") from None
        self.name, self.drawn = name, generators()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Puts this game's generators in the places of the global ones."""
        with ONE_AT_A_TIME:
            before = generators()
            place(self.drawn)
            try:
                yield
            finally:
                self.drawn = generators()
                place(before)

    def begin(self, ordinal: int, split: int, is_shown: bool = False) -> str:
        seed = 2 * ordinal + split
        with self.drawing():
            random.seed(seed)
            np.random.seed(seed % (1 << 32))  # noqa: NPY002  the game draws from it
            try:
                self.game.reset(num_players=1, seed=seed)
            except AssertionError as error:
                raise AssayError(f"textarena's {self.name} is no game for one player: {error}") from None
        return self.told()

    def told(self) -> str:
        """Returns what the game has said since the last time."""
        _, seen = self.game.get_observation()
        return "\n".join(str(one[1]) for one in seen if one[0] < 0)

    def solution(self) -> list[str]:
        return []

    def step(self, said: str) -> tuple[str, Outcome | None]:
        with self.drawing():
            is_over, _ = self.game.step(said if "[" in said else f"[{said}]")
        return (self.told(), None) if not is_over else ("", self.ended())

    def ended(self) -> Outcome:
        """Returns the outcome of a game that is over."""
        rewards, told = self.game.close()
        reward = float(rewards[0])
        return PolicyFault("invalid move", reward) if told[0].get("invalid_move") else Score(reward)

    def score(self) -> Outcome:
        return Score(0.0)

    def close(self) -> None:
        """Does nothing: the game is an object."""


MOVES = {"turn left": 0, "turn right": 1, "go forward": 2, "pick up": 3, "drop": 4, "toggle": 5}
SIGNS = "mission : . , ahead and left right you carry a nothing in view no such command"
HERE = (3, 6)
"""The agent's own field of its view, which looks up."""


class Grid(World):
    """An environment of MiniGrid: the mission and what is in view, in words; the reward is the environment's."""

    introduction = (
        f"You are on a grid, and see what is in front of you. Write one command at a time and nothing else: "
        f"{', '.join(MOVES)} (toggle opens doors and boxes)."
    )

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        package = require("minigrid", EXTRA, f"task 'minigrid:{name}'")
        gymnasium = require("gymnasium", EXTRA, f"task 'minigrid:{name}'")
        names = package.core.constants
        self.tables = self.things, self.colors, self.states = tuple(
            {number: word for word, number in table.items()}
            for table in (names.OBJECT_TO_IDX, names.COLOR_TO_IDX, names.STATE_TO_IDX)
        )
        known = (*MOVES, *map(str, range(10)), *(word for table in self.tables for word in table.values()))
        self.vocabulary = " ".join((*known, SIGNS))
        if settings:
            raise AssayError(f"task 'minigrid:{name}' has no setting '{next(iter(settings))}'. It has: turns")
        try:
            self.game = gymnasium.make(name)
        except gymnasium.error.Error as error:
            raise AssayError(f"minigrid has no environment '{name}': {error}") from None
        if "MiniGrid" not in name and "BabyAI" not in name:
            raise AssayError(f"'{name}' is no environment of MiniGrid. Use one such as MiniGrid-Empty-5x5-v0")

    def begin(self, ordinal: int, split: int, is_shown: bool = False) -> str:
        seen, _ = self.game.reset(seed=2 * ordinal + split)
        return f"mission : {seen['mission']}\n{self.view(seen)}"

    def view(self, seen: Mapping[str, Any]) -> str:
        """Returns the objects in view, the nearest first, with their places: steps ahead, and to a side."""
        rows = list(self.rows(seen["image"]))
        carried = self.game.unwrapped.carrying
        held = [] if carried is None else [f"you carry a {carried.color} {carried.type}"]
        return " . ".join([*held, *(words for _, words in sorted(rows))] or ["nothing in view"])

    def rows(self, image: Any) -> Iterable[tuple[int, str]]:
        """Yields the distance and the words of each object, and of the wall in front."""
        for x, y in ((x, y) for x in range(7) for y in range(7) if (x, y) != HERE):
            thing, color, state = (int(number) for number in image[x, y])
            side, ahead = x - HERE[0], HERE[1] - y
            name = self.things[thing]
            if name in ("unseen", "empty", "floor") or (name == "wall" and (side, ahead) != (0, 1)):
                continue
            what = f"{self.states[state]} door" if name == "door" else name
            shown = what if name in ("wall", "goal", "lava") else f"{self.colors[color]} {what}"
            aside = f" and {abs(side)} {'right' if side > 0 else 'left'}" if side else ""
            yield ahead + abs(side), f"{shown} {ahead} ahead{aside}"

    def solution(self) -> list[str]:
        return []

    def step(self, said: str) -> tuple[str, Outcome | None]:
        if said not in MOVES:
            return f"no such command : {' , '.join(MOVES)}", None
        seen, reward, is_terminal, is_truncated, _ = self.game.step(MOVES[said])
        return self.view(seen), Score(float(reward)) if is_terminal or is_truncated else None

    def score(self) -> Outcome:
        return Score(0.0)

    def close(self) -> None:
        self.game.close()


def generators() -> tuple[Any, Any]:
    """Returns the states of Python's and numpy's global generators."""
    return random.getstate(), np.random.get_state()  # noqa: NPY002  games draw from it


def place(states: tuple[Any, Any]) -> None:
    """Sets the states of the global generators."""
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002  games draw from it


def with_java(start: Any) -> Any:
    """Returns what a function starts; AssayError if there is no Java."""
    try:
        return start()
    except (FileNotFoundError, PermissionError) as error:
        raise AssayError(f"the game runs in Java, which is not installed ({error}). apt install default-jre") from None
