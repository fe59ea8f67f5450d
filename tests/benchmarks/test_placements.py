"""Placements: the simulated cluster against closed forms, where sequences have equal lengths."""

from __future__ import annotations

import json

import pytest

from benchmarks import placements, systems
from benchmarks.placements import Placed, best

CASES = [
    Placed(4, 4, 0, 256, 6, 0.0, 300.0),
    Placed(2, 2, 0, 64, 6, 0.0, 300.0),
    Placed(4, 3, 1, 384, 6, 0.0, 300.0),
    Placed(8, 2, 1, 256, 6, 0.0, 3_000.0),
    Placed(8, 6, 1, 384, 6, 0.0, 3_000.0),
]
"""Together, and splits in which sampling or training takes longer."""


@pytest.mark.parametrize("placed", CASES)
def test_a_placement_takes_what_its_closed_form_says(placed: Placed) -> None:
    assert placed.seconds() == pytest.approx(placed.by_hand(), rel=1e-9)


def test_the_best_split_is_that_of_enumeration() -> None:
    found = best(8, 2, 128, steps=4)
    every = {some: Placed(8, some, 2, 128, 4).seconds() for some in range(1, 8)}
    assert {some: seconds for seconds, some in found} == every
    assert found[0][0] == min(every.values())


def test_every_split_is_printed_beside_all_together(capsys: pytest.CaptureFixture[str]) -> None:
    placements.main(["--gpus", "4", "--lag", "1"])
    found = json.loads(capsys.readouterr().out)
    assert sorted(row["sample"] + row["train"] for row in found["splits"]) == [4] * len(found["splits"])
    first = found["splits"][0]
    assert first["over"] == pytest.approx(found["together"] / first["seconds_a_step"], rel=0.05)


def test_sampling_beside_training_is_timed_and_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    systems.main(["--unit", "0.001", "--pairs", "1"])
    (row,) = json.loads(capsys.readouterr().out).values()
    assert row["simulated_ratio"] > 1.2
    assert all(seconds > 0.0 for seconds in row["wall"])
