"""Gymnasium's spaces as Assay's: observations become contexts, actions of a policy become those of an environment.

Axes: N instances, A action dimensions, C channels, H height, W width. A Dict or Tuple is the list of the simple spaces
inside it (leaves), in its own order:

    observation   Box of bytes with 2 or 3 axes        image [C, H, W], bytes
                  one Discrete                          state, a number (one-hot if asked for, or beside other leaves)
                  everything else                       one vector of float32: Box as it is, Discrete and MultiDiscrete
                                                        one-hot, MultiBinary as 0 and 1
    action        Box leaves                            one vector, clipped to the bounds
                  Discrete, MultiDiscrete, MultiBinary  one numbered choice if there are at most JOINT combinations,
                                                        else one choice for each
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.spaces import MASK, Box, Context, Discrete, Image, MultiDiscrete, Space
from assay.tasks.adapters.gymnasium_masks import Masks, Reader, read_observation

JOINT = 64
"""Combinations up to which several discrete choices are one numbered choice, which every discrete method can take."""


@dataclass(frozen=True)
class Leaf:
    """A simple space inside an observation or action space; `keys` lead to its values."""

    keys: tuple[Any, ...]
    space: Any
    kind: str
    """Box, Discrete, MultiDiscrete or MultiBinary."""

    @property
    def name(self) -> str:
        """Returns the keys as they are written in Python: ['arm'][0]."""
        return "".join(f"[{key!r}]" for key in self.keys)

    def of(self, value: Any) -> Any:
        """Returns the leaf's part of a value of the whole space."""
        for key in self.keys:
            value = value[key]
        return value

    @property
    def is_image(self) -> bool:
        """Returns whether values are pixels: bytes with two or three axes."""
        return self.kind == "Box" and self.space.dtype == np.uint8 and len(self.space.shape) in (2, 3)

    @property
    def sizes(self) -> list[int]:
        """Returns the number of options of every choice of a discrete leaf."""
        if self.kind == "Discrete":
            return [int(self.space.n)]
        return np.reshape(self.space.nvec, -1).tolist() if self.kind == "MultiDiscrete" else [2] * self.size

    @property
    def size(self) -> int:
        """Returns how many numbers a value has."""
        return 1 if self.kind == "Discrete" else math.prod(self.space.shape)

    @property
    def first(self) -> Any:
        """Returns the first option of every choice: Gymnasium's `start`."""
        return np.reshape(self.space.start, -1) if self.kind in ("Discrete", "MultiDiscrete") else 0

    def vector(self, value: Any) -> np.ndarray:
        """Returns an observed value as float32; choices with several options are one-hot."""
        if self.kind == "Box":
            return np.asarray(value, np.float32).reshape(-1)
        chosen = np.reshape(np.asarray(value).astype(np.int64), -1) - self.first
        if self.kind == "MultiBinary":
            return chosen.astype(np.float32)
        hot = [np.eye(size, dtype=np.float32)[one] for size, one in zip(self.sizes, chosen, strict=True)]
        return np.concatenate(hot)

    def names(self) -> list[str]:
        """Returns a name for every number of `vector`."""
        if self.kind == "Box":
            places = np.ndindex(*self.space.shape)
            return [f"{self.name}[{', '.join(map(str, place))}]" if place else self.name for place in places]
        count = self.size if self.kind == "MultiBinary" else sum(self.sizes)
        return [self.name] * count


def leaves_of(space: Any, role: str, name: str, keys: tuple[Any, ...] = ()) -> Iterator[Leaf]:
    """Yields the simple spaces inside a Gymnasium space; AssayError for a kind that cannot be a vector."""
    spaces = require("gymnasium.spaces", "control", f"task '{name}'")
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, one in inner:
            yield from leaves_of(one, role, name, (*keys, key))
        return
    for kind in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        if isinstance(space, getattr(spaces, kind)):
            yield Leaf(keys, space, kind)
            return
    where = "".join(f"[{key!r}]" for key in keys)
    known = "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them"
    raise AssayError(f"task '{name}': {role}_space{where} is {space!r}. Use {known} (gymnasium.wrappers can convert)")


def bounds_of(leaves: Sequence[Leaf]) -> Box:
    """Returns the Box of leaves side by side; one-hot numbers lie between 0 and 1."""
    low: list[float] = []
    high: list[float] = []
    for leaf in leaves:
        count = len(leaf.names())
        sides = (leaf.space.low, leaf.space.high) if leaf.kind == "Box" else (np.zeros(count), np.ones(count))
        low += np.asarray(sides[0], np.float64).reshape(-1).tolist()
        high += np.asarray(sides[1], np.float64).reshape(-1).tolist()
    return Box(tuple(low), tuple(high))


def image_of(leaf: Leaf, numbers: int) -> Image:
    """Returns the space of an image; channels are the smaller one of the first and the last axis."""
    channels, height, width = pixels(leaf, np.zeros(leaf.space.shape, np.uint8)).shape
    return Image(channels, height, width, max(1, int(leaf.space.high.max())), numbers)


def pixels(leaf: Leaf, value: Any) -> np.ndarray:
    """Returns an image as [C, H, W]."""
    array = np.asarray(value)
    if array.ndim == 2:
        return array[None].copy()
    last = array.shape[2] <= array.shape[0]
    return np.ascontiguousarray(np.moveaxis(array, 2, 0)) if last else array.copy()


@dataclass(frozen=True)
class Port:
    """Converts observations of an environment to contexts, and actions of a policy to those of the environment."""

    name: str
    observation: Space
    action: Space
    raw_observation: Any
    raw_action: Any
    seen: tuple[Leaf, ...]
    taken: tuple[Leaf, ...]
    masks: Masks | None = None

    # ------------------------------------------------------------------------------------------------ observations
    def row(self, observation: Any) -> dict[str, np.ndarray]:
        """Returns the context of one observation as arrays of its own memory; AssayError names a wrong value. Whether
        numbers are finite is left to `check_finite`, which is faster for many rows at once.
        """
        if self.is_plain:
            array, space = np.asarray(observation), self.seen[0].space
            if array.shape == space.shape and array.dtype.kind == "f":
                return {"observation": array.astype(np.float32).reshape(-1)}
        parts = [(leaf, self.part(leaf, observation)) for leaf in self.seen]
        if isinstance(self.observation, Discrete):
            return {"state": np.asarray(int(parts[0][1]) - int(self.seen[0].first[0]), np.int64)}
        image = [pixels(leaf, value) for leaf, value in parts if leaf.is_image and isinstance(self.observation, Image)]
        vectors = [leaf.vector(value) for leaf, value in parts if not (image and leaf.is_image)]
        found = {"image": image[0]} if image else {}
        if vectors:
            found["observation"] = np.array(vectors[0]) if len(vectors) == 1 else np.concatenate(vectors)
        return found

    @cached_property
    def is_plain(self) -> bool:
        """Returns whether observations are one Box of fractions, without a name."""
        leaf = self.seen[0]
        return len(self.seen) == 1 and not leaf.keys and leaf.kind == "Box" and leaf.space.dtype.kind == "f"

    def check_finite(self, row: Mapping[str, np.ndarray]) -> None:
        """Raises AssayError for a number that is NaN or infinite, with its name."""
        vector = row.get("observation", np.zeros(0))
        if not np.isfinite(vector).all():
            place = int(np.flatnonzero(~np.isfinite(vector))[0])
            raise AssayError(f"observation{self.names()[place]} is {vector[place]}. Return finite numbers")

    def part(self, leaf: Leaf, observation: Any) -> Any:
        """Returns a leaf's value; AssayError if it is missing or has another shape, type or range."""
        try:
            value = leaf.of(observation)
        except (KeyError, IndexError, TypeError) as error:
            what = f"observation{leaf.name} is missing ({error!r})"
            raise AssayError(f"{what}. Return every entry of its space") from error
        array = np.asarray(value)
        if array.shape != leaf.space.shape:
            raise AssayError(
                f"observation{leaf.name} has shape {array.shape}, its space says {leaf.space.shape}. Return that "
                "shape, or change observation_space"
            )
        whole = leaf.kind != "Box" or np.issubdtype(leaf.space.dtype, np.integer)
        allowed = "biu" if whole else "biuf"
        if array.dtype.kind not in allowed:
            raise AssayError(
                f"observation{leaf.name} has dtype {array.dtype}, its space says {leaf.space.dtype}. Convert it with "
                f".astype({leaf.space.dtype})"
            )
        if leaf.kind in ("Discrete", "MultiDiscrete"):
            chosen = np.reshape(array, -1) - leaf.first
            if ((chosen < 0) | (chosen >= leaf.sizes)).any():
                what = f"observation{leaf.name} is {value}, outside {leaf.space}"
                raise AssayError(f"{what}. Return a value of its space")
        return value

    def names(self) -> list[str]:
        """Returns a name for every number of the observation vector: ['arm'][2]."""
        images = isinstance(self.observation, Image)
        return [name for leaf in self.seen if not (images and leaf.is_image) for name in leaf.names()]

    def context(self, rows: Sequence[Mapping[str, np.ndarray]]) -> Context:
        """Returns the context of N rows."""
        return {name: torch.from_numpy(column) for name, column in self.stacked(rows).items()}

    def stacked(self, rows: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Returns N rows as columns."""
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    # ------------------------------------------------------------------------------------------------ actions
    def masked_by(self, read: Reader) -> Port:
        """Returns the port with masks that `read` finds; unchanged if actions are no choices."""
        if isinstance(self.action, Box):
            return self
        sizes = tuple(size for leaf in self.taken for size in leaf.sizes)
        return replace(self, masks=Masks(read, sizes, joint=isinstance(self.action, Discrete)))

    def actions(self, action: Tensor | np.ndarray) -> list[Any]:
        """Returns the environment's actions of N rows; continuous ones are clipped to their bounds."""
        rows = np.asarray(action.detach().cpu() if isinstance(action, Tensor) else action)
        if isinstance(self.action, Discrete) and len(self.taken) == 1 and self.taken[0].kind == "Discrete":
            return (rows + int(self.taken[0].first[0])).tolist()
        if len(self.taken) == 1 and self.taken[0].kind == "Box" and not self.taken[0].keys:
            return list(decided(self.taken[0], rows.reshape(len(rows), *self.taken[0].space.shape)))
        if isinstance(self.action, Discrete):
            sizes = [size for leaf in self.taken for size in leaf.sizes]
            rows = np.stack(np.unravel_index(rows.reshape(-1), sizes), 1)
        return [self.nested(row) for row in rows.reshape(len(rows), -1)]

    def nested(self, row: np.ndarray) -> Any:
        """Returns one action in the structure of the environment's space."""
        parts, place = {}, 0
        for leaf in self.taken:
            parts[leaf.keys] = decided(leaf, row[place : place + leaf.size])
            place += leaf.size
        return structured(self.raw_action, parts)

    def idle(self, allowed: np.ndarray | None = None) -> Any:
        """Returns one action: the first (allowed) option of every choice, or zeros clipped to the bounds."""
        size = 1 if isinstance(self.action, Discrete) else self.num_actions
        first = np.zeros((1, size), np.float32 if isinstance(self.action, Box) else np.int64)
        if allowed is not None:
            first[0] = [np.flatnonzero(choice)[0] for choice in split_choices(self.action, allowed)]
        return self.actions(first[:, 0] if isinstance(self.action, Discrete) else first)[0]

    @property
    def num_actions(self) -> int:
        """Returns how many numbers an action has."""
        return sum(leaf.size for leaf in self.taken)


def split_choices(action: Space, allowed: np.ndarray) -> list[np.ndarray]:
    """Returns the mask of each choice of a policy's action."""
    return np.split(allowed, np.cumsum(action.sizes)[:-1]) if isinstance(action, MultiDiscrete) else [allowed]


def check_allowed(action: Space, allowed: np.ndarray, chosen: np.ndarray) -> None:
    """Raises AssayError if a policy's action [A] is one that the mask forbids."""
    choices = split_choices(action, allowed)
    for place, (choice, option) in enumerate(zip(choices, np.reshape(chosen, -1), strict=True)):
        if not choice[int(option)]:
            which = f" of choice {place}" if len(choices) > 1 else ""
            fix = "This policy does not read action masks. Use a method whose actor does, such as ppo or dqn"
            raise AssayError(f"action {int(option)}{which} was chosen, which the mask forbids. {fix}")


def decided(leaf: Leaf, numbers: np.ndarray) -> Any:
    """Returns a leaf's part of an action; of N actions if the numbers of a Box have the shape of N values."""
    if leaf.kind == "Discrete":
        return int(numbers[0]) + int(leaf.first[0])
    if leaf.kind == "Box":
        values = numbers if numbers.ndim > 1 else numbers.reshape(leaf.space.shape)
        return values.clip(leaf.space.low, leaf.space.high).astype(leaf.space.dtype)
    return (numbers + leaf.first).reshape(leaf.space.shape).astype(leaf.space.dtype)


def structured(space: Any, parts: Mapping[tuple[Any, ...], Any], keys: tuple[Any, ...] = ()) -> Any:
    """Returns the parts of an action in the structure of its space: dicts, tuples, or the only part itself."""
    if keys in parts:
        return parts[keys]
    if isinstance(space.spaces, Mapping):
        return {key: structured(one, parts, (*keys, key)) for key, one in space.spaces.items()}
    return tuple(structured(one, parts, (*keys, place)) for place, one in enumerate(space.spaces))


# ---------------------------------------------------------------------------------------------------- building
def port_of(observation: Any, action: Any, name: str, one_hot: bool = False, masks_from: Reader | None = None) -> Port:
    """Returns the port of two Gymnasium spaces; `one_hot` makes a vector of a single Discrete observation, and
    `masks_from` reads the masks of discrete actions. An entry `action_mask` of the observation is a mask, not observed.
    """
    seen, taken = (
        tuple(leaves_of(space, role, name)) for space, role in ((observation, "observation"), (action, "action"))
    )
    if all(leaf.kind != "Box" for leaf in taken):
        inside = [leaf for leaf in seen if leaf.keys == (MASK,)]
        seen = tuple(leaf for leaf in seen if leaf not in inside)
        masks_from = read_observation if inside else masks_from
    for leaves, role, space in ((seen, "observation", observation), (taken, "action", action)):
        if not leaves or not sum(leaf.size for leaf in leaves):
            raise AssayError(f"task '{name}': {role}_space {space!r} is empty. Declare at least one number or choice")
    decides = action_space(taken, name)
    port = Port(name, observation_space(seen, decides, one_hot, name), decides, observation, action, seen, taken)
    return port if masks_from is None else port.masked_by(masks_from)


def observation_space(leaves: Sequence[Leaf], action: Space, one_hot: bool, name: str) -> Space:
    """Returns a numbered state, an image, or a vector."""
    if len(leaves) == 1 and leaves[0].kind == "Discrete" and isinstance(action, Discrete) and not one_hot:
        return Discrete(leaves[0].sizes[0])
    images = [leaf for leaf in leaves if leaf.is_image]
    if not images:
        return bounds_of(leaves)
    if len(images) > 1:
        names = ", ".join(f"observation_space{leaf.name}" for leaf in images)
        raise AssayError(f"task '{name}': {names} are images. Keep one of them, or stack them along their channels")
    return image_of(images[0], sum(len(leaf.names()) for leaf in leaves if leaf is not images[0]))


def action_space(leaves: Sequence[Leaf], name: str) -> Space:
    """Returns a vector, one numbered choice, or several choices."""
    kinds = {leaf.kind == "Box" for leaf in leaves}
    if len(kinds) > 1:
        what = ", ".join(f"{leaf.name or 'itself'}: {leaf.kind}" for leaf in leaves)
        raise AssayError(f"task '{name}': action_space mixes Box and discrete parts ({what}). Use one of the two")
    if True in kinds:
        for leaf in leaves:
            if not np.issubdtype(leaf.space.dtype, np.number) or (leaf.space.low > leaf.space.high).any():
                raise AssayError(f"task '{name}': action_space{leaf.name} is {leaf.space}. Give low <= high as numbers")
        return bounds_of(leaves)
    sizes = tuple(size for leaf in leaves for size in leaf.sizes)
    return Discrete(math.prod(sizes)) if len(sizes) == 1 or math.prod(sizes) <= JOINT else MultiDiscrete(sizes)
