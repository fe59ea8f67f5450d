"""Rules that alter datasets, what they leave alone, and what describing a dataset finds of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.datasets.altered import Corrupted, Delayed, Filtered, Mixed, WithoutActions, altered, rule_of
from assay.datasets.dataset import Dataset
from assay.datasets.files import read, write
from assay.datasets.flaws import flaws
from assay.datasets.made import Random, Scripted
from assay.datasets.recorded import stamped
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum

TASK = pendulum()
DATA = Scripted(10, noise=0.5).make(TASK)
COLUMN = {"reward": "reward", "action": "action", "observation": "observation", "dynamics": "next_observation"}


@pytest.mark.parametrize("what", list(COLUMN))
def test_corruption_changes_its_share_of_one_column_and_nothing_else(what: str) -> None:
    found = altered(DATA, (Corrupted(what, 0.3, 1.0),), seed=0)
    for name, column in DATA.columns():
        apart = (getattr(found, name) != column).reshape(len(DATA), -1).any(1).double().mean()
        if name == COLUMN[what]:
            assert 0.2 < float(apart) < 0.4
        elif name != "logp":
            assert float(apart) == 0.0
    assert found.hash == altered(DATA, (Corrupted(what, 0.3, 1.0),), seed=0).hash
    assert found.hash != altered(DATA, (Corrupted(what, 0.3, 1.0),), seed=1).hash


def test_corrupted_rewards_go_to_thirty_sizes() -> None:
    found = Corrupted("reward", 1.0, 2.0)(DATA, 0).reward
    assert 50.0 < float(found.abs().max()) <= 60.0


def test_corrupted_choices_are_other_choices() -> None:
    data = Random(5).make(cartpole())
    found = Corrupted("action", 1.0)(data, 0).action
    assert bool((found != data.action).all())
    assert set(found.tolist()) <= {0, 1}


def test_filtering_keeps_the_best_and_the_worst_episodes() -> None:
    best, worst = Filtered(0.2)(DATA, 0), Filtered(0.2, "worst")(DATA, 0)
    ranked = DATA.returns.sort().values
    assert best.returns.sort().values.tolist() == ranked[-2:].tolist()
    assert worst.returns.sort().values.tolist() == ranked[:2].tolist()


def test_hidden_actions_are_those_of_the_best_episodes_and_labelled_rows_stay() -> None:
    found = WithoutActions(0.9)(DATA, 0)
    assert found.acted is not None
    kept = found.acted
    assert float(kept.double().mean()) == pytest.approx(0.1)
    assert torch.equal(found.action[kept], DATA.action[kept])
    assert not bool(found.action[~kept].any())
    first = [bool(kept[start]) for start, _ in found.bounds]
    assert first.index(True) == int(DATA.returns.argmin())


def test_mixing_draws_whole_episodes_of_both(tmp_path: Path) -> None:
    other = Scripted(10, noise=0.0, seed=3).make(TASK)
    path = write(other, tmp_path / "other.npz")
    found = Mixed(str(path), 0.3)(DATA, 0)
    mine, theirs, both = ({round(one, 2) for one in each.returns.tolist()} for each in (DATA, other, found))
    assert (len(both & mine), len(both & theirs)) == (7, 3)


def test_late_rewards_keep_returns_and_wait_for_their_turn() -> None:
    found = Delayed(7)(DATA, 0)
    assert torch.allclose(found.returns, DATA.returns, atol=1e-3)
    inside = torch.ones(len(DATA), dtype=torch.bool)
    for first, last in DATA.bounds:
        inside[[*range(first + 6, last, 7), last - 1]] = False
    assert not bool(found.reward[inside].any())
    assert Delayed(1)(DATA, 0).hash == DATA.hash


@pytest.mark.parametrize(("text", "message"), [
    ("spoiled", "there is no rule 'spoiled'"), ("corrupted:what=mass", "what is 'mass'"),
    ("corrupted:share=2", "share is 2"), ("filtered:of=middle", "of is 'middle'"),
    ("delayed:steps=x", "a whole number"), ("delayed:pace=3", "'pace=3' is not a setting"),
    ("mixed:share=0.5", "no other dataset"), ("delayed:steps=0", "1 or"),
    (f"origin:number={10**30}", "a whole number, to"), ("d4rl-rows:keep_cut=2", "Use 0 or 1"),
])  # fmt: skip
def test_wrong_rules_are_refused_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        altered(DATA, (rule_of(text),), 0)


def test_the_command_writes_the_rule_and_the_hash_it_was_applied_to(tmp_path: Path, capsys: Any) -> None:
    source, target = write(DATA, tmp_path / "a.safetensors"), tmp_path / "b.safetensors"
    words = ["data", "alter", str(source), "corrupted:what=dynamics,share=0.2", "delayed:steps=5", "--out", str(target)]
    assert cli.main([*words, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    first, second = read(target).about["altered"]
    assert (first["rule"], first["of"], second["rule"]) == ("corrupted", DATA.hash, "delayed")
    assert first["settings"]["share"] == 0.2
    assert shown["flaws"]["rows that the next does not follow"] == pytest.approx(0.2, abs=0.03)
    assert cli.main(words) != 0  # the file exists


def test_a_file_without_some_actions_is_refused_before_training(tmp_path: Path) -> None:
    path = write(WithoutActions(0.5)(DATA, 0), tmp_path / "a.npz")
    assert flaws(read(path))["rows without an action"] == pytest.approx(0.5)
    with pytest.raises(AssayError, match="1000 of 2000 rows have no action"):
        stamped(str(path), TASK)


def test_flaws_are_none_in_plain_data_and_found_in_corrupted_ones() -> None:
    assert flaws(DATA) == {}
    assert flaws(Corrupted("reward", 0.1, 10.0)(DATA, 0))["reward outliers"] > 0.05
    assert flaws(replace(DATA, observation=DATA.observation.clone())) == {}
    twice = Dataset(**{name: torch.cat((column, column)) for name, column in DATA.columns()})
    assert flaws(twice)["repeated rows"] == 0.5


def test_ogbench_ends_are_told_by_masks(tmp_path: Path) -> None:
    arrays = {
        "observations": np.arange(8.0).reshape(8, 1), "actions": np.zeros((8, 1)), "rewards": np.ones(8),
        "next_observations": np.arange(1.0, 9.0).reshape(8, 1),
        "terminals": np.array([0, 0, 0, 1, 0, 0, 0, 1]), "masks": np.array([1, 1, 1, 1, 1, 1, 1, 0]),
    }  # fmt: skip
    np.savez(tmp_path / "a.npz", **arrays)
    found = read(tmp_path / "a.npz")
    assert found.terminal.tolist() == [False] * 7 + [True]
    assert found.truncated.tolist() == [False] * 3 + [True] + [False] * 4


def test_lerobot_tables_are_read_and_never_terminal(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v2.1", "robot_type": "arm"}))
    folder = tmp_path / "data" / "chunk-000"
    folder.mkdir(parents=True)
    for episode, length in enumerate((3, 4)):
        rows = {
            "observation.state": [[10.0 * episode + t, 0.0] for t in range(length)],
            "action": [[0.1 * t] for t in range(length)],
            "episode_index": [episode] * length, "frame_index": list(range(length)),
            "next.reward": [float(t) for t in range(length)], "next.done": [t == length - 1 for t in range(length)],
        }  # fmt: skip
        parquet.write_table(pyarrow.table(rows), folder / f"episode_{episode:06d}.parquet")
    found = read(tmp_path)
    assert found.observation[:, 0].tolist() == [0.0, 1.0, 10.0, 11.0, 12.0]
    assert found.next_observation[:, 0].tolist() == [1.0, 2.0, 11.0, 12.0, 13.0]
    assert found.truncated.tolist() == [False, True, False, False, True]
    assert not bool(found.terminal.any())
    assert found.reward.tolist() == [0.0, 1.0, 0.0, 1.0, 2.0]
