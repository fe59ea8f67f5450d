"""The laws of sessions hold for a good one, and each is broken by a bad one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from assay.claims.laws.file import check_file
from assay.claims.laws.session import RULES, check_sessions
from assay.core.record import Score
from assay.tasks.language.dialogue import Reply
from assay.tasks.language.items import Item


@dataclass
class Counting:
    counts: dict[Any, int]
    key: Any
    is_open: bool = True

    def reply(self, utterance: str) -> Reply:
        self.counts[self.key] = self.counts.get(self.key, 0) + 1
        return Reply(f"{self.key} {self.counts[self.key]}")

    def reward(self) -> Any:
        return Score(1.0)

    def close(self) -> None:
        self.is_open = False


@dataclass
class Good:
    is_repeatable: bool = True

    def item(self, ordinal: int, split: int) -> Item:
        return Item(f"{ordinal}", "", "")

    def open(self, item: Item, seed: int) -> Counting:
        return Counting({}, seed)


@dataclass
class Shared(Good):
    """All rows count together: the mistake of a tool in a module's global."""

    counts: dict[Any, int] = field(default_factory=dict)

    def open(self, item: Item, seed: int) -> Counting:
        return Counting(self.counts, "all")


@dataclass
class Running(Good):
    """An item is another one each time."""

    last: int = 0

    def item(self, ordinal: int, split: int) -> Item:
        self.last += 1
        return Item(f"{self.last}", "", "")


class NoReward(Counting):
    def reward(self) -> Any:
        return 1.0


class NoClose(Counting):
    def close(self) -> None:
        raise OSError("no container")


def test_a_good_partner_keeps_all_laws() -> None:
    findings = check_sessions(Good())
    assert {one.law for one in findings} == set(RULES)
    assert all(one.held for one in findings)
    assert {one.law for one in check_sessions(Good(is_repeatable=False))} == {"items", "replies", "close"}


@pytest.mark.parametrize(
    ("partner", "broken"),
    [
        (Shared(), {"alone", "order", "repeatable"}),
        (Running(), {"items"}),
        (type("Odd", (Good,), {"open": lambda self, item, seed: NoReward({}, seed)})(), {"replies"}),
        (type("Odd", (Good,), {"open": lambda self, item, seed: NoClose({}, seed)})(), {"close"}),
    ],
)
def test_a_mistake_is_found_by_its_law(partner: Any, broken: set[str]) -> None:
    assert broken <= {one.law for one in check_sessions(partner) if not one.held}


def test_a_file_with_sessions_is_recognised(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(Path(__file__).read_text().partition("def test_a_good")[0] + "\nMINE = Shared()\nFINE = Good()\n")
    reports = {report.name: report for report in check_file(file)}
    assert reports["FINE"].held
    assert not reports["MINE"].held
