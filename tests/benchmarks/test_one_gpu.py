"""The benchmark of one GPU, as a toy on the CPU: everything in it runs, and its counts are right."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.engine.placement import Placement
from benchmarks import gpu_ours, gpu_peer, one_gpu
from benchmarks.gpu_work import TOY, even_share


@pytest.fixture(autouse=True)
def _transformers() -> None:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")


def rows_of(given: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a toy writes into its file, even where it is stopped."""
    out = folder / "one_gpu.json"
    monkeypatch.setattr(sys, "argv", ["one_gpu", "--toy", "--out", str(out), *given])
    try:
        one_gpu.main()
    except KeyboardInterrupt:
        assert not list(folder.glob("*.part"))
    rows: list[dict[str, Any]] = json.loads(out.read_text())["steps"]
    return rows


@pytest.mark.parametrize(
    ("cases", "more"), [("ab", []), ("a", ["--padded", "--recompute"]), ("b", ["--cache", "0.00005"])]
)
def test_a_toy_runs_and_is_written_down(
    cases: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of([*cases, "--plain", "--steps", "1", *more], tmp_path, monkeypatch)
    assert [row["case"] for row in rows] == list(cases)
    assert all("error" not in row and not row["alarms"] for row in rows)
    assert all(set(row["peak_gib_of"]) == {"decode", "update"} for row in rows)


def test_with_adapters_only_they_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft", reason="peft is not installed")
    plain, adapted = (
        rows_of(["a", "--plain", "--steps", "1", "--lora", rank], tmp_path, monkeypatch)[0] for rank in ("0", "1")
    )
    assert "error" not in adapted
    assert not adapted["alarms"]
    assert adapted["update_work"]["output_pflop"] == 0.75 * plain["update_work"]["output_pflop"]
    assert adapted["update_work"]["layers_pflop"] < plain["update_work"]["layers_pflop"]


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


@pytest.mark.parametrize("asked", ["6", "12", "32", "-8"])
def test_parts_that_do_not_make_a_step_are_refused(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 rows in groups of 4: a step is made of whole parts, a part of whole groups."""
    monkeypatch.setattr(sys, "argv", ["one_gpu", "trl-a", "--toy", "--peer-at-once", asked])
    with pytest.raises(SystemExit, match="2"):
        one_gpu.main()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("cases", "at_once", "warm"), [pytest.param("ab", 0, 0, marks=pytest.mark.all_cases), ("b", 8, 2)]
)
def test_steps_of_the_peer_are_made_of_parts(
    cases: str, at_once: int, warm: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look at the clock is a second; a step that does not make all rows of the table, in order, is an error."""
    pytest.importorskip("trl", reason="the extra 'peers' is not installed")
    parts: list[tuple[int, int]] = []
    ended = gpu_peer.Ends.__call__

    def seen(self: gpu_peer.Ends, ids: Tensor, scores: Tensor) -> Tensor:
        if ids.shape[1] == TOY.prompt:
            parts.append((self.first, len(ids)))
        return ended(self, ids, scores)

    clock = itertools.count()
    monkeypatch.setattr(gpu_peer, "seconds", lambda: next(clock))
    monkeypatch.setattr(gpu_peer.Ends, "__call__", seen)
    sizes = ["--peer-steps", "1", "--peer-warm", str(warm), "--peer-at-once", str(at_once)]
    rows = rows_of([*(f"trl-{case}" for case in cases), *sizes], tmp_path, monkeypatch)
    found = [(row["case"], row.get("error"), row.get("at_once", 0)) for row in rows]
    assert found == [(case, None, at_once) for case in cases]
    num = at_once or 16
    assert all(row["seconds"] == {"decode": [16 // num], "whole step": [1 + 2 * (16 // num)]} for row in rows)
    assert parts == [(first, num) for first in range(0, 16, num)] * (warm + 1) * len(rows)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.param(RuntimeError, marks=pytest.mark.all_cases)])
def test_steps_of_the_peer_outlive_its_run(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the third measured step, after one that does not count."""
    pytest.importorskip("trl", reason="the extra 'peers' is not installed")
    scored: list[str] = []

    def share(text: str) -> float:
        scored.append(text)
        if len(scored) > 3 * 16:
            raise error("enough")
        return even_share(text)

    monkeypatch.setattr(gpu_peer, "even_share", share)
    (row,) = rows_of(["trl-b", "--peer-steps", "3"], tmp_path, monkeypatch)
    assert {name: len(some) for name, some in row["seconds"].items()} == {"decode": 2, "whole step": 2}
    assert row["decode_tokens_per_second"] > 0
    assert row.get("error") == (None if error is KeyboardInterrupt else "RuntimeError: enough")


def test_first_steps_are_timed_with_an_empty_cache_and_a_used_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes themselves are not run here: what they are given, and what is read of them."""
    seen: list[tuple[list[str], str]] = []

    def run(words: list[str], env: dict[str, str], check: bool) -> Any:
        assert not {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"} & set(env)
        seen.append((words, env["ASSAY_CACHE"]))
        row = {"seconds": {"first step": [30.0 / len(seen)], "whole step": [6.0]}}
        Path(words[words.index("--out") + 1]).write_text(json.dumps({"steps": [row]}))
        return argparse.Namespace(returncode=0)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setattr(one_gpu.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["one_gpu", "first", "--toy", "--out", str(tmp_path / "found.json")])
    one_gpu.main()
    first = json.loads((tmp_path / "found.json").read_text())["first"]
    assert [first[name]["first step"] for name in ("cold", "warm")] == [30.0, 15.0]
    assert seen[0][1] == seen[1][1], "one cache"
    assert not Path(seen[0][1]).exists(), "which was empty at first, and is removed"
    assert all("--toy" in words for words, _ in seen)
