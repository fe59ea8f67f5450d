"""Mixtures: several sources of prompts as one task, so that a curriculum can choose between them.

Start `ordinal` is item `ordinal // D` of source `ordinal % D`, D sources: taken in order, all have the same share; a
curriculum changes the shares by proposing other ordinals. Held-out starts are an even mixture too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from assay.core.errors import AssayError
from assay.core.record import Outcome
from assay.tasks.language.addition import addition
from assay.tasks.language.items import Item, Items
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.sorting import sorting


@dataclass(frozen=True)
class Mixture:
    """Items of several sources in turn; the fact `source` of an item is the number of its source.

    With `kinds`, one word for each source, the fact `kind` is the source's word.
    """

    sources: tuple[Items, ...]
    kinds: tuple[str, ...] = ()

    @property
    def source_names(self) -> tuple[str, ...]:
        """Returns a name for each source: its kind, or its number."""
        return self.kinds or tuple(map(str, range(len(self.sources))))

    def start_in(self, source: int, place: int) -> int:
        """Returns the ordinal of item `place` of a source."""
        return place * len(self.sources) + source

    def source_of(self, start: int) -> int:
        """Returns the number of an item's source."""
        return start % len(self.sources)

    def __post_init__(self) -> None:
        if not self.sources:
            raise AssayError("a mixture has no sources. Give it at least one")
        if self.kinds and len(self.kinds) != len(self.sources):
            raise AssayError(f"a mixture of {len(self.sources)} sources has {len(self.kinds)} kinds. Name one for each")

    def item(self, ordinal: int, split: int) -> Item:
        """Returns item `ordinal // D` of source `ordinal % D`."""
        place, source = divmod(ordinal, len(self.sources))
        item = self.sources[source].item(place, split)
        kind = {"kind": self.kinds[source]} if self.kinds else {}
        return replace(item, facts={**item.facts, "source": source, **kind})

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns the verdict of the item's source."""
        source = item.facts["source"]
        assert isinstance(source, int), item
        return self.sources[source].verify(item, completion)


def mixture(name: str, tasks: Sequence[PromptTask], kinds: tuple[str, ...] = ()) -> PromptTask:
    """Returns one task of the sources' items; prompts and completions may be as long as the longest."""
    return PromptTask(
        name,
        Mixture(tuple(task.items for task in tasks), kinds),
        tasks[0].tokenizer,
        max_prompt=max(task.max_prompt for task in tasks),
        max_tokens=max(task.max_tokens for task in tasks),
    )


def levels(name: str, task: Callable[[int], PromptTask], lowest: int, highest: int) -> PromptTask:
    """Returns the levels of a procedural task as sources, easiest first."""
    return mixture(name, [task(level) for level in range(lowest, highest + 1)])


def easy_and_hard() -> PromptTask:
    """Lists of three letters (kind `easy`) and of five (kind `hard`) to sort, in turn."""
    return mixture("easy-and-hard", [sorting(3, "abcdefgh"), sorting(5, "abcdefgh")], ("easy", "hard"))


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "easy-and-hard": easy_and_hard,
    "addition-1-to-4": partial(levels, "addition-1-to-4", addition, 1, 4),
    "sorting-3-to-8": partial(levels, "sorting-3-to-8", sorting, 3, 8),
}
