"""The files and commands of docs/own.md work as they are written, with small numbers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.engine import evaluation
from tests.runs.test_own_judge import server

__all__ = ["server"]  # a fixture

TEXT = (Path(__file__).parents[2] / "docs" / "own.md").read_text()
FEW = ["--set", "rollout.steps=16", "--set", "source.epochs=1", "--set", "source.minibatches=1"]
"""Decisions and updates of a step in an environment of one's own, which has 2,048 and 320 by default."""
SMALL = ["--max-tokens", "6", "--prompts", "2", "--group-size", "2", "--steps", "1"]


@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_every_file_and_command_of_the_documentation_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any
) -> None:
    for package in ("transformers", "gymnasium"):
        pytest.importorskip(package)
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "PROMPTS", 4)
    save_chat_model(tmp_path / "FOLDER", TEMPLATES["chatml"])
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.S):
        Path(block.splitlines()[0].removeprefix("# ")).write_text(block)
    for name in ("train", "test"):
        Path(f"{name}.jsonl").write_text("\n".join(f'{{"prompt": "{name} {k}", "answer": "x{k}"}}' for k in range(40)))
    Path("prompts.jsonl").write_text("\n".join(f'{{"prompt": "prompt {k}"}}' for k in range(40)))
    pairs = [f'{{"prompt": "pairs {k}", "chosen": "a", "rejected": "b"}}' for k in range(40)]
    Path("pairs.jsonl").write_text("\n".join(pairs))
    Path("rubric.txt").write_text("Rate {completion}. Score: N")
    server.answer = lambda prompt: "Better: A" if "Better" in prompt else "Score: 6"
    commands = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, flags=re.S) for line in block.splitlines()]
    assert len(commands) == 25
    for command in commands:
        words = shlex.split(command.replace("http://HOST:8000/v1", server.url))[1:]
        is_policy = words[0] == "train" and "--model" in words and words[1] != "reward-model"
        more = [*(SMALL if is_policy else []), *(["--tool-bytes", "32"] if "--tool" in words else [])]
        more += FEW if words[0] == "train" and "my_env.py" in command else []
        assert main([*words, *more, "--json"]) == 0, command
