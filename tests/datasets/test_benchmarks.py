"""Fixed datasets of benchmark tasks, their references, rows as D4RL reads them, and datasets as episodes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.datasets import mini
from assay.datasets.agents import uniform_actor
from assay.datasets.altered import rule_of
from assay.datasets.dataset import Dataset, from_experience, join_datasets
from assay.datasets.episodes import to_experience
from assay.datasets.files import read, write
from assay.datasets.made import Random
from assay.engine import evaluation
from assay.runs.catalogue import find_task, matching
from assay.statistics.fine_tuning import fine_tuning
from assay.tasks.control.one_goal import LOGS, REFERENCE, one_goal, paid, with_log
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.pointmaze import UMAZE
from assay.tasks.control.stepping import Scripted


def ends(*, terminal: int | None = None, cut: int | None = None) -> Dataset:
    """Returns four rows with an end in one place and a cut in another; the last row is cut anyway."""
    rows = torch.arange(4)
    over = rows == (-1 if terminal is None else terminal)
    truncated = (rows == (-1 if cut is None else cut)) | ((rows == 3) & ~over)
    seen = rows.float()[:, None]
    return Dataset(seen, seen / 4, torch.ones(4), over, truncated, seen + 1)


def test_rows_as_d4rl_reads_them_are_a_rule_with_a_setting() -> None:
    assert rule_of("d4rl-rows")(ends(terminal=1), 0).terminal.tolist() == [False, True, False]
    assert len(rule_of("d4rl-rows")(ends(cut=1), 0)) == 2
    assert len(rule_of("d4rl-rows:keep_cut=1")(ends(cut=1), 0)) == 3
    one = Dataset(*(column[:1] for column in (ends().observation, ends().action, ends().reward)),
                  torch.tensor([True]), torch.tensor([False]), ends().observation[:1])  # fmt: skip
    with pytest.raises(AssayError, match="no successor"):
        rule_of("d4rl-rows")(one, 0)


def test_the_names_of_tasks_may_have_a_star() -> None:
    assert matching(["pendulum", "one-goal-*"]) == ["pendulum", *(f"one-goal-{name}" for name in LOGS)]
    assert len(matching(["mini-pendulum-*"])) == len(mini.KINDS)
    with pytest.raises(AssayError, match=r"no task is called nothing-\*"):
        matching(["nothing-*"])


def test_papers_names_of_mujoco_tasks_are_gymnasium_ids() -> None:
    pytest.importorskip("mujoco")
    assert find_task("hopper").name == "Hopper-v5"


def test_a_mini_dataset_is_the_same_for_every_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    task = mini.LEVELS["mini-pendulum-random"]()
    assert task.logged is not None
    first, other = task.logged(Draw(0)), task.logged(Draw(5))
    assert torch.equal(first.action, other.action)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    data = Random(mini.EPISODES).make(pendulum())
    assert replace(from_experience([first], task.spec, {}), logp=None).hash == data.hash


@pytest.mark.parametrize(
    ("task", "reference"),
    [(pendulum(), mini.MINIS["pendulum"].reference), (one_goal(), REFERENCE)],
    ids=["pendulum", "one-goal"],
)
def test_references_are_what_uniform_actions_and_the_script_get_in_an_evaluation(task, reference) -> None:
    assert task.expert is not None
    low = float(evaluation.scores(uniform_actor(task), task, num=500, greedy=False).mean())
    high = float(evaluation.scores(Scripted(task.expert), task, greedy=True).mean())
    assert (low, high) == pytest.approx(reference, rel=0.01)


def test_play_is_paid_as_the_task_pays_in_the_same_states() -> None:
    task = one_goal()
    simulation = task.simulate(8)
    simulation.reset(np.arange(8))
    for time in range(79):
        action = torch.sin(torch.arange(16.0).view(8, 2) + time / 5)
        context, reward, *_ = simulation.step(action)
        assert torch.equal(paid(UMAZE, context["observation"]), reward)
    for name in LOGS:
        log = with_log(name).logged
        assert log is not None
        assert int(log(Draw(0)).mask.sum()) == 4_800


def test_a_log_leaves_through_hdf5_and_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    task = with_log("noisy")
    assert task.logged is not None
    data = replace(from_experience([task.logged(Draw(0))], task.spec, {}), logp=None)
    again = read(write(data, tmp_path / "noisy.hdf5"))
    assert again.hash == data.hash
    assert torch.equal(again.returns, data.returns)
    assert to_experience(again).mask.sum(1).tolist() == [80] * 60


def test_provenance_is_written_counted_and_taken_apart(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    marked = [rule_of(f"origin:number={number}")(ends(cut=1), 0) for number in (1, 4)]
    whole = join_datasets(marked, {})
    assert whole.summary()["origins"] == {1: 2, 4: 2}
    assert "origins" not in ends().summary()
    for name in ("a.safetensors", "a.npz", "a.hdf5"):
        assert read(write(whole, tmp_path / name)).hash == whole.hash
    assert rule_of("from-origin:number=4")(whole, 0).hash == marked[1].hash
    with pytest.raises(AssayError, match=r"no episode has the origin 2\. The data have 1, 4"):
        rule_of("from-origin:number=2")(whole, 0)
    with pytest.raises(AssayError, match="mark the data by the rule origin"):
        rule_of("from-origin:number=0")(ends(), 0)


def test_hidden_actions_are_written_to_hdf5(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    hidden = rule_of("action-free:share=0.5")(ends(cut=1), 0)
    assert read(write(hidden, tmp_path / "hidden.hdf5")).hash == hidden.hash


@pytest.mark.parametrize(
    ("curve", "window", "message"),
    [((1.0,), None, "two finite numbers"), ((1.0, float("nan")), None, "two finite"), ((1.0, 2.0), 0, "window is 0")],
)
def test_a_curve_that_says_nothing_is_refused(curve: tuple[float, ...], window: int | None, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        fine_tuning(curve, window)
