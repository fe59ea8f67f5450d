"""Delays, disturbances and budgets of any control task, near-real tasks, and the logs of their controllers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import History
from assay.datasets.files import read
from assay.datasets.made import Own
from assay.runs.catalogue import find_task
from assay.statistics.references import published, reference
from assay.tasks.control.near_real import NEAR, near_real
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.stepping import Scripted
from assay.tasks.control.transforms import delayed


def test_a_task_is_changed_by_its_name_and_changes_add_up() -> None:
    task = find_task("delayed=2:disturbed=0.1:pendulum")
    assert task.name == "delayed=2:disturbed=0.1:pendulum"
    simulation = task.simulate(3)
    simulation.reset(np.arange(3))
    assert simulation.step(torch.ones(3, 1))[1].shape == (3,)
    assert find_task("budgeted=20:cartpole").name == "budgeted=20:cartpole"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("delayed=x:pendulum", "not a whole number"),
        ("delayed:pendulum", "Use delayed=NUMBER:TASK"),
        ("delayed=2:", "names no number, or no task"),
        ("delayed=-1:pendulum", "Use 0 or more"),
        ("disturbed=2:pendulum", "Use 0 to 1"),
        ("budgeted=-1:pendulum", "Use 0 or more"),
        ("delayed=2:countdown", "only vectors and choices"),
        ("delayed=2:pendulums", "pendulum"),
    ],
)
def test_what_cannot_be_changed_is_refused(name: str, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        find_task(name)


def test_own_code_is_changed_in_its_own_file(tmp_path: Path) -> None:
    file = tmp_path / "my_task.py"
    file.write_text("from assay.tasks.control.pendulum import pendulum as Mine\n")
    with pytest.raises(AssayError, match=r"Change it there: .*transforms\.delayed"):
        find_task(f"delayed=2:{file}:Mine")


def test_a_task_that_shows_its_past_is_changed_first() -> None:
    with pytest.raises(AssayError, match="Change its actions first"):
        delayed(pendulum().remembering(History(3)), 1)
    shown = delayed(pendulum(), 1).remembering(History(3, actions=True)).simulate(2)
    shown.reset(np.arange(2))
    context = shown.step(torch.full((2, 1), 0.7))[0]
    assert context["past_action"][:, -1, 0].tolist() == pytest.approx([0.7, 0.7])  # what was chosen, not executed


@pytest.mark.parametrize("name", NEAR)
def test_the_controller_of_a_near_real_task_scores_from_50_to_80(name: str) -> None:
    task, starts = near_real(name), np.arange(20)
    actor = Scripted(NEAR[name].behaviour)
    played = task.play(actor, starts, np.zeros_like(starts), Draw(0), split=1, greedy=True)
    assert 50.0 <= float(task.judge(played, 1).column("score").mean()) <= 80.0


def test_a_near_real_task_has_a_log_for_each_seed() -> None:
    task = near_real("near-delayed-pendulum")
    data, again, other = (Own(seed).make(task) for seed in (0, 0, 1))
    assert data.hash == again.hash != other.hash
    assert len(data) == 50 * 200
    with pytest.raises(AssayError, match="no dataset of its own"):
        Own().make(pendulum())


def test_files_of_neorl2_are_read(tmp_path: Path) -> None:
    rows = {"obs": np.arange(12.0).reshape(6, 2), "action": np.zeros((6, 1)), "reward": np.arange(6.0)[:, None]}
    rows |= {"next_obs": rows["obs"] + 2.0, "done": np.zeros((6, 1), bool), "index": np.array([0, 4])}
    np.savez(tmp_path / "Pipeline-train.npz", **rows)
    data = read(tmp_path / "Pipeline-train.npz")
    assert data.truncated.tolist() == [False, False, False, True, False, True]
    assert not data.terminal.any()
    assert data.returns.tolist() == [6.0, 9.0]
    np.savez(tmp_path / "odd.npz", **rows | {"index": np.array([0, 9])})
    with pytest.raises(AssayError, match="'index' goes from 0 to 9"):
        read(tmp_path / "odd.npz")


def test_published_numbers_say_where_they_are_from() -> None:
    for name in ("d4rl", "neorl2"):
        assert published(name)["licence"] == "Apache-2.0"
        assert " at " in published(name)["source"]
    assert len(published("d4rl")["reference"]) == 147
    assert float(reference("d4rl", "hopper-medium-v2").score(1607.0138)) == pytest.approx(50.0, abs=1e-4)
    with pytest.raises(AssayError, match="hopper-medium"):
        reference("d4rl", "hopper-medum-v2")
    with pytest.raises(AssayError, match="Use d4rl, neorl2"):
        published("d5rl")
