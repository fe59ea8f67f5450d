"""`tools/measure_again.py`: which claims are due, in what order, and what becomes of a record."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.claims import measuring, stamps, verdicts
from assay.claims.claim import Claims, Computed, Exact, Measured
from assay.core.errors import AssayError

PATH = Path(__file__).parents[2] / "tools" / "measure_again.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_again", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measure_again"] = module
    spec.loader.exec_module(module)
    return module


def one_more(seed: int) -> float:
    return 1.0 + 0.1 * (seed % 3)


KEPT = Measured("kept", "", one_more, 0.0, seeds=3)
NEW = Measured("new", "", Computed(one_more, small=one_more), 0.5, seeds=3, minutes=7.0)
CLAIMS = Claims((KEPT, NEW, Exact("one is one", lambda: 1.0, equals=1.0)))


@pytest.fixture
def record(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of rloo that lacks a claim, has a former one, and mutants."""
    for module in (tool, verdicts):
        monkeypatch.setattr(module, "find_claims", lambda name: CLAIMS)
    monkeypatch.setattr(verdicts, "record_path", lambda name: tmp_path / f"{name}.json")
    former = Measured("former", "", one_more, 0.1, seeds=3)
    entries = [measuring.measure("rloo", claim, tmp_path) for claim in (KEPT, former)]
    path = verdicts.write("rloo", [one for one in entries if one is not None])
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mutants": {"caught": 7}}))
    return path


def test_claims_that_a_record_lacks_are_due_and_those_that_fit_are_not(tool: ModuleType, record: Path) -> None:
    assert list(tool.due(["rloo"], None, False)) == [tool.Task("rloo", 1, "new", stamps.NEW, 7.0)]


def test_what_was_measured_is_merged_and_mutants_and_fitting_claims_stay(
    tool: ModuleType, record: Path, tmp_path: Path
) -> None:
    out, before = tmp_path / "out", json.loads(record.read_text())
    (out / "parts").mkdir(parents=True)
    assert tool.measure_one("rloo", 1, out, minutes=1.0) == 0
    tool.gather(out, "rloo")
    assert list(tool.due(["rloo"], out, False)) == [], "it is not measured twice"
    tool.merge("rloo", json.loads((out / "rloo.json").read_text()))
    after: dict[str, Any] = json.loads(record.read_text())
    assert [one["name"] for one in after["claims"]] == ["kept", "new", "one is one"]
    assert after["claims"][0] == before["claims"][0]
    assert after["mutants"] == {"caught": 7}
    assert verdicts.problems("rloo", record) == []
    assert set(verdicts.states("rloo", verdicts.read("rloo", record)).values()) == {stamps.FITS}


def test_an_entry_whose_numbers_do_not_agree_is_not_merged(tool: ModuleType, record: Path) -> None:
    entry = json.loads(record.read_text())["claims"][0]
    found = {"name": "rloo", "made": "", "machine": {}, "claims": [entry | {"verdict": "fails"}]}
    with pytest.raises(AssayError, match="its scores say holds"):
        tool.merge("rloo", found)


def test_a_claim_that_computes_other_numbers_is_marked_and_then_due(
    tool: ModuleType, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Measured("kept", "", lambda seed: 2.0 + seed, 0.0, seeds=3)
    for module in (tool, verdicts):
        monkeypatch.setattr(module, "find_claims", lambda name: Claims((changed,)))
    assert list(tool.due(["rloo"], None, False)) == []
    assert tool.marked("rloo") == ["kept"]
    assert [task.why for task in tool.due(["rloo"], None, False)] == [stamps.STALE]
    assert tool.marked("rloo") == [], "once"


def test_the_longest_come_first_if_all_fit_and_else_the_shortest(tool: ModuleType) -> None:
    tasks = [tool.Task("m", place, "c", stamps.NEW, minutes) for place, minutes in enumerate((1.0, 9.0, 4.0))]
    assert [task.minutes for task in tool.ordered(tasks, 4, 5.0)] == [9.0, 4.0, 1.0]
    assert [task.minutes for task in tool.ordered(tasks, 1, 5.0)] == [1.0, 4.0, 9.0]
