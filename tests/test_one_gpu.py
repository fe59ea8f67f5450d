"""The benchmark of one GPU, as a toy on the CPU: everything in it runs, and its counts are right."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from assay.engine import Placement
from benchmarks import gpu_ours, one_gpu
from benchmarks.gpu_work import TOY, even_share

pytest.importorskip("transformers", reason="the extra 'language' is not installed")


@pytest.mark.parametrize("more", [[], ["--padded", "--recompute"], ["--cache", "0.0002"]])
def test_a_toy_runs_and_is_written_down(more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "one_gpu.json"
    monkeypatch.setattr(
        sys, "argv", ["one_gpu", "a", "b", "--toy", "--plain", "--steps", "1", "--out", str(out), *more]
    )
    one_gpu.main()
    rows = json.loads(out.read_text())["steps"]
    assert [row["case"] for row in rows] == ["a", "b"]
    assert all("error" not in row and not row["alarms"] for row in rows)
    assert all(set(row["peak_gib_of"]) == {"decode", "update"} for row in rows)


def test_a_prompt_counts_once_for_its_group() -> None:
    """4 prompts of 16, 16 responses of 12 whose last token nobody needs; padded, every row has all of its columns."""
    size, found = TOY, {}
    for is_packed in (True, False):
        loop = gpu_ours.loop_of("a", size, Placement(packed=is_packed))
        fresh = loop.step().fresh
        found[is_packed] = gpu_ours.update_work(loop, fresh)
    assert found[True]["tokens"] == 4 * 16 + 16 * 11
    assert found[False]["tokens"] == 16 * (16 + 11)
    assert found[True]["output_pflop"] == found[False]["output_pflop"]
    assert found[True]["attention_pflop"] < found[False]["attention_pflop"]


def test_words_are_numbers_however_they_come() -> None:
    words = gpu_ours.Words(512)
    assert words.decode([7]) == words.decode(torch.tensor([7])) == words.decode([torch.tensor(7)]) == "w7"
    assert words.decode([]) == ""
    assert words.decode([1, 511, 512]) == "w1 w511 w512"
    assert words.encode(words.decode(range(513))) == list(range(513))


@pytest.mark.parametrize(("text", "share"), [("", 0.0), ("w7", 0.0), ("w10", 1.0), (" w1  w2\nw4\tw30w5 ", 0.5)])
def test_the_score_is_the_share_of_even_words(text: str, share: float) -> None:
    assert even_share(text) == share
