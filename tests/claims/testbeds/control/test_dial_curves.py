"""The script of the dial curves at toy size, and the committed numbers against the page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from assay.runs.plan import make_plan
from benchmarks import testbeds_control


def test_a_curve_measures_every_value_and_seed() -> None:
    toy = replace(testbeds_control.CURVES[2], values=(0.1, 1.0), steps=4)
    found = testbeds_control.measure(toy, seeds=2)
    assert list(found["runs"]) == ["0.1", "1"]
    for runs in found["runs"].values():
        assert len(runs) == 2
        assert all(row["evaluation"] <= 1.0 and row["cpu_seconds"] > 0 for row in runs)


def test_names_are_unique_and_the_page_shows_the_committed_numbers() -> None:
    names = [curve.name for curve in testbeds_control.CURVES]
    assert len(set(names)) == len(names)
    results = json.loads(testbeds_control.RESULTS.read_text())
    assert set(results) <= set(names)
    assert "\n".join(testbeds_control.table(results)) in testbeds_control.PAGE.read_text()


@pytest.mark.parametrize("curve", testbeds_control.CURVES, ids=lambda curve: curve.name)
def test_every_value_of_a_dial_is_a_task(curve: testbeds_control.Curve) -> None:
    settings = {curve.matched: curve.values[0]} if curve.matched else {}
    for value in curve.values:
        plan = make_plan(curve.method, curve.address(value), settings=settings)
        assert plan.task.name.partition(":")[0] == curve.task.partition(":")[0]
