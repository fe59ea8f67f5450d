"""Text games of other libraries as conversations: LIBRARY:GAME, or LIBRARY:GAME:turns=20,SETTING=VALUE.

    textworld-express:coin:numLocations=3      scienceworld:find-plant:simplifications=easy
    textarena:Mastermind-v0                    minigrid:MiniGrid-Empty-5x5-v0
    openenv:http://127.0.0.1:8000:turns=4      (a server of one's own; see `openenv`)

A row has a session of its own. Games that need a process (Java) share at most `AT_ONCE` of them: a session whose
process another one has used begins its game again and repeats what was said, and a reply that differs is a fault.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from assay.core.errors import AssayError
from assay.core.record import Outcome
from assay.rollouts.text import ByteTokenizer, Tokenizer
from assay.rollouts.words import WordTokenizer
from assay.tasks.adapters.openenv import OpenEnv, places_at
from assay.tasks.adapters.text_world_kinds import Arena, Express, Grid, Science, World
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.items import Item, check_split
from assay.tasks.language.partners import Reply

AT_ONCE = 16
"""Processes of a game."""
SEEN, WALKED = 12, 48
"""Games whose prompts are measured, and games whose words make a vocabulary."""
UNKNOWN = "?"
GAME = re.compile(r"(https?://[^/:]*(?::\d+)?(?:/[^:]*)?|[^:]*)(?::(.*))?", re.DOTALL)
"""A game, which may be the address of a server, and settings."""


@dataclass(frozen=True)
class Kind:
    """A library: what makes its game; usual turns, and bytes of an utterance and of what is read of a reply; whether a
    game is a process; and whether the words of some games are a vocabulary for a small model. `places` says how many
    games there may be at a time, at most a number.
    """

    make: Callable[[str, Mapping[str, str]], World]
    turns: int
    tokens: int
    shown: int
    is_process: bool
    has_words: bool
    places: Callable[[str, Mapping[str, str], int], int] | None = None


KINDS: Mapping[str, Kind] = {
    "textworld-express": Kind(Express, 12, 48, 1200, True, True),
    "scienceworld": Kind(Science, 30, 96, 1200, True, False),
    "textarena": Kind(Arena, 20, 48, 1200, False, False),
    "minigrid": Kind(Grid, 30, 16, 400, False, True),
    "openenv": Kind(OpenEnv, 8, 96, 1200, True, False, places_at),
}


class Place:
    """A game that several sessions may use in turn, and the session that used it last."""

    def __init__(self, make: Callable[[], World]) -> None:
        self.make, self.world, self.user = make, None, None
        self.lock, self.num_users = threading.Lock(), 0

    world: World | None
    user: object | None

    def begun(self) -> World:
        """Returns the game, started if it was not."""
        if self.world is None:
            self.world = self.make()
        return self.world

    def drop(self) -> None:
        """Leaves a game that failed; the next session starts another one."""
        world, self.world, self.user = self.world, None, None
        if world is not None:
            world.close()


class Places:
    """The games of one task in this process, each started when it is needed: the one that prompts are read from, and
    at most so many others. If there may be no other, rows play the first.
    """

    def __init__(self, make: Callable[[], World], most: int | None) -> None:
        self.make, self.most, self.lock = make, most, threading.Lock()
        self.first = Place(make)
        self.all = [self.first] if most == 0 else list[Place]()

    def taken(self) -> Place:
        """Returns the place with the fewest users; a new one as long as there may be more."""
        with self.lock:
            found = min(self.all, key=lambda place: place.num_users, default=None)
            if found is None or (found.num_users and (self.most is None or len(self.all) < self.most)):
                found = Place(self.make)
                self.all.append(found)
            found.num_users += 1
            return found

    def left(self, place: Place) -> None:
        """Gives a place back."""
        with self.lock:
            place.num_users -= 1


@dataclass
class WorldSession:
    """One game of one row. What was said and shown is kept, to begin again where another session was in between."""

    place: Place
    places: Places
    ordinal: int
    split: int
    most: int
    said: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def reply(self, utterance: str) -> Reply:
        """Returns what a command shows; lines are joined, since a game reads one."""
        with self.place.lock:
            try:
                words = " ".join(utterance.split())
                text, outcome = self.here().step(words)
            except Exception:
                self.place.drop()
                raise
        self.said.append(words)
        self.shown.append(text)
        return Reply(cut(text, self.most), outcome)

    def here(self) -> World:
        """Returns the game where this session left it."""
        world = self.place.begun()
        if self.place.user is not self:
            self.place.user = None
            world.begin(self.ordinal, self.split)
            for words, before in zip(self.said, self.shown, strict=True):
                if world.step(words)[0] != before:
                    raise RuntimeError(f"the game did not repeat its reply to {words!r:.60}")
            self.place.user = self
        return world

    def reward(self) -> Outcome:
        """Returns the score of the game as it stands: no turns are left."""
        with self.place.lock:
            return self.here().score()

    def close(self) -> None:
        """Gives the place back."""
        self.places.left(self.place)


@dataclass(frozen=True)
class TextWorlds:
    """Games of one name and settings. Training and held-out games are the library's own, or even and odd seeds."""

    library: str
    game: str
    settings: tuple[tuple[str, str], ...] = ()
    is_repeatable: bool = True

    @property
    def introduction(self) -> str:
        """Returns the rules, for a pretrained model."""
        with self.places.first.lock:
            return self.places.first.begun().introduction

    @property
    def places(self) -> Places:
        """Returns the games of this process."""
        return places_of(self.library, self.game, self.settings)

    @property
    def sizes(self) -> tuple[int, int]:
        """Returns bytes of prompts, twice those of the longest of some games, and of replies."""
        longest = max(len(self.item(k // 2, k % 2).prompt.encode()) for k in range(SEEN))
        return 2 * longest, KINDS[self.library].shown + 1

    def item(self, ordinal: int, split: int) -> Item:
        """Returns game `ordinal`: its prompt, and the commands that win it if the library knows them."""
        check_split(split)
        return item_of(self, ordinal, split)

    def open(self, item: Item, seed: int) -> WorldSession:
        """Opens a session of the item's game: the same for all rows of its group, whatever the seed."""
        places, ordinal, split = self.places, item.facts["ordinal"], item.facts["split"]
        assert isinstance(ordinal, int)
        assert isinstance(split, int)
        return WorldSession(places.taken(), places, ordinal, split, KINDS[self.library].shown)

    def words(self) -> tuple[str, ...]:
        """Returns the words of some training games, as they are won, and those that the game names."""
        first = self.places.first
        with first.lock:
            found = {UNKNOWN, *split_words(first.begun().vocabulary)}
        for ordinal in range(WALKED):
            item = self.item(ordinal, 0)
            found |= {*split_words(item.prompt), *split_words(item.demonstration)}
            session = self.open(item, 0)
            for words in item.demonstration.split("\n"):
                found |= set(split_words(session.reply(words).text))
            session.close()
        return tuple(sorted(found))


@lru_cache(maxsize=8)
def places_of(library: str, game: str, settings: tuple[tuple[str, str], ...]) -> Places:
    """Returns the games of a name in this process."""
    kind, told = KINDS[library], dict(settings)
    most = AT_ONCE if kind.is_process else None
    if kind.places is not None:
        most = kind.places(game, told, AT_ONCE + 1) - 1
    return Places(lambda: kind.make(game, told), most)


@lru_cache(maxsize=1 << 14)
def item_of(worlds: TextWorlds, ordinal: int, split: int) -> Item:
    """Returns the item of a game, which is begun for it."""
    first = worlds.places.first
    with first.lock:
        world, first.user = first.begun(), None
        prompt = world.begin(ordinal, split, is_shown=True)
        shown = "\n".join(world.solution())
    return Item(f"{prompt.strip()}\n", "", shown, {"ordinal": ordinal, "split": split})


def cut(text: str, most: int) -> str:
    """Returns the first bytes of a reply."""
    return text.strip().encode("utf-8", "replace")[:most].decode("utf-8", "ignore") + "\n"


# ---------------------------------------------------------------------------------------------------- words
def split_words(text: str) -> list[str]:
    """Returns the words of a text; signs are words of their own."""
    return re.findall(r"\w+|[^\w\s]", text)


@dataclass(frozen=True)
class KnownWords(WordTokenizer):
    """Words of a fixed list, signs apart; every other word is "?". What the policy writes is words of the list."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text."""
        return [self.ids.get(word, self.ids[UNKNOWN]) for word in split_words(text)]


# ---------------------------------------------------------------------------------------------------- tasks
def is_world(name: str) -> bool:
    """Returns whether a name is the address of a game."""
    return name.partition(":")[0] in KINDS


def text_world_task(name: str) -> DialogueTask:
    """Returns the task of an address LIBRARY:GAME or LIBRARY:GAME:SETTING=VALUE,..."""
    library, _, rest = name.partition(":")
    game, words = GAME.fullmatch(rest).groups("")  # type: ignore[union-attr]  # it matches all
    kind, settings = KINDS[library], parsed(words, name)
    if not game:
        raise AssayError(f"task '{name}' names no game. Write {library}:GAME")
    turns = whole(settings.pop("turns", str(kind.turns)), name)
    worlds = TextWorlds(library, game, tuple(settings.items()))
    items = [worlds.item(k // 2, k % 2) for k in range(SEEN)]
    tokenizer: Tokenizer = KnownWords(worlds.words()) if kind.has_words else ByteTokenizer()
    prompt = 2 * max(len(tokenizer.encode(item.prompt)) for item in items) + 1
    utterances = [line for item in items for line in item.demonstration.split("\n")]
    if not kind.has_words:
        return DialogueTask(name, worlds, tokenizer, prompt, turns, kind.tokens, kind.shown + 1)
    needed = max([3, *(len(tokenizer.encode(line)) + 1 for line in utterances)])
    return DialogueTask(name, worlds, tokenizer, prompt, turns, needed, kind.shown // 2)


def parsed(words: str, name: str) -> dict[str, str]:
    """Parses `a=1,b=2`."""
    pairs = [one.partition("=") for one in words.split(",") if words]
    if any(not sign or not key or not value for key, sign, value in pairs):
        raise AssayError(f"the settings of task '{name}' cannot be parsed. Write LIBRARY:GAME:name=value,name=value")
    return {key: value for key, _, value in pairs}


def whole(value: str, name: str) -> int:
    """Returns the number of turns; AssayError for anything else."""
    if not value.isdigit() or not 1 <= int(value) <= 1000:
        raise AssayError(f"task '{name}': turns is '{value}'. Use a whole number from 1 to 1000")
    return int(value)
