"""The notebooks run from their first cell to the last, in an empty folder, and store no outputs."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.engine import evaluation

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(path.name for path in (ROOT / "examples").glob("*.ipynb"))


def cells(name: str, kind: str) -> list[dict[str, Any]]:
    """Returns the cells of a kind."""
    book = json.loads((ROOT / "examples" / name).read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    return [cell for cell in book["cells"] if cell["cell_type"] == kind]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS == ["control.ipynb", "language.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_output_is_stored(name: str) -> None:
    assert [cell["id"] for cell in cells(name, "code") if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_lead_to_files(name: str) -> None:
    text = "".join(line for cell in cells(name, "markdown") for line in cell["source"])
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    assert links
    assert [link for link in links if not (ROOT / "examples" / link).exists()] == []


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs_and_what_it_says_is_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the extra 'plots' is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "PROMPTS", 64)
    monkeypatch.setattr(evaluation, "EPISODES", 8)
    module, printed = ModuleType("notebook"), []
    for place, cell in enumerate(cells(name, "code")):
        text = "".join(cell["source"])
        exec(compile(text, f"{name}, code cell {place}", "exec", dont_inherit=True), vars(module))
        printed.append(capsys.readouterr().out)
    assert pyplot.get_fignums(), "a curve is drawn"
    pyplot.close("all")
    assert module.run.after.value > module.run.before.value  # type: ignore[attr-defined]
    if name == "language.ipynb":
        assert "after step 40" in "".join(printed)
    else:
        assert "[1 0]" in printed[-1], "it pushes to the side to which the pole falls"
        assert {len(some) for some in module.runs.values()} == {2}  # type: ignore[attr-defined]
        (ppo, _), (a2c, _) = module.runs["ppo"], module.runs["a2c"]  # type: ignore[attr-defined]
        spent = [one.curves[-1]["decisions_total"] for one in (ppo, a2c)]
        assert spent[0] == pytest.approx(spent[1], rel=0.05), "as many decisions"
