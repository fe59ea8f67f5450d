"""The examples and the README's snippet run as they are written, with held-out scores of few starts."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from assay.engine import evaluation

ROOT = Path(__file__).parent.parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory that modules are found in, with held-out scores of few starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(evaluation, "PROMPTS", 4)
    monkeypatch.setattr(evaluation, "EPISODES", 4)
    return tmp_path


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_example_runs(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "examples" / name
    is_plain = "from_scratch" in name  # tests/test_from_scratch.py compares its numbers with Assay's
    monkeypatch.setattr(sys, "argv", [name, "2" if is_plain else "1"])
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.strip().splitlines()) >= 2
    assert (place / "runs").is_dir() != is_plain


@pytest.mark.filterwarnings("default")
def test_the_python_of_the_readme_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks
    for block in blocks:
        (place / "snippet.py").write_text(block)
        runpy.run_path("snippet.py", run_name="__main__")
        assert capsys.readouterr().out.strip()
    assert (place / "runs").is_dir()


@pytest.mark.filterwarnings("default")
def test_the_python_of_the_page_on_environments_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gymnasium")
    page = (ROOT / "docs" / "environments.md").read_text()
    (file,) = re.findall(r'```python title="my_env.py"\n(.*?)```', page, flags=re.S)
    (place / "my_env.py").write_text(file)
    (place / "rest.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.S)))
    monkeypatch.delitem(sys.modules, "my_env", raising=False)
    runpy.run_path("rest.py", run_name="__main__")
    monkeypatch.delitem(sys.modules, "my_env")
    assert "(3, 2)" in capsys.readouterr().out
    assert (place / "runs").is_dir()
