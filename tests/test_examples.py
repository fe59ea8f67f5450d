"""The examples and the README's snippet run as they are written, with held-out scores of few starts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = """
import runpy, sys
from assay.engine import evaluation
evaluation.PROMPTS = evaluation.EPISODES = 4
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def output_of(folder: Path, *words: object) -> str:
    """What a program prints in an empty folder."""
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (folder / "runs").is_dir()
    return done.stdout.strip()


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_example_runs(name: str, tmp_path: Path) -> None:
    assert len(output_of(tmp_path, ROOT / "examples" / name, 2).splitlines()) >= 2


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks
    for block in blocks:
        (tmp_path / "snippet.py").write_text(block)
        assert output_of(tmp_path, tmp_path / "snippet.py")
