"""Weights between processes: fetched as published, torn files refused and read again, old versions removed."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
import torch

from assay.core.errors import AssayError
from assay.core.trees import difference
from assay.runs.weights import SameMemory, WeightFiles, Weights, WeightsMissing


def tree(number: float) -> dict[str, object]:
    weights = torch.full((3, 2), number)
    return {"actor": {"weight": weights, "half": weights.bfloat16(), "growth": [weights.double(), 7, "text"]}}


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_what_is_fetched_is_what_was_published(kind: str, tmp_path: Path) -> None:
    weights: Weights = SameMemory() if kind == "memory" else WeightFiles(tmp_path / "w", patience=0.2)
    for _ in range(2):
        weights.publish(4, tree(0.1))
        assert not difference(weights.fetch(4), tree(0.1))
    weights.publish(5, tree(0.2))
    assert not difference(weights.fetch(5), tree(0.2))
    with pytest.raises(WeightsMissing, match="version 4 of the weights"):
        weights.fetch(4)


def test_files_do_not_change_with_the_learner_and_old_ones_are_removed(tmp_path: Path) -> None:
    weights, live = WeightFiles(tmp_path, keep=2, patience=0.1), tree(0.1)
    for version in range(9, 12):
        live["actor"]["weight"].fill_(version)  # type: ignore[index]
        weights.publish(version, live)
    found = [weights.fetch(version)["actor"]["weight"][0, 0].item() for version in (10, 11)]
    assert found == [10.0, 11.0]
    with pytest.raises(WeightsMissing, match="version 9 of the weights is not there"):
        weights.fetch(9)


@pytest.mark.parametrize("cut", [0, 8, 100, -1])
def test_a_torn_file_is_refused_and_read_again(tmp_path: Path, cut: int) -> None:
    files = WeightFiles(tmp_path, patience=0.1)
    files.publish(3, tree(0.3))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with pytest.raises(WeightsMissing, match="does not have the digest"):
        files.fetch(3)
    threading.Timer(0.2, path.write_bytes, [whole]).start()
    assert not difference(WeightFiles(tmp_path, patience=20.0).fetch(3), tree(0.3))


def test_one_wrong_bit_is_refused(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path, patience=0.1)
    files.publish(0, tree(0.3))
    (path,) = tmp_path.iterdir()
    wrong = bytearray(path.read_bytes())
    wrong[-1] ^= 1
    path.write_bytes(wrong)
    with pytest.raises(WeightsMissing, match="does not have the digest"):
        files.fetch(0)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(AssayError, match=r"version 2 of the weights cannot be written to .* No space left"):
        WeightFiles(tmp_path).publish(2, tree(0.3))
    assert not list(tmp_path.iterdir())
