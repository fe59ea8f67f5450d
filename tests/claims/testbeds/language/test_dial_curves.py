"""The dial curves of the language testbeds: every testbed has one, and the page shows the committed numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from assay.runs.plan import make_plan
from tools import dials

CURVES = json.loads(dials.FILE.read_text())
PAGE = Path(dials.FILE).parents[1] / "testbeds.md"


def test_every_testbed_of_the_page_has_a_curve_and_the_page_shows_it() -> None:
    page = PAGE.read_text()
    tasks = re.findall(r"^\| `([\w-]+)` \| .* \| .* \| .* \|$", page, re.MULTILINE)
    assert {"formats", "stale", "lock"} <= set(tasks)
    assert [task for task in tasks if task not in CURVES] == []
    assert dials.table(CURVES).strip() in page


@pytest.mark.parametrize("dial", dials.DIALS, ids=lambda dial: dial.name)
def test_a_committed_curve_is_that_of_its_dial(dial: dials.Dial) -> None:
    kept = CURVES[dial.name]
    assert (kept["task"], kept["setting"], kept["steps"]) == (dial.task, dial.setting, dial.steps)
    assert [row["value"] for row in kept["rows"]] == list(dial.values)
    for value in dial.values:
        address, settings = dial.at(value)
        assert make_plan(dial.method, address, settings=settings).task.name.startswith(dial.task.partition(":")[0])
    for row in kept["rows"]:
        assert {len(row[name]) for name in dial.quantities} == {kept["seeds"]}


def test_the_formats_of_a_toy_run_are_measured() -> None:
    dial = replace(next(one for one in dials.DIALS if one.name == "formats"), steps=2)
    found = dials.measured(dial, 0.3, seed=0)
    assert found["start:cheapest_share"] == pytest.approx(0.5)
    assert set(dial.quantities) | {"cpu_seconds"} == set(found)
