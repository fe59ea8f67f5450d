"""The commands and rows of docs/language.md work as they are written, with small numbers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.engine import evaluation
from assay.tasks.language.files import task_of_file

TEXT = (Path(__file__).parent.parent / "docs" / "language.md").read_text()
SMALL = {"--max-tokens": "6", "--prompts": "2", "--group-size": "2", "--lora-rank": "2", "--epochs": "0.2"}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, flags=re.S)


def test_every_row_of_the_documentation_is_read(tmp_path: Path) -> None:
    rows = [line for block in blocks("json") for line in block.splitlines()]
    assert len(rows) == 13
    labelled = [row for row in rows if '"label"' in row]  # a pair together
    for content in [*(row for row in rows if row not in labelled), "\n".join(labelled)]:
        (tmp_path / "a.jsonl").write_text(content)
        task: Any = task_of_file(str(tmp_path / "a.jsonl"))
        assert task.num_training + task.num_testing == 1


def test_every_command_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    from tests.models.test_transformers import save_qwen

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "PROMPTS", 4)
    save_qwen(tmp_path / "FOLDER")
    for name in ("train", "test", "other"):
        rows = [f'{{"prompt": "{name} {k}", "answer": "x{k}"}}' for k in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    rows = [f'{{"messages": [{{"role": "user", "content": "{k}?"}}], "answer": "x{k}"}}' for k in range(12)]
    (tmp_path / "chat.jsonl").write_text("\n".join(rows))
    for name in ("pairs", "pairs_test"):
        pairs = [f'{{"prompt": "{name} {k}", "chosen": "a", "rejected": "b"}}' for k in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(pairs))
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 7
    for command in commands:
        words = shlex.split(command)[1:]
        words = [SMALL.get(before, word) for before, word in zip(["", *words], words, strict=False)]
        more = ["--json", "--steps", "1"] if words[0] == "train" and "--epochs" not in words else ["--json"]
        more += ["--device", "cpu"] if words[0] == "train" else []  # weights this large round to 0.03 nats in bfloat16
        assert main([*words, *more]) == 0, command
    assert (tmp_path / "merged" / "model.safetensors").is_file()
    assert (tmp_path / "scores.jsonl").is_file()
