"""A reference model never changes, so a run writes it once and its checkpoints share the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.core import store
from assay.runs.options import CadenceOptions, LanguageOptions, RunOptions
from assay.runs.progress import Mode
from assay.runs.run import resume, train


def test_checkpoints_share_the_file_of_what_is_frozen(tmp_path: Path) -> None:
    still = torch.arange(5.0)
    for step in (1, 2):
        tree = {"models": {"reference": {"w": still}, "actor": {"w": torch.full((2,), float(step))}}}
        path = store.save(tmp_path, step, tree, facts={}, frozen=["models.reference."])
    found = store.load(tmp_path)
    assert found is not None
    assert torch.equal(found.tree["models"]["reference"]["w"], still)
    assert found.tree["models"]["actor"]["w"].tolist() == [2.0, 2.0]
    assert (path / store.FROZEN).stat().st_nlink == 2
    tree["models"]["reference"]["w"] = still + 1  # type: ignore[index]
    path = store.save(tmp_path, 3, tree, facts={}, frozen=["models.reference."])
    assert (path / store.FROZEN).stat().st_nlink == 1, "what is not the same is written"
    assert (tmp_path / "step-00000002" / store.FROZEN).stat().st_nlink == 1, "the pruned one has gone"
    assert store.load(tmp_path).tree["models"]["reference"]["w"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]  # type: ignore


def test_a_damaged_shared_file_is_noticed(tmp_path: Path) -> None:
    path = store.save(tmp_path, 1, {"a": {"w": torch.ones(4)}}, facts={}, frozen=["a."])
    content = bytearray((path / store.FROZEN).read_bytes())
    content[-1] ^= 1
    (path / store.FROZEN).write_bytes(bytes(content))
    with pytest.raises(store.CheckpointError, match=r"frozen\.safetensors has sha256"):
        store.load(tmp_path)


def test_a_run_with_a_reference_writes_it_once_and_resumes(tmp_path: Path) -> None:
    options = RunOptions(language=LanguageOptions(kl=0.1), cadence=CadenceOptions(save_every="1steps"))
    told = {"steps": 3, "mode": Mode.SILENT, "options": options, "settings": {"rollout.num_starts": 2}}
    train("rloo", "bandit", out=tmp_path / "run", **told)  # type: ignore[arg-type]
    files = list((tmp_path / "run" / "checkpoints").glob(f"step-*/{store.FROZEN}"))
    assert len(files) == 2
    assert {file.stat().st_ino for file in files} == {files[0].stat().st_ino}
    longer = resume(tmp_path / "run", more_steps=1, mode=Mode.SILENT)
    assert longer.curves[-1]["step"] == 4
