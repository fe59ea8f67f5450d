"""household: "put cup in sink . kitchen : sink ; fridge closed" is done by "open fridge", "take cup", "put sink"."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from assay.core.errors import AssayError
from assay.core.record import Score
from assay.rollouts.words import WordTokenizer
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.items import Generator, Item

ROOMS: Mapping[str, tuple[str, str]] = {
    "kitchen": ("sink", "fridge"),
    "bedroom": ("bed", "drawer"),
    "hall": ("table", "chest"),
    "office": ("desk", "safe"),
}
"""The places of each room; the second is a container and closed at first."""
ROOM_OF = {place: room for room, places in ROOMS.items() for place in places}
CONTAINERS = tuple(places[1] for places in ROOMS.values())
OBJECTS = ("cup", "apple", "book", "sock", "coin", "lamp")
GO, LOOK_IN, TAKE, PUT = "go", "open", "take", "put"
NOTHING, DONE, HAND = "nothing", "ok", "hand"
WORDS = (GO, LOOK_IN, TAKE, PUT, NOTHING, DONE, "in", ".", ":", ";", "closed", *ROOMS, *ROOM_OF, *OBJECTS)


@dataclass(frozen=True)
class House:
    """Where everything is: the policy's room, the place of each object (or the hand), the containers that are open."""

    room: str
    where: tuple[tuple[str, str], ...]
    is_open: frozenset[str] = frozenset()

    def inside(self, place: str) -> list[str]:
        """Returns the objects at a place, or in the hand."""
        return [thing for thing, spot in self.where if spot == place]

    def is_closed(self, place: str) -> bool:
        """Returns whether a place must be opened first."""
        return place in CONTAINERS and place not in self.is_open

    def shown(self, place: str) -> str:
        """Returns the text of a place."""
        return " ".join([place, "closed"] if self.is_closed(place) else [place, *self.inside(place)])

    def view(self) -> str:
        """Returns the text of the room."""
        return f"{self.room} : " + " ; ".join(self.shown(place) for place in ROOMS[self.room])

    def sees(self, thing: str) -> bool:
        """Returns whether an object is in view."""
        return any(thing in self.inside(place) for place in ROOMS[self.room] if not self.is_closed(place))

    def moved(self, thing: str, place: str) -> House:
        """Returns the house with an object at another place."""
        return replace(self, where=tuple((one, place if one == thing else spot) for one, spot in self.where))

    def after(self, command: str) -> tuple[House, str]:
        """Returns (the house after a command, the text to show); an impossible command changes nothing."""
        words = command.split()
        verb, what = words if len(words) == 2 else ("", "")
        carried, is_here = self.inside(HAND), ROOM_OF.get(what) == self.room
        if verb == GO and what in ROOMS:
            there = replace(self, room=what)
            return there, there.view()
        if verb == LOOK_IN and is_here and self.is_closed(what):
            opened = replace(self, is_open=self.is_open | {what})
            return opened, opened.shown(what)
        if verb == TAKE and not carried and self.sees(what):
            return self.moved(what, HAND), DONE
        if verb == PUT and carried and is_here and not self.is_closed(what):
            return self.moved(carried[0], what), DONE
        return self, NOTHING


@dataclass(frozen=True)
class Household(Generator):
    """Two objects in a house of `level` rooms with a shelf and a closed container each; one has to be put somewhere.

    Commands are "go ROOM", "open PLACE", "take OBJECT" and "put PLACE"; one object fits into the hand. The episode ends
    with 1 when the object is at its goal. The demonstrations search closed containers and other rooms at random and
    waste the spare turns, so a cloned policy often runs out of turns. Houses with the same goal and the same places
    are in the same split, whatever the first room.
    """

    level: int = 2

    def __post_init__(self) -> None:
        if not 2 <= self.level <= len(ROOMS):
            raise AssayError(f"{self}: level (rooms) must be 2 to {len(ROOMS)}")

    @property
    def introduction(self) -> str:
        """Returns the instructions: rooms, commands and their conditions."""
        rooms = "; ".join(f"{room} ({', '.join(places)})" for room, places in list(ROOMS.items())[: self.level])
        return (
            f"You are in a house: {rooms}. Write one command at a time and nothing else: {GO} ROOM, {LOOK_IN} PLACE, "
            f"{TAKE} OBJECT, {PUT} PLACE. You carry one object, and open what is closed before you see into it."
        )

    @property
    def num_words(self) -> int:
        return 6 + self.max_turns

    @property
    def max_turns(self) -> int:
        """Returns the turns of the longest search that opens everything."""
        return 3 * self.level + 1

    def propose(self, words: Sequence[int]) -> tuple[str, Item] | None:
        """Returns two objects, their places and a goal, or None if the object is there already."""
        rooms = list(ROOMS)[: self.level]
        places = [place for room in rooms for place in ROOMS[room]]
        left = list(OBJECTS)
        thing, other = left.pop(words[0] % len(left)), left[words[1] % (len(left))]
        spots = [places[word % len(places)] for word in words[2:5]]
        if spots[0] == spots[2]:
            return None
        house = House(rooms[words[5] % self.level], tuple(sorted([(thing, spots[0]), (other, spots[1])])))
        goal = f"put {thing} in {spots[2]}"
        found = list(searched(house, thing, spots[2], rooms, words[6:]))
        shown = "\n".join(wasteful(house, found, self.max_turns, words[6:]))
        facts = {"house": house, "thing": thing, "target": spots[2]}
        return f"{goal}: {house.where}", Item(f"{goal} . {house.view()}\n", goal, shown, facts)

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns the text after the last command, or the end."""
        house, seen = item.facts["house"], ""
        assert isinstance(house, House)
        for command in said:
            house, seen = house.after(command)
        is_done = (item.facts["thing"], item.facts["target"]) in house.where
        return Reply("done", Score(1.0)) if is_done else Reply(f"{seen}\n")

    def progress(self, item: Item, said: Sequence[str]) -> float:
        """Returns the share of `milestones` that were reached at some time."""
        house, thing, target = item.facts["house"], str(item.facts["thing"]), str(item.facts["target"])
        assert isinstance(house, House)
        reached = milestones(house, thing, target)
        for command in said:
            house, _ = house.after(command)
            reached = tuple(map(max, reached, milestones(house, thing, target)))
        return sum(reached) / len(reached)


def milestones(house: House, thing: str, target: str) -> tuple[bool, ...]:
    """Returns whether the object is in view or in the hand, in the hand, carried to an open goal, at the goal."""
    held, is_there = thing in house.inside(HAND), thing in house.inside(target)
    brought = held and house.room == ROOM_OF[target] and not house.is_closed(target)
    return (house.sees(thing) or held or is_there, held or is_there, brought or is_there, is_there)


def searched(house: House, thing: str, target: str, rooms: Sequence[str], words: Sequence[int]) -> Iterator[str]:
    """Yields commands that search for the object at random and bring it to its place."""
    visited, choices = {house.room}, iter(words)
    while not house.sees(thing):
        closed = [f"{LOOK_IN} {place}" for place in ROOMS[house.room] if house.is_closed(place)]
        unseen = [f"{GO} {room}" for room in rooms if room not in visited]
        behind = [f"{GO} {room}" for room in rooms if ROOMS[room][1] not in house.is_open and room != house.room]
        options = closed + unseen or behind
        command = options[next(choices, 0) % len(options)]
        yield command
        house = house.after(command)[0]
        visited.add(house.room)
    yield f"{TAKE} {thing}"
    if house.room != ROOM_OF[target]:
        yield f"{GO} {ROOM_OF[target]}"
    if house.is_closed(target):
        yield f"{LOOK_IN} {target}"
    yield f"{PUT} {target}"


def wasteful(house: House, commands: Sequence[str], most: int, words: Sequence[int]) -> Iterator[str]:
    """Yields the commands with others between them that change nothing, `most` in all."""
    slack = most - len(commands)
    for command, word in zip(commands, reversed(words), strict=False):
        if slack > 0 and word % 2:
            slack -= 1
            yield f"{GO} {house.room}" if word % 4 == 1 else f"{LOOK_IN} {ROOMS[house.room][0]}"
        yield command
        house = house.after(command)[0]


def household(level: int = 2) -> DialogueTask:
    """Returns the task; `level` is the number of rooms."""
    partner = Household(level)
    return DialogueTask(
        f"household-{level}",
        partner,
        WordTokenizer(WORDS),
        max_prompt=14,
        max_turns=partner.max_turns,
        max_tokens=3,
        max_reply=8,
    )


LEVELS: Mapping[str, Callable[[], DialogueTask]] = {
    "household": household,
    **{f"household-{level}": partial(household, level) for level in range(2, 5)},
}
