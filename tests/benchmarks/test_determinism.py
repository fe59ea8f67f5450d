"""Two equal runs are compared tensor by tensor: on the CPU they are equal, and what was changed is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import determinism

TOY = ["--toy", "--dtype", "float32", "--device", "cpu", "--no-compiled"]


@pytest.fixture(autouse=True)
def _transformers() -> None:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")


def traced(folder: Path, method: str, steps: int) -> Path:
    folder.mkdir()
    determinism.main([method, *TOY, "--steps", str(steps), "--kernels", "default", "--one", str(folder)])
    return folder


def test_two_runs_on_the_cpu_are_equal_and_a_changed_bit_is_found(tmp_path: Path) -> None:
    folders = [traced(tmp_path / str(number), "dapo", 2) for number in (0, 1)]
    assert determinism.compared(folders, 2) == {"equal": True}
    path = folders[1] / "1.pt"
    kept = torch.load(path)
    kinds = {kind: [name for name in kept if name.startswith(kind)] for kind in determinism.ORDER}
    assert all(kinds.values()), "every kind of tensor is kept"
    assert next(iter(kept)) == "tokens"
    assert bool((kept["reward"] != 0).any()), "some answers are right, so that there is a gradient"
    slope = kinds["gradient"][1]
    kept[slope].view(-1)[0] += 1e-3
    torch.save(kept, path)
    found = determinism.compared(folders, 2)
    assert (found["step"], found["first"], found["differing"]) == (1, slope, 1)
    assert list(found["by_kind"]) == ["gradient"]
    told = determinism.told({"method": "dapo", "kernels": "default", "dtype": "float32", "compiled": False,
                             "cramped": False, "steps": 2, **found})  # fmt: skip
    assert f"step 1, first in {slope}" in told


def test_most_groups_have_equal_rewards_so_that_dapo_samples_again(tmp_path: Path) -> None:
    rows = [torch.load(traced(tmp_path / name, name, 1) / "0.pt") for name in ("grpo", "dapo")]
    decisions = [float(row["loss: decisions"]) for row in rows]
    groups = [row["reward"].sum(1).view(-1, 8) for row in rows]
    assert bool((groups[0].amax(1) == groups[0].amin(1)).any())
    assert bool((groups[1].amax(1) > groups[1].amin(1)).all())
    assert decisions[0] > 0


def test_tensors_that_differ_are_described() -> None:
    one = torch.tensor([1.0, 2.0, torch.nan])
    assert determinism.difference(one, one.clone()) == ""
    assert determinism.difference(one, torch.tensor([1.0, 2.5, torch.nan])).startswith("1 of 3 numbers, by at most 0.5")
    assert "shapes" in determinism.difference(one, one[:2])
    assert "missing" in determinism.difference(one, None)


def test_probes_have_one_result_on_the_cpu(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    determinism.main(["probes", *TOY, "--times", "2", "--kernels", "default", "--out", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert len(row["results"]) == 5
    assert set(row["results"].values()) == {1}
