"""The panel: a refactoring leaves every bit as it is; a changed number is seen on the commit that changes it."""

from __future__ import annotations

import pytest

from assay.claims import panel
from assay.core.settings import children


def test_the_panel_uses_every_slot() -> None:
    used = set().union(*(panel.slots_of(recipe) for _, recipe, _ in panel.recipes()))
    assert used == panel.all_slots()
    assert len(panel.PANEL) == 12


def test_the_panel_is_bitwise_what_was_committed() -> None:
    known = panel.committed()
    if known is None:
        pytest.skip(f"no hashes for {panel.build_kind()}: python -m assay.claims.panel --write")
    now = panel.hashes()
    changed = sorted(name for name in {**known, **now} if known.get(name) != now.get(name))
    assert not changed, "if the numbers are meant to change: python -m assay.claims.panel --write"


def test_a_hash_sees_a_small_change() -> None:
    name, recipe, task = next(iter(panel.recipes()))
    before = panel.digest(recipe, task)
    assert panel.digest(recipe, task) == before, name
    assert panel.digest(recipe.set("learning_rate", 3.000001e-4), task) != before
    assert dict(children(recipe))["name"] == "dapo"
