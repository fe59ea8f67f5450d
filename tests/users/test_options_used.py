"""Every option of every command is used by a test or by a command of the documentation, which tests run."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.claims import verdicts
from assay.cli.main import main, parser

ROOT = Path(__file__).parents[2]
EVERYWHERE = {"--help", "--json", "--version"}


def options_of(one: argparse.ArgumentParser) -> Iterator[str]:
    """Yields the long options of a command and of the commands below it."""
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options_of(below)
        yield from (name for name in action.option_strings if name.startswith("--") and name not in EVERYWHERE)


def test_every_option_is_used() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(path.read_text() for path in [*pages, *(ROOT / "tests").rglob("*.py")])
    words = set(re.findall(r"--[a-z][a-z-]*|\b[a-z_]+(?==)|(?<=\")[a-z_]+_?(?=\":)", text))
    known = {word if word.startswith("--") else "--" + word.rstrip("_").replace("_", "-") for word in words}
    options = set(options_of(parser()))
    assert len(options) > 90
    assert sorted(options - known) == []


def test_a_folder_of_verdicts_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    shutil.copy(verdicts.path_of("grpo"), tmp_path / "mine" / "grpo.json")
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--verdicts", "--verdict-folder", "mine", "--json"]) == 0
    assert "grpo" in (tmp_path / "report.html").read_text()
