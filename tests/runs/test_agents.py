"""Exported agents: the weights of a run in a folder to share, read wherever a run is, and its model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import assay
from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.models.pretrained import hub
from assay.runs.progress import Mode


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "of sac"
    assay.train("ppo", "cartpole", steps=2, out=folder, mode=Mode.SILENT)
    return folder


@pytest.fixture(scope="module")
def agent(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents") / "ppo-cartpole"
    assert cli.main(["export", str(run), str(folder)]) == 0
    return folder


def test_it_acts_and_scores_as_the_run_does_and_is_smaller(run: Path, agent: Path) -> None:
    seen = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    assert (assay.load(agent).policy.predict(seen) == assay.load(run).policy.predict(seen)).all()
    assert (assay.evaluate(agent).scores == assay.evaluate(run).scores).all()
    size = {folder: sum(path.stat().st_size for path in folder.rglob("*.safetensors")) for folder in (run, agent)}
    assert size[agent] < 0.5 * size[run], "optimizers stay with the run"


def test_a_run_starts_from_it_and_it_cannot_be_resumed(agent: Path, tmp_path: Path) -> None:
    words = ["train", "ppo", "--task", "cartpole", "--steps", "1", "--from", str(agent), "--out", str(tmp_path / "on")]
    assert cli.main([*words, "--set", "policy.learning_rate=0.0"]) == 0
    seen = np.random.default_rng(1).normal(size=(32, 4)).astype(np.float32)
    assert (assay.load(tmp_path / "on").policy.predict(seen) == assay.load(agent).policy.predict(seen)).all()
    with pytest.raises(AssayError, match=r"is an exported agent: weights, .* --from"):
        assay.resume(agent, more_steps=1)


def test_its_card_has_what_the_hub_reads_and_the_verdicts_of_the_method(agent: Path) -> None:
    yaml = pytest.importorskip("yaml")
    _, head, text = (agent / "README.md").read_text().split("---\n", 2)
    told: Mapping[str, Any] = yaml.safe_load(head)
    assert told["library_name"] == "assay"
    assert {"reinforcement-learning", "ppo", "cartpole"} <= set(told["tags"])
    (result,) = told["model-index"][0]["results"]
    mean = float(np.mean(assay.evaluate(agent).scores))
    assert result["metrics"][0]["value"].startswith(f"{mean:.2f} +/- ")
    record = json.loads((Path(assay.__file__).parent / "claims/records/ppo.json").read_text())
    promised = [one for one in record["claims"] if one["name"].startswith("from equally many decisions")]
    assert promised
    assert all(f"{one['name']}: **{one['verdict']}**" in text for one in promised)
    assert 'assay.load("ppo-cartpole")' in text


def test_an_id_of_the_hub_is_downloaded_and_a_folder_that_is_there_is_not(
    agent: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def snapshot_download(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, revision))
        assert {"README.md", "config.json", "checkpoints/*/*"} <= set(allow_patterns)
        return str(agent)

    monkeypatch.setattr(hub, "require", lambda *_: SimpleNamespace(snapshot_download=snapshot_download))
    monkeypatch.chdir(tmp_path)
    assert assay.load("someone/ppo-cartpole@v1").step == 2
    assert asked == [("someone/ppo-cartpole", "v1")]
    (tmp_path / "runs").mkdir()
    with pytest.raises(AssayError, match=r"runs/ppo is not a run folder"):
        assay.load("runs/ppo")
    assert len(asked) == 1


def test_nothing_is_overwritten(run: Path, agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(run), str(agent)]) == 2
    assert "exists already. Use a new folder" in capsys.readouterr().err
