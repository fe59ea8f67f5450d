"""The testbed of patches: one wrong line of a file has to be found, and replaced by the true one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.claims.testbeds.language.enumerable import CHOICES, Enumerable, EnumerableTask, code_of
from assay.claims.testbeds.language.enumerable import enumerable_task
from assay.core.errors import AssayError
from assay.tasks.language.items import Item

PATH = "settings.py"
EDIT = (
    "<think>line {place}</think><solution>### {path}\n"
    "<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n</solution>"
)


@dataclass(frozen=True)
class Repair(Enumerable):
    """A file of `lines` assignments for each prompt, one of which is wrong. An answer is the number of a line and the
    `width` digits that it should assign: the uniform start is right with probability 10^-(digits of both).

    Most answers name lines that the file does not have if it has 16 of the 100 that can be named.
    """

    lines: int = 4
    width: int = 2
    prompts: int = 4

    def __post_init__(self) -> None:
        if not 2 <= self.lines <= CHOICES**2 or not 1 <= self.width <= 4:
            raise AssayError(f"{self}: lines must be 2 to {CHOICES**2} and width 1 to 4")

    @property
    def digits(self) -> int:
        """Returns how many digits name a line."""
        return 1 if self.lines <= CHOICES else 2

    def values(self, prompt: int) -> list[str]:
        """Returns what the true lines assign."""
        code = code_of(f"repair {prompt}", self.lines * self.width)
        return [code[place * self.width : (place + 1) * self.width] for place in range(self.lines)]

    def broken(self, prompt: int) -> tuple[int, str]:
        """Returns the number of the wrong line, and what it assigns."""
        place = int(code_of(f"broken {prompt}", 4)) % self.lines
        return place, "".join(str(9 - int(digit)) for digit in self.values(prompt)[place])

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        place, _ = self.broken(prompt)
        return ((f"{place:0{self.digits}d}{self.values(prompt)[place]}",),)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number, with its file and the fixed one."""
        found, prompt = super().item(ordinal, split), ordinal % self.prompts
        true, (place, wrong) = self.values(prompt), self.broken(prompt)
        shown = [wrong if number == place else value for number, value in enumerate(true)]
        files, fixed = ({PATH: "".join(map(assigned, range(self.lines), one))} for one in (shown, true))
        return replace(found, facts={**found.facts, "files": files, "fixed": fixed})

    def written(self, item: Item, said: str) -> str:
        """Returns the edit that an answer stands for: the line of its number assigns its digits."""
        files = item.facts["files"]
        assert isinstance(files, dict)
        lines = files[PATH].splitlines()
        place = int(said[: self.digits]) if said[: self.digits].isdigit() else len(lines)
        old = lines[place] if place < len(lines) else "no such line"
        new = assigned(place, said[self.digits :]).rstrip("\n")
        return EDIT.format(place=place, path=PATH, old=old, new=new)


def assigned(place: int, value: str) -> str:
    """Returns a line of a file."""
    return f"v{place} = {value}\n"


def repair(lines: int = 4, width: int = 2, prompts: int = 4) -> EnumerableTask:
    """Returns the task; `lines` is how many lines the wrong one is among."""
    items = Repair(lines, width, prompts)
    return enumerable_task(f"repair-{lines}x{width}", items, items.digits + width)
