"""Columns are declared by the parts that write and read them; the parts agree, and a missing one is explained."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch

from assay import recipes
from assay.claims import discover
from assay.claims.laws.bench import term_cases
from assay.claims.laws.benches import STANDARD
from assay.core.columns import GIVEN, axes_of, is_given, merge_columns, writers_of
from assay.core.errors import AssayError
from assay.core.record import COLUMNS, Experience
from assay.core.slots import Credit, Objective
from assay.methods.r2vpo import METHOD, FollowVariance
from assay.parts import Multiplier, WithGreedy

SAID = re.compile(r"B(T[NAKE]?)?(: [^:].*[^.])?")
"""Axes, then the meaning without a full stop."""


def test_parts_agree_on_axes_and_meaning() -> None:
    said: dict[str, set[str]] = {}
    for one in discover.declarations():
        if one.text:
            said.setdefault(one.column, set()).add(one.text)
            assert SAID.fullmatch(one.text), f"{one.cls.__name__} says '{one.text}' about '{one.column}'"
    for name, texts in said.items():
        assert len({text.partition(":")[0] for text in texts}) == 1, f"'{name}' has several axes: {texts}"
        assert sum(":" in text for text in texts) <= 1, f"'{name}' has several meanings: {texts}"


def test_every_column_has_axes_and_a_meaning() -> None:
    table = discover.columns()
    assert len(table) >= 53
    assert [name for name, column in table.items() if not column.axes or not column.meaning] == []
    assert [name for name, column in table.items() if not column.writers and name not in GIVEN] == []
    assert not {name for name, column in table.items() if column.writers} & GIVEN.keys()
    assert not table.keys() & set(COLUMNS), "the record's own columns are not extra"
    assert all(SAID.fullmatch(text) and ":" in text for text in GIVEN.values())


def test_the_table_has_the_writers_of_a_column() -> None:
    table = discover.columns()
    assert {cls.__name__ for cls in table["chosen"].writers} == {"Pairs", "PairUp"}
    held = {cls.__name__ for cls in table["logp_held"].writers}
    assert held == {"HoldHighCovariance", "HoldUnlikely"}, "parts without laws count too"
    assert [cls.__name__ for cls in table["greedy_outcome"].writers] == ["WithGreedy"], "by a property"
    assert [cls.__name__ for cls in table["sketch"].writers] == ["Sketch"], "by an annotation"


def test_declarations_are_joined() -> None:
    assert merge_columns(("a", "b"), {"b": "B", "c": "BT: c"}, {"c": "BT"}) == {"a": "", "b": "B", "c": "BT: c"}
    assert (axes_of({"a": "BT: x: y"}, "a"), axes_of(("a",), "a"), axes_of({"b": "B"}, "b")) == ("BT", "", "B")
    assert set(Multiplier().writes) == {"advantage", "cost_advantage"}
    assert set(WithGreedy(gather=WithGreedy()).writes) == {"greedy_outcome"}
    assert is_given("value")
    assert not is_given("advantage")


def test_a_missing_column_is_an_error_that_names_parts_which_write_it() -> None:
    with pytest.raises(AssayError) as error:
        replace(recipes.grpo(), credit=()).check()
    text = "PolicyGradient reads the column 'advantage', which no earlier part of this recipe writes. "
    assert str(error.value).startswith(text)
    assert "OutcomeCredit (credit)" in str(error.value)
    assert "Whiten" not in str(error.value), "it reads advantages itself"


def test_parts_of_the_readers_own_file_are_named_first() -> None:
    recipe = METHOD.recipe()
    kept = tuple(part for part in recipe.credit if not isinstance(part, FollowVariance))
    with pytest.raises(AssayError, match=r"'variance_weight', .* FollowVariance \(prepare\) writes it"):
        replace(recipe, credit=kept).check()
    assert writers_of("nowhere", Credit) == "Put a part before it whose `writes` has 'nowhere'"


def test_the_error_imports_no_method() -> None:
    code = (
        "import sys; from dataclasses import replace; from assay import recipes\n"
        "try: replace(recipes.grpo(), credit=()).check()\n"
        "except Exception as error: print(type(error).__name__)\n"
        "print(sum(name.startswith('assay.methods.') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["AssayError", "0"]


@dataclass(frozen=True)
class Weighs(Objective):
    """A term that reads a column of rows, of decisions, and one whose axes it leaves out."""

    reads: ClassVar[dict[str, str]] = {"by_row": "B: weight of a row", "by_decision": "BT", "unsaid": ""}
    needs: ClassVar[frozenset[Any]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> torch.Tensor:
        return batch.num_decisions


def test_laws_fill_columns_by_the_axes_that_the_reader_states() -> None:
    batch = term_cases(Weighs(), STANDARD[0])[0].batch
    assert batch.column("by_row").shape == (len(batch),)
    assert batch.column("by_decision").shape == batch.column("unsaid").shape == batch.mask.shape
