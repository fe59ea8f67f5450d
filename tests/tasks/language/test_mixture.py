"""Mixtures of language tasks: their sources in turn, their splits apart."""

from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.runs import catalogue
from assay.tasks.language.mixture import Mixture, mixture
from assay.tasks.language.sorting import sorting


def test_a_mixture_takes_its_sources_in_turn_and_judges_by_the_right_one() -> None:
    task = mixture("three", [sorting(level) for level in (3, 4, 5)])
    items = task.items_of(np.arange(9), 0)
    assert [len(item.answer) for item in items] == [3, 4, 5] * 3
    assert items[4].prompt == sorting(4).items.item(1, 0).prompt
    assert task.demonstrate(np.arange(9), 0).column("score").tolist() == [1.0] * 9
    assert task.verify([""], ["zzz"], [items[0]])[0] == sorting(3).verify([""], ["zzz"], [items[0]])[0]


def test_no_problem_of_a_mixture_is_in_both_splits() -> None:
    task = catalogue.find_task("addition-1-to-4")
    kinds = [{tuple(sorted(item.facts["terms"])) for item in task.items_of(np.arange(400), split)} for split in (0, 1)]
    assert not kinds[0] & kinds[1]


def test_an_empty_mixture_is_refused() -> None:
    with pytest.raises(AssayError, match="no sources"):
        Mixture(())
