"""The three stories of the page on Python: at most fifteen lines each to a first curve, run as cells of a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from assay.engine import evaluation
from tests.docs.blocks import ROOT, python_of

TEXT = (ROOT / "docs" / "python.md").read_text()
STORIES = dict(re.findall(r'```python title="(\w+) story"\n(.*?)```', TEXT, flags=re.S))
SECTIONS = {re.findall(r'title="(\w+) story"', one)[0]: re.findall(r"```python[^\n]*\n(.*?)```", one, flags=re.S)
            for one in TEXT.split("\n## ") if " story" in one}  # fmt: skip
MOST = 15
FEWER = {"steps": 2, "warmup": 3, "seeds": 1, "num_envs": 2}
"""Numbers of the stories as they are tried here."""


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in an empty folder, with few held-out starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "PROMPTS", 8)
    monkeypatch.setattr(evaluation, "EPISODES", 4)


def ran(*texts: str) -> ModuleType:
    """The namespace of a notebook after its cells."""
    module = ModuleType("cells")
    for text in texts:
        for word, number in FEWER.items():
            text = re.sub(rf"\b{word}=\d+", f"{word}={number}", text)
        text = text.replace('"ppo", Walk,', '"ppo", Walk, settings={"rollout.steps": 32},')
        exec(compile(text, "cell", "exec", dont_inherit=True), vars(module))
    return module


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["language", "control", "research"])
def test_a_story_draws_its_first_curve_in_fifteen_lines(name: str) -> None:
    lines = [line for line in STORIES[name].splitlines() if line.strip()]
    assert len(lines) <= MOST
    module = ran(*SECTIONS[name])
    shown = module.found if name == "research" else module.run
    assert "<polyline" in shown._repr_html_()


def test_the_stories_are_all_of_the_page() -> None:
    assert sorted(STORIES) == ["control", "language", "research"]
    assert len(python_of(ROOT / "docs" / "python.md")) == sum(map(len, SECTIONS.values())) == 6
