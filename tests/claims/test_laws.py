"""How findings are made: strict about declared breaks, exceptions are findings, nothing is tried in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from assay.claims.laws.cases import Case, experiences
from assay.claims.laws.laws import Contract, Finding, Unsuited, assert_laws, gap, law, other_streams, runs


@law("numbers are not negative")
def not_negative(part: Any, case: Case) -> Iterator[str]:
    if part.number < 0:
        yield f"it is {part.number}"


@law("numbers are even")
def even(part: Any, case: Case) -> Iterator[str]:
    if part.number % 2:
        yield f"it is {part.number}"


CASE = experiences()[0]
CONTRACT = Contract("number", (not_negative, even), lambda part: [CASE])


@dataclass(frozen=True)
class Number:
    number: int
    breaks: dict[str, str] = field(default_factory=dict)


def test_a_law_that_holds_says_what_it_says() -> None:
    assert CONTRACT.check(Number(2)) == [
        Finding("not_negative", True, "numbers are not negative"),
        Finding("even", True, "numbers are even"),
    ]


def test_a_broken_law_names_what_and_on_which_input() -> None:
    found = CONTRACT.check(Number(3))[1]
    assert found == Finding("even", False, "numbers are even; here it is 3", CASE.name)
    with pytest.raises(AssertionError, match=r"even.*it is 3.*ragged"):
        assert_laws([found])


def test_a_declared_break_holds_with_its_reason() -> None:
    found = CONTRACT.check(Number(3, {"even": "odd by design"}))[1]
    assert found.held
    assert "odd by design" in found.detail


def test_a_stale_entry_fails() -> None:
    found = CONTRACT.check(Number(2, {"even": "odd by design"}))[1]
    assert not found.held
    assert "stale" in found.detail


def test_an_entry_that_names_no_law_fails() -> None:
    found = CONTRACT.check(Number(2, {"evn": "a slip of the pen"}))[-1]
    assert not found.held
    assert found.law == "breaks"
    assert "evn" in found.detail
    assert "even" in found.detail


@dataclass(frozen=True)
class Holder:
    inside: Number
    breaks: ClassVar[dict[str, str]] = {}

    @property
    def number(self) -> int:
        return self.inside.number


def test_a_part_inherits_the_declared_breaks_of_the_parts_inside() -> None:
    assert CONTRACT.check(Holder(Number(3, {"even": "odd by design"})))[1].held
    assert not CONTRACT.check(Holder(Number(3)))[1].held


@dataclass(frozen=True)
class Raises:
    error: BaseException

    @property
    def number(self) -> int:
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no number"), SystemExit(3), RecursionError()], ids=repr)
def test_an_exception_is_a_finding_and_the_other_laws_are_not_tried(error: BaseException) -> None:
    (found,) = CONTRACT.check(Raises(error))
    assert not found.held
    assert f"raises {type(error).__name__}" in found.detail
    assert found.input == CASE.name


def test_an_interrupt_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        CONTRACT.check(Raises(KeyboardInterrupt()))


def test_without_a_suitable_input_only_runs_is_reported() -> None:
    contract = Contract("number", (runs, even), lambda part: [Unsuited("every task", "nothing suits it")])
    (found,) = contract.check(Number(3))
    assert (found.law, found.held) == ("runs", False)
    assert "nothing suits it" in found.detail


def test_only_runs_one_law() -> None:
    assert [found.law for found in CONTRACT.check(Number(3), only="even")] == ["even"]


@pytest.mark.parametrize(
    ("mine", "other", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.0, 5.0], 0.5),
        ([1.0], [1.0, 2.0], float("inf")),
        ([float("nan"), 1.0], [float("nan"), 1.0], 0.0),
        ([float("nan"), 1.0], [0.0, 1.0], float("inf")),
        ([float("inf")], [float("inf")], 0.0),
        ([float("inf")], [-float("inf")], float("inf")),
        ([], [], 0.0),
    ],
)
def test_gap(mine: list[float], other: list[float], expected: float) -> None:
    assert gap(torch.tensor(mine), torch.tensor(other)) == expected


def test_other_streams_come_back_to_their_place() -> None:
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    with other_streams(5):
        first = float(torch.rand(())), float(np.random.rand())  # noqa: NPY002
    with other_streams(6):
        second = float(torch.rand(())), float(np.random.rand())  # noqa: NPY002
    assert first[0] != second[0]
    assert first[1] != second[1]
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002


def test_public_names_exist() -> None:
    import assay.claims.laws

    assert all(callable(getattr(assay.claims.laws, name)) for name in assay.claims.laws.__all__)
