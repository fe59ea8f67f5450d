"""Items of a prompt task: generated, listed or from files, split into training and held-out ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np

from assay.core.errors import AssayError
from assay.core.record import Draw, Outcome
from assay.rollouts import text

HELD_OUT = 0.1
MAX_ATTEMPTS = 10_000


# ---------------------------------------------------------------------------------------------------- items
@dataclass(frozen=True)
class Item:
    """One prompt: its text, the answer for display, a completion that verifies, facts for the verifier, and its place
    in a file, for messages.
    """

    prompt: str
    answer: str
    demonstration: str
    facts: Mapping[str, object] = field(default_factory=dict)
    where: str = field(default="", compare=False)


class Items(Protocol):
    """Prompts by number.

    Laws: `item` is a pure function; no content is in both splits; `verify` never raises because of a completion's text
    and gives 1 to every demonstration.
    """

    def item(self, ordinal: int, split: int) -> Item:
        """Returns item `ordinal` of split 0 (training) or 1 (held out)."""

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns the score of the completion."""


@runtime_checkable
class SourcedItems(Items, Protocol):
    """Prompts of several sources; see `SourcedTask`."""

    @property
    def source_names(self) -> tuple[str, ...]:
        """Returns the names of the sources; none if the prompts do not say where they are from."""

    def start_in(self, source: int, place: int) -> int:
        """Returns the ordinal of prompt `place` of a source, in the training split."""

    def source_of(self, start: int) -> int:
        """Returns the number of the source of a training prompt."""


@runtime_checkable
class FiniteItems(Items, Protocol):
    """Finitely many prompts; see `RepeatingTask`."""

    @property
    def splits(self) -> tuple[Sequence[Item], Sequence[Item]]:
        """Returns the prompts of training, and those held out."""

    def order(self, ordinals: np.ndarray, draw: Draw) -> np.ndarray:
        """Returns the start at each place of the run's order."""


class Generator(Protocol):
    """A procedural generator, a frozen value: items from random words. Its items come from `generated_item`."""

    @property
    def num_words(self) -> int:
        """Returns how many 64-bit words one proposal consumes."""

    def propose(self, words: Sequence[int]) -> tuple[str, Item] | None:
        """Returns (content, item), or None if these words give no item. Versions of one problem share a content."""

    def item(self, ordinal: int, split: int) -> Item:
        """Returns item `ordinal` of split 0 (training) or 1 (held out)."""
        return generated_item(self, ordinal, split)  # type: ignore[arg-type]  # hashable: a frozen dataclass


@lru_cache(maxsize=1 << 14)
def generated_item(generator: Generator, ordinal: int, split: int) -> Item:
    """Returns the first of the proposals (ordinal, 0), (ordinal, 1), ... whose content belongs to the split.

    A tenth of all contents is held out, by a hash of the content alone: the splits cannot overlap.
    """
    check_split(split)
    for attempt in range(MAX_ATTEMPTS):
        proposal = generator.propose(text.hashed_words(f"{ordinal},{attempt}", generator.num_words))
        if proposal is not None and text.is_held_out(proposal[0], HELD_OUT) == bool(split):
            return proposal[1]
    raise AssayError(f"{generator} has too few items: none of {MAX_ATTEMPTS} is in split {split}. Raise its level")


def check_split(split: int) -> None:
    """Refuses a split other than 0 and 1."""
    if split not in (0, 1):
        raise AssayError(f"split is {split}. Use 0 (training) or 1 (held out)")
