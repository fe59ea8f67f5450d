"""Data sets: what agents did becomes rows, files give back the rows that were written, runs insist on their hash."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from assay import recipes
from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.core.recipe import Phase
from assay.core.record import Draw
from assay.core.slots import Scene, Task
from assay.core.spaces import Box, Discrete, Spec
from assay.datasets.agents import Agent, Trained, uniform_actor
from assay.datasets.dataset import Dataset, from_experience, join_datasets
from assay.datasets.files import read, write
from assay.datasets.made import Demonstrated, Expert, Kept, Medium, MediumReplay, Played, Random, Scripted
from assay.datasets.recorded import Recorded, RecordedPlay, stamped, with_data
from assay.engine.loop import Loop
from assay.methods.dual_rl import f_dvl, recoil
from assay.ops.random import hashed
from assay.parts.rollouts.episodes import Fragments
from assay.parts.sources.demonstrations import DemonstratedDecisions
from assay.parts.sources.logged import Contents, Log, Logged
from assay.parts.sources.relabelled import Play, Relabelled
from assay.recipes.conservative import cql, iql
from assay.recipes.presets import CONTROL
from assay.report.dataset_quality import imitation, measure
from assay.runs import catalogue
from assay.runs.plan import make_plan, plan_of
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from tests.scenes import feeding, gathering

EMPTY = np.empty(0, np.int64)
TASKS = {
    name: catalogue.find_task(name) for name in ("cartpole", "pendulum", "gridworld", "hazards", "pointmaze-umaze")
}


def small(task: Task) -> Dataset:
    return Random(3, seed=1).make(task)


def rows(**changes: Any) -> Dataset:
    """Two episodes by hand: a terminal one of two rows, a cut one of three."""
    seen = torch.arange(7.0)[:, None]
    columns: dict[str, Any] = {
        "observation": seen[[0, 1, 3, 4, 5]],
        "action": torch.tensor([0, 1, 1, 0, 1]),
        "reward": torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]),
        "terminal": torch.tensor([False, True, False, False, False]),
        "truncated": torch.tensor([False, False, False, False, True]),
        "next_observation": seen[[1, 2, 4, 5, 6]],
    }
    return Dataset(**(columns | changes))


def same(mine: Dataset, other: Dataset) -> bool:
    ours, theirs = dict(mine.columns()), dict(other.columns())
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# ---------------------------------------------------------------------------------------------------- rows
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_rows_of_played_episodes_are_the_transitions_that_a_log_holds(noise: float) -> None:
    task = cartpole()
    log = Log(3, noise).columns(task)
    data = Scripted(3, noise, seed=7).make(task)
    made = replace(data, logp=torch.zeros(len(data))).pairs()
    fields = ("reward", "terminal", "truncated", "mask", "context.observation", "action")
    if noise == 0.0:
        assert all(torch.equal(made[name][:, 0], log[name][:, 0].to(made[name].dtype)) for name in fields)
        assert torch.equal(made["context.observation"], log["context.observation"])
    assert {name: (column.dtype, column.shape[1:]) for name, column in made.items()} == {
        name: (column.dtype, column.shape[1:]) for name, column in log.items()
    }


@pytest.mark.parametrize("name", ["cartpole", "hazards"])
def test_fragments_are_put_together_to_the_episodes_they_were(name: str) -> None:
    task = TASKS[name]
    actor = uniform_actor(task)

    def gathered(steps: int, times: int) -> Dataset:
        rollout = Fragments(num_envs=3, steps=steps)
        state = rollout.init(Scene(task))
        return from_experience(
            [rollout(gathering(task, actor, EMPTY, Draw(4)), state) for _ in range(times)], task.spec, {}
        )

    whole, pieces = gathered(60, 1), gathered(5, 12)
    assert same(whole, pieces)
    assert len(whole.ends) >= 3
    inside = torch.ones(len(whole), dtype=torch.bool)
    inside[whole.ends] = False
    assert torch.equal(whole.next_observation[inside], whole.observation[1:][inside[:-1]])


def test_actions_are_those_that_the_task_took() -> None:
    task = TASKS["pendulum"]

    class Wild:
        num_draws = 0

        def act(self, context: Any, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
            return torch.full((len(context["observation"]), 1), 9.0), torch.zeros(len(context["observation"]))

    played = task.play(Wild(), np.arange(2), np.zeros(2, np.int64), Draw(0), split=0, greedy=False)
    data = from_experience([played], task.spec, {})
    assert float(data.action.max()) == float(data.action.min()) == 2.0
    assert data.logp is None


def test_returns_lengths_and_ends_by_hand() -> None:
    summary = rows().summary()
    assert rows().returns.tolist() == [3.0, 12.0]
    assert rows().bounds == [(0, 2), (2, 5)]
    assert (summary["rows"], summary["episodes"], summary["terminal"], summary["cut"]) == (5, 2, 1, 1)
    assert (summary["returns"]["0"], summary["returns"]["0.5"], summary["returns"]["1"]) == (3.0, 7.5, 12.0)


def test_a_cut_row_keeps_the_observation_it_is_bootstrapped_from() -> None:
    pairs = rows().pairs(reward_scale=2.0)
    assert pairs["truncated"][:, 0].tolist() == [False, False, False, False, True]
    assert pairs["terminal"][:, 0].tolist() == [False, True, False, False, False]
    assert pairs["mask"].tolist() == [[True, False]] * 5
    assert pairs["action"][:, 1].tolist() == [1, 0, 0, 1, 0]
    assert pairs["context.observation"][4].flatten().tolist() == [5.0, 6.0]
    assert pairs["reward"][:, 0].tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_the_hash_is_of_what_the_rows_hold_and_of_nothing_else() -> None:
    assert rows().hash == rows(about={"task": "other"}).hash
    flipped = rows(terminal=torch.tensor([False, True, False, True, False]))
    assert len({rows().hash, flipped.hash, rows(action=torch.tensor([0, 1, 1, 0, 0])).hash}) == 3
    assert join_datasets([rows(), rows()], {}).returns.tolist() == [3.0, 12.0] * 2


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "lengths": ({"action": torch.tensor([0, 1])}, "'action' has 2 rows"),
    "nan": ({"reward": torch.tensor([1.0, float("nan"), 0.0, 0.0, 0.0])}, "'reward' is not finite in row 1"),
    "shapes": ({"next_observation": torch.zeros(5, 2)}, "different shapes"),
    "open end": ({"truncated": torch.zeros(5, dtype=torch.bool)}, "last row does not end an episode"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_rows_are_refused(case: str) -> None:
    changes, message = BAD[case]
    with pytest.raises(AssayError, match=message):
        rows(**changes)


def test_data_of_other_spaces_are_refused() -> None:
    with pytest.raises(AssayError, match=r"observations are vectors of 1; task 'cartpole' has vectors of 4"):
        rows().check_fits(TASKS["cartpole"].spec, "cartpole")
    with pytest.raises(AssayError, match="actions are discrete, up to 1; task 'it' has discrete ones, 0 to 0"):
        rows().check_fits(Spec(TASKS["pendulum"].spec.action, Discrete(1), 5), "it")


# ---------------------------------------------------------------------------------------------------- making
def test_equal_descriptions_make_equal_rows() -> None:
    task = TASKS["cartpole"]
    assert same(Random(40, 3).make(task), Random(40, 3).make(task))
    assert Random(3, 3).make(task).hash != Random(3, 4).make(task).hash
    assert same(Random(40, 3).make(task), join_datasets([Random(40, 3).make(task)], {}))


def scored(*scores: float) -> Trained:
    steps = {10 * place: score for place, score in enumerate(scores)}
    return Trained(recipes.ppo(), None, 10 * len(scores), random_score=-100.0, scores=steps)


def test_half_way_is_between_uniform_actions_and_the_end_of_training() -> None:
    assert scored(-100.0, -60.0, -45.0, -20.0, 0.0).half_way == 20
    assert scored(-100.0, -52.0, -10.0, 0.0).half_way == 10  # the one before is nearer
    assert scored(-100.0, -75.0, 0.0).share(10) == pytest.approx(0.25)
    with pytest.raises(AssayError, match="learnt nothing"):
        _ = scored(-100.0, -120.0).half_way


def test_agents_make_medium_replay_medium_and_expert_of_one_training() -> None:
    task, agent = TASKS["cartpole"], Agent(recipes.ppo, steps=8, seed=2, evaluations=8)
    replay, medium, expert = MediumReplay(agent).make(task), Medium(agent, 4).make(task), Expert(agent, 4).make(task)
    step = medium.about["at"]["step"]
    assert 0 <= step <= 8
    assert len(replay) <= max(step, 1) * 2048
    assert medium.about["at"]["share"] < expert.about["at"]["share"] == 1.0
    assert json.loads(json.dumps(dict(expert.about)))["task"] == "cartpole"
    assert same(medium, Medium(agent, 4).make(task))


def test_agents_that_cannot_make_data_are_refused() -> None:
    before = (Phase("first", recipes.bc(), 1),)
    with pytest.raises(AssayError, match="several phases"):
        Expert(Agent(lambda world: replace(recipes.ppo(world), before=before), 1)).make(TASKS["cartpole"])
    with pytest.raises(AssayError, match="gathers no experience"):
        Expert(Agent(recipes.bc, 1)).make(TASKS["cartpole"])


def test_a_kept_data_set_is_made_once_and_other_contents_are_refused(tmp_path: Path) -> None:
    task, folder = TASKS["cartpole"], str(tmp_path)
    kept = Kept(Random(2), folder)
    first = kept.columns(task)
    kept.path(task).touch()
    write(rows(), kept.path(task))
    with pytest.raises(AssayError, match="vectors of 1"):
        kept.columns(task)
    write(Random(2).make(task), kept.path(task))
    assert torch.equal(kept.columns(task)["reward"], first["reward"])
    with pytest.raises(AssayError, match="was asked for"):
        replace(kept, hash="0" * 16).columns(task)
    assert kept.path(task) != Kept(Random(3), folder).path(task) != Kept(Random(3), folder).path(TASKS["pendulum"])


# ---------------------------------------------------------------------------------------------------- files
LAYOUTS = ("it.safetensors", "it.npz", "it.hdf5", "folder")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TASKS)
def test_a_file_gives_back_what_was_written(name: str, layout: str, tmp_path: Path) -> None:
    if "hdf5" in layout or "." not in layout:
        pytest.importorskip("h5py")
    data = replace(small(TASKS[name]), about={"task": name, "made": {"part": "Random"}})
    data = replace(data, logp=torch.linspace(-1.0, 0.0, len(data)))
    found = read(write(data, tmp_path / layout))
    assert same(found, data)
    assert found.hash == data.hash
    assert dict(found.about) == dict(data.about)
    found.check_fits(TASKS[name].spec, name)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_keep_which_decisions_were_successes(layout: str, tmp_path: Path) -> None:
    if "hdf5" in layout or "." not in layout:
        pytest.importorskip("h5py")
    data = small(TASKS["pendulum"])
    data = replace(data, success=torch.arange(len(data)) % 3 == 1)
    found = read(write(data, tmp_path / layout))
    assert same(found, data)
    assert found.summary()["success"] == int((torch.arange(len(data)) % 3 == 1).sum())


@pytest.mark.parametrize("name", ["success", "infos/success", "infos/is_success"])
def test_d4rls_infos_of_success_are_read(name: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = write(rows(), tmp_path / "it.hdf5")
    with h5py.File(path, "a") as file:
        file[name] = np.array([0, 1, 0, 0, 0], np.float32)
    found = read(path).success
    assert found is not None
    assert found.tolist() == [False, True, False, False, False]
    with h5py.File(path, "a") as file:
        file[name][0] = 0.5
    with pytest.raises(AssayError, match="'success' has a value that is neither 0 nor 1"):
        read(path)


def test_damaged_and_foreign_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    path = write(rows(), tmp_path / "it.safetensors")
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 64
    path.write_bytes(raw)
    with pytest.raises(AssayError, match="changed or damaged"):
        read(path)
    path.write_bytes(raw[:40])
    with pytest.raises(AssayError, match="cannot be read"):
        read(path)
    np.savez(tmp_path / "objects.npz", observation=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(AssayError, match="without unpickling"):
        read(tmp_path / "objects.npz")
    np.savez(tmp_path / "few.npz", observation=np.zeros((2, 1)), reward=np.zeros(2))
    with pytest.raises(AssayError, match="no column action, terminal"):
        read(tmp_path / "few.npz")
    with pytest.raises(AssayError, match="no such file"):
        read(tmp_path / "nothing.hdf5")
    (tmp_path / "it.txt").touch()
    with pytest.raises(AssayError, match="not a known ending"):
        read(tmp_path / "it.txt")


@pytest.mark.parametrize(
    ("name", "column", "why"),
    [
        ("truncated", lambda one: one.float() / 2, "'truncated' has a value that is neither 0 nor 1"),
        ("terminal", lambda one: torch.tensor(True), r"'terminal' has shape \[\]. It needs one row per decision"),
        ("reward", lambda one: one[:, None].expand(-1, 2), "'reward' has shape"),
        ("action", lambda one: torch.zeros(len(one), 0), r"'action' has shape \(5, 0\), no numbers in a row"),
        ("action", lambda one: torch.zeros(len(one), dtype=torch.bfloat16), "BFloat16"),
        ("observation", lambda one: torch.tensor(0.0), r"'observation' has shape \[\]"),
    ],
)
def test_columns_of_another_kind_are_refused_by_name(name: str, column: Any, why: str, tmp_path: Path) -> None:
    columns = dict(rows().columns())
    save_file({**columns, name: column(columns[name]).contiguous()}, tmp_path / "it.safetensors")
    with pytest.raises(AssayError, match=why):
        read(tmp_path / "it.safetensors")


@pytest.mark.parametrize("layout", ["it.hdf5", "it.npz", "it.safetensors"])
def test_a_file_with_wrong_bytes_is_read_or_refused_and_nothing_else(layout: str, tmp_path: Path) -> None:
    if layout == "it.hdf5":
        pytest.importorskip("h5py")
    path = write(rows(), tmp_path / layout)
    whole = path.read_bytes()
    refused = 0
    for seed in range(60):
        draw = np.random.default_rng(seed)
        wrong = bytearray(whole)
        for place in draw.integers(0, len(whole), 12):
            wrong[place] ^= int(draw.integers(1, 256))
        path.write_bytes(wrong)
        try:
            read(path)
        except AssayError:
            refused += 1
    assert refused > 10


def test_what_is_no_array_in_a_file_for_numpy_is_refused(tmp_path: Path) -> None:
    def header(shape: str) -> bytes:
        words = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
        return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words

    path = tmp_path / "it.npz"
    for content in (b"text", b"", header(f"({10**30},)"), header("(((((")):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("observation.npy", content)
        with pytest.raises(AssayError, match=r"it\.npz: "):
            read(path)
    with path.open("wb") as plain:
        np.save(plain, np.zeros(3))
    with pytest.raises(AssayError, match=r"it\.npz: it cannot be read"):
        read(path)


def test_a_pipe_is_no_file_of_data(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "it.npz")
    with pytest.raises(AssayError, match="no plain file"):
        read(tmp_path / "it.npz")


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"altered": 3}, "has 3 as 'altered'"),
        ({"altered": [3]}, r"has \[3\] as 'altered'"),
        ({"at": {"agent": {}, "step": "x", "score": 1.0, "share": 1.0}}, "as 'at'"),
        ({"at": None}, "has None as 'at'"),
    ],
)
def test_a_description_of_another_form_is_refused(about: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=why):
        read(write(replace(rows(), about=about), tmp_path / "it.safetensors"))


MINARI_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "half": ({"terminations": np.full(2, 0.5)}, "'terminations' has a value that is neither 0 nor 1"),
    "single": ({"rewards": 1.0}, "rewards of episode 1 is a single number"),
    "width": ({"observations": np.zeros((3, 5))}, r"'observation' has the shape \(2,\) in one episode and \(5,\)"),
}


@pytest.mark.parametrize("case", MINARI_FAULTS)
def test_a_wrong_episode_of_minari_is_refused(case: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    changes, why = MINARI_FAULTS[case]
    with h5py.File(tmp_path / "main_data.hdf5", "w") as file:
        for number in range(2):
            columns: dict[str, Any] = {"observations": np.zeros((3, 2)), "actions": np.zeros((2, 1))}
            columns |= {"rewards": np.ones(2), "terminations": np.zeros(2, bool), "truncations": np.zeros(2, bool)}
            group = file.create_group(f"episode_{number}")
            for name, column in (columns | (changes if number else {})).items():
                group[name] = column
    with pytest.raises(AssayError, match=why):
        read(tmp_path)


@pytest.mark.parametrize("case", ["attribute", "number", "group", "space"])
def test_an_hdf5_file_with_odd_words_is_refused_by_name(case: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = d4rl(tmp_path / "main_data.hdf5")
    with h5py.File(path, "w" if case in ("number", "group") else "a") as file:
        if case == "attribute":
            file.attrs["assay"] = "{"
        elif case == "number":
            file.create_group("episode_abc")
        elif case == "group":
            file["episode_0"] = np.zeros(3)
    if case == "space":
        path = write(rows(), tmp_path / "made")
        metadata = next(path.rglob("metadata.json"))
        metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"action_space": "{"}))
    why = {"attribute": "attribute 'assay' is not JSON", "number": "group 'episode_abc' has no number"}
    why |= {"group": "episode_0 is not a group", "space": "'action_space' of metadata.json is not JSON"}
    with pytest.raises(AssayError, match=why[case]):
        read(path)


def test_a_file_that_does_not_fit_into_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*words: Any, **more: Any) -> None:
        raise MemoryError

    path = write(rows(), tmp_path / "it.npz")
    monkeypatch.setattr(np, "load", full)
    with pytest.raises(AssayError, match=r"it\.npz: it needs more memory than there is"):
        read(path)


# ---------------------------------------------------------------------------------------------------- D4RL
def d4rl(path: Path, **changes: Any) -> Path:
    """A file as D4RL's: three episodes, terminal after 2, cut after 3, open after 2."""
    h5py = pytest.importorskip("h5py")
    columns: dict[str, Any] = {
        "observations": np.arange(14.0, dtype=np.float64).reshape(7, 2),
        "actions": np.arange(7.0, dtype=np.float32)[:, None] / 10,
        "rewards": np.arange(7.0),
        "terminals": np.array([0, 1, 0, 0, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 1, 0, 0], bool),
        "infos/qpos": np.zeros((7, 3)),
    }
    with h5py.File(path, "w") as file:
        for name, column in (columns | changes).items():
            if column is not None:
                file[name] = column
    return path


def test_d4rl_without_next_observations_leaves_out_rows_after_which_nothing_is_known(tmp_path: Path) -> None:
    data = read(d4rl(tmp_path / "it.hdf5"))
    assert data.reward.tolist() == [0.0, 1.0, 2.0, 3.0, 5.0]
    assert data.terminal.tolist() == [False, True, False, False, False]
    assert data.truncated.tolist() == [False, False, False, True, True]
    assert data.next_observation[:, 0].tolist() == [2.0, 2.0, 6.0, 8.0, 12.0]
    assert data.observation.dtype == torch.float32


def test_d4rl_with_next_observations_keeps_every_row(tmp_path: Path) -> None:
    after = np.arange(14.0).reshape(7, 2) + 2
    after[[1, 4, 6]] = -1.0
    data = read(d4rl(tmp_path / "it.hdf5", next_observations=after))
    assert len(data) == 7
    assert data.truncated.tolist() == [False, False, False, False, True, False, True]
    told = read(d4rl(tmp_path / "other.hdf5", next_observations=after, timeouts=None))
    assert torch.equal(told.truncated, data.truncated)
    assert data.next_observation[4].tolist() == [-1.0, -1.0]


D4RL_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "key": ({"actions": None}, "no 'actions'"),
    "ends": ({"timeouts": None}, "neither 'timeouts' nor 'next_observations'"),
    "rows": ({"actions": np.zeros((6, 1))}, "'action' has 6 rows"),
    "finite": ({"observations": np.full((7, 2), np.inf)}, "'observation' is not finite"),
    "reward": ({"rewards": np.zeros((7, 2))}, "one number per row"),
    "text": ({"actions": np.array([b"x"] * 7)}, "not numbers"),
    "masks": ({"masks": np.zeros(3)}, "'masks' has 3 rows"),
}


@pytest.mark.parametrize("case", D4RL_FAULTS)
def test_a_wrong_d4rl_file_is_refused(case: str, tmp_path: Path) -> None:
    changes, message = D4RL_FAULTS[case]
    with pytest.raises(AssayError, match=message):
        read(d4rl(tmp_path / "it.hdf5", **changes))


def test_columns_in_other_files_are_not_followed(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    other = d4rl(tmp_path / "other.hdf5")
    layout = h5py.VirtualLayout(shape=(7,), dtype=float)
    layout[:] = h5py.VirtualSource(other, "rewards", shape=(7,))
    (tmp_path / "raw").write_bytes(np.arange(7.0).tobytes())
    ways = {
        "link": lambda file: file.update({"rewards": h5py.ExternalLink(other, "rewards")}),
        "virtual": lambda file: file.create_virtual_dataset("rewards", layout),
        "raw": lambda file: file.create_dataset("rewards", (7,), float, external=[(str(tmp_path / "raw"), 0, 56)]),
        "below": lambda file: file.create_group("infos/x").update({"rewards": h5py.ExternalLink(other, "rewards")}),
    }
    for name, put in ways.items():
        path = d4rl(tmp_path / f"{name}.hdf5", rewards=None)
        with h5py.File(path, "a") as file:
            put(file)
        with pytest.raises(AssayError, match="'rewards' is kept in another file, which is not read"):
            read(path)


# ---------------------------------------------------------------------------------------------------- Minari
def buffers(minari: Any, num: int, discrete: int | None) -> list[Any]:
    found = []
    for episode in range(num):
        length, draw = 3 + episode, np.random.default_rng(episode)
        actions = draw.integers(2, size=length) + discrete if discrete is not None else draw.normal(size=(length, 2))
        ends = np.arange(length) == length - 1
        found.append(
            minari.data_collector.EpisodeBuffer(
                observations=draw.normal(size=(length + 1, 3)),
                actions=actions,
                rewards=list(draw.normal(size=length)),
                terminations=list(ends & (episode % 3 == 0)),
                truncations=list(ends & (episode % 3 == 1)),
                infos={},
            )
        )
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari asks for an author
@pytest.mark.parametrize("discrete", [None, 1])
def test_minari_data_are_read_with_and_without_its_package(
    discrete: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    from gymnasium import spaces

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    stored = buffers(minari, 5, discrete)
    space = spaces.Box(-9.0, 9.0, (2,)) if discrete is None else spaces.Discrete(2, start=discrete)
    minari.create_dataset_from_buffers(
        "our/test-v0", stored, action_space=space, observation_space=spaces.Box(-9.0, 9.0, (3,), np.float64)
    )
    by_package, by_hand = read("minari:our/test-v0"), read(tmp_path / "our" / "test-v0")
    assert same(by_package, by_hand)
    assert by_hand.about["made"] == "our/test-v0"
    actions = np.concatenate([one.actions for one in stored]) - (discrete or 0)
    assert torch.equal(by_hand.action, torch.from_numpy(actions).to(by_hand.action.dtype))
    first = stored[0]
    assert torch.equal(by_hand.next_observation[:3], torch.from_numpy(first.observations[1:]).float())
    assert by_hand.terminal[by_hand.ends].tolist() == [True, False, False, True, False]
    assert by_hand.truncated[by_hand.ends].tolist() == [False, True, True, False, True]
    with pytest.raises(AssayError, match="minari download"):
        read("minari:no/such-v0")


def test_minari_reads_what_we_write(tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    for name, task in TASKS.items():
        data = small(task)
        write(data, tmp_path / name)
        theirs = minari.MinariDataset(tmp_path / name / "data")
        episodes = list(theirs.iterate_episodes())
        assert theirs.total_steps == len(data)
        assert len(episodes) == len(data.ends)
        begin, end = data.bounds[1]
        if data.goal is not None:
            assert np.array_equal(episodes[1].observations["desired_goal"][:-1], data.goal[begin:end].numpy())
            continue
        assert np.array_equal(episodes[1].observations[:-1], data.observation[begin:end].numpy())
        assert np.array_equal(episodes[1].observations[-1], data.next_observation[end - 1].numpy())
        assert np.array_equal(episodes[1].truncations, data.truncated[begin:end].numpy())


def test_minari_needs_rows_that_follow_each_other(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    with pytest.raises(AssayError, match="do not follow each other"):
        write(rows(next_observation=torch.zeros(5, 1)), tmp_path / "folder")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AssayError, match="not Minari's layout"):
        read(tmp_path / "empty")


# ---------------------------------------------------------------------------------------------------- goals
def places(**changes: Any) -> Dataset:
    """`rows` with positions in goal space, ten times the observation."""
    data = rows()
    return replace(data, **({"achieved": 10 * data.observation, "next_achieved": 10 * data.next_observation} | changes))


def test_walks_are_the_states_of_each_episode_whatever_its_length() -> None:
    walks = places().walks(Box((0.0,), (60.0,)))
    assert walks["observation"][:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert walks["achieved"][:, 0].tolist() == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    assert walks["action"].tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert walks["last"].tolist() == [2, 3]
    itself = rows().walks(Box((0.0,), (6.0,)))
    assert torch.equal(itself["achieved"], itself["observation"])


def test_the_batches_of_play_from_a_file_are_those_of_the_play_itself(tmp_path: Path) -> None:
    task = TASKS["pointmaze-umaze"]
    file = RecordedPlay(str(write(Played(3, noise=0.0).make(task), tmp_path / "play.npz")))
    sources = [Relabelled(one, jump=5, batch=64, updates=1) for one in (Play(3, noise=0.0), file)]
    mine, other = (next(iter(one(feeding(task, None, Draw(3)), one.init(Scene(task))))) for one in sources)
    for name in ("observation", "achieved", "goal"):
        assert torch.equal(mine.context[name], other.context[name])
    assert torch.equal(mine.reward, other.reward)
    assert torch.allclose(mine.action[:, 0].clamp(-1.0, 1.0), other.action[:, 0])


def test_methods_of_goals_learn_from_a_file_and_name_what_it_lacks(tmp_path: Path) -> None:
    task = TASKS["pointmaze-umaze"]
    whole = Scripted(4, 0.5).make(task)
    assert len(set(np.diff(whole.ends.numpy()).tolist())) > 1
    for method in ("ota", "zero-shot-rl"):
        path = str(write(whole, tmp_path / f"{method}.safetensors"))
        Loop(make_plan(method, task, data=[path]).recipe, task, seed=0, num_steps=1).step()
        with pytest.raises(AssayError, match="learns from 1 dataset"):
            make_plan(method, task, data=[path, path])
    faults: list[tuple[Dataset, str, str]] = [
        (replace(whole, achieved=None), "pointmaze-umaze", "no columns 'achieved' and 'next_achieved'"),
        (replace(whole, next_observation=0 * whole.observation), "pointmaze-umaze", "do not follow each other"),
        (Random(2).make(TASKS["pendulum"]), "pendulum", "task 'pendulum' has no goals"),
    ]
    for data, name, message in faults:
        with pytest.raises(AssayError, match=message):
            RecordedPlay(str(write(data, tmp_path / "it.safetensors"))).columns(TASKS[name])
    with pytest.raises(AssayError, match="no column 'goal'"):
        Recorded(str(write(replace(whole, goal=None), tmp_path / "no.safetensors"))).columns(task)
    assert Recorded(str(write(whole, tmp_path / "a.npz"))).columns(task)["context.goal"].shape[1:] == (2, 2)


def test_play_without_rewards_is_read_and_refused_where_rewards_are_learnt_from(tmp_path: Path) -> None:
    arrays = {"observations": np.arange(12.0).reshape(6, 2), "actions": np.zeros(6, np.int64)}
    np.savez(tmp_path / "play.npz", terminals=np.array([0, 0, 1, 0, 0, 1.0]), **arrays)  # OGBench's layout
    data = read(tmp_path / "play.npz")
    assert data.observation[:, 0].tolist() == [0.0, 2.0, 6.0, 8.0]
    assert data.next_observation[:, 0].tolist() == [2.0, 4.0, 8.0, 10.0]
    assert (data.truncated.tolist(), data.terminal.any().item()) == ([False, True, False, True], False)
    again = read(write(data, tmp_path / "again.safetensors"))
    spec = Spec(Box((0.0,) * 2, (12.0,) * 2), Discrete(2), 9, goal=Box((0.0,) * 2, (12.0,) * 2))
    task = replace(TASKS["cartpole"], spec=spec)
    assert RecordedPlay(str(tmp_path / "again.safetensors")).columns(task)["last"].tolist() == [2, 2]
    with pytest.raises(AssayError, match="it has no rewards"):
        Recorded(str(write(again, tmp_path / "more.npz"))).columns(task)


# ---------------------------------------------------------------------------------------------------- training
def test_rewards_of_a_file_keep_their_unit(tmp_path: Path) -> None:
    task = TASKS["cartpole"]
    file = stamped(str(write(Scripted(2, 0.5).make(task), tmp_path / "one.npz")), task)
    for recipe in (iql(), cql(CONTROL)):
        source = with_data(recipe, [file]).source
        assert isinstance(source, Logged)
        assert source.logs[0].reward_scale == 1.0
        assert set(source.logs[0].columns(task)["reward"][:, 0].tolist()) == {1.0}


def test_a_recipe_learns_from_files_in_the_place_of_its_logs(tmp_path: Path) -> None:
    task = TASKS["cartpole"]
    paths = [str(write(Scripted(2, noise).make(task), tmp_path / f"{noise}.npz")) for noise in (0.0, 0.5)]
    files = [stamped(path, task) for path in paths]
    one = with_data(f_dvl(reward_scale=100.0), files[:1])
    assert isinstance(one.source, Logged)
    assert one.source.logs == (replace(files[0], reward_scale=100.0),)
    two = with_data(recoil(), files)
    assert isinstance(two.source, Logged)
    assert [log.origin for log in two.source.logs] == [4, 2]
    assert Contents(two.source.logs, task).hash == Contents(two.source.logs, task).hash
    cloned = with_data(recipes.bc(), files[:1]).source
    assert isinstance(cloned, Logged)
    assert cloned.updates == DemonstratedDecisions().minibatches
    with pytest.raises(AssayError, match="learns from 2 datasets"):
        with_data(recoil(), files[:1])
    with pytest.raises(AssayError, match="gathers its own experience"):
        with_data(recipes.ppo(), files[:1])


def test_the_batches_of_a_file_are_those_of_the_log_that_it_was_made_of(tmp_path: Path) -> None:
    task, log = TASKS["cartpole"], Log(2, noise=0.0)
    data = Scripted(2, noise=0.0).make(task)
    file = Recorded(str(write(data, tmp_path / "it.safetensors")))
    sources = [Logged((one,), batch=16, updates=2) for one in (log, file)]
    batches = [list(source(feeding(task, None, Draw(3)), source.init(Scene(task)))) for source in sources]
    for mine, other in zip(*batches, strict=True):
        for name in ("action", "reward", "terminal", "truncated", "mask"):
            assert torch.equal(getattr(mine, name), getattr(other, name).to(getattr(mine, name).dtype))
        assert torch.equal(mine.context["observation"], other.context["observation"])


@pytest.fixture
def assay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.main(list(words))
        return code, *capfd.readouterr()

    return run


def test_from_making_to_training_on_the_command_line(assay: Callable[..., Any], tmp_path: Path) -> None:
    code, out, _ = assay("data", "make", "cartpole", "scripted", "random", "--episodes", "2", "--json")
    made = json.loads(out)
    assert code == 0
    assert [one["episodes"] for one in made] == [2, 2]
    assert "scripted" in assay("data", "describe", made[0]["file"])[1]
    code, out, _ = assay("data", "convert", made[0]["file"], "it.npz", "--json")
    assert json.loads(out)[0]["hash"] == made[0]["hash"]
    code, out, errors = assay("train", "dual-rl", "--data", "it.npz", "--steps", "2", "--out", "run", "--json")
    assert (code, errors) == (0, "")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["data"] == [{"path": str(tmp_path / "it.npz"), "hash": made[0]["hash"]}]
    assert plan_of(tmp_path / "run").config()["fingerprint"] == config["fingerprint"]
    write(read(made[1]["file"]), tmp_path / "it.npz")
    code, _, errors = assay("resume", "run")
    assert code == 2
    assert f"the run uses {made[0]['hash']}" in errors
    assert assay("data", "make", "cartpole", "median")[2].startswith("assay: there is no kind of dataset 'median'")
    assert "data" not in make_plan("dual-rl", "cartpole").config()


def test_one_kind_is_made_into_the_file_that_is_named(assay: Callable[..., Any], tmp_path: Path) -> None:
    """It was a folder of that name."""
    assert assay("data", "make", "cartpole", "random", "--episodes", "2", "--out", "a.safetensors")[0] == 0
    assert json.loads(assay("data", "describe", "a.safetensors", "--json")[1])[0]["episodes"] == 2
    again = assay("data", "make", "cartpole", "random", "--episodes", "2", "--out", "a.safetensors")
    assert again[2] == "assay: --out a.safetensors exists. Name a new file, or a folder.\n"
    two = assay("data", "make", "cartpole", "random", "scripted", "--out", "b.safetensors")
    assert two[2] == "assay: --out b.safetensors is one file, for 2 kinds. Name a folder.\n"
    assert not (tmp_path / "b.safetensors").exists()


def test_quality_and_coverage_are_described_with_what_they_are_relative_to(assay: Callable[..., Any]) -> None:
    made = json.loads(assay("data", "make", "cartpole", "scripted", "random", "--episodes", "20", "--json")[1])
    good, bad = (one["file"] for one in made)
    found = json.loads(assay("data", "describe", good, bad, "--task", "cartpole", "--json")[1])
    assert found[0]["tq"] > 0.5 > abs(found[1]["tq"])
    assert found[0]["ends"]["worst_is"] == "uniform actions"
    assert found[0]["ends"]["best_is"] == "the task's expert"
    assert max(one["saco"] for one in found) == 1.0
    assert min(one["saco"] for one in found) == min(one["unique_pairs"] for one in found) / max(
        one["unique_pairs"] for one in found
    )
    text = assay("data", "describe", bad, "--reference", good)[1]
    assert "TQ    mean return, 0 as the worst episode of these files" in text
    assert "SACo  different pairs of state and action" in text
    assert f"relative to {good}" in " ".join(text.split())
    alone = json.loads(assay("data", "describe", bad, "--json")[1])[0]
    assert (alone["saco"], alone["reference"]) == (None, None)


def test_what_favours_cloning_is_described_and_tells_both_kinds_of_noise_apart(assay: Callable[..., Any]) -> None:
    found = []
    for which in ("action", "system"):
        options = ("--episodes", "5", f"--{which}-noise", "0.3", "--out", f"{which}.safetensors", "--json")
        assert assay("data", "make", "pendulum", "demonstrated", *options)[0] == 0
        found.append(json.loads(assay("data", "describe", f"{which}.safetensors", "--json")[1])[0])
    shaky, disturbed = (one["imitation"] for one in found)
    assert shaky["action_variance"] > disturbed["action_variance"]
    assert shaky["transition_entropy"] < disturbed["transition_entropy"]
    assert shaky["horizon"] == 200.0
    assert "for cloning: action variance" in assay("data", "describe", "action.safetensors")[1]
    assert measure([rows()], None, None)
    assert imitation(rows()) is None
    assert imitation(rows(observation=torch.tensor([0, 1, 0, 1, 1]), next_observation=torch.tensor([1, 0, 1, 0, 0])))


def test_demonstrations_need_numbers_for_actions_and_noise_of_some_size() -> None:
    with pytest.raises(AssayError, match="noise is added to actions that are numbers"):
        Demonstrated(1).make(cartpole())
    with pytest.raises(AssayError, match="system_noise is -1"):
        Demonstrated(1, system_noise=-1.0).make(pendulum())


def test_coverage_counts_binned_pairs_once() -> None:
    once = measure([rows()], None, None)[0]
    assert once["unique_pairs"] == 5.0
    assert once["tq"] == pytest.approx((7.5 - 3.0) / (12.0 - 3.0))
    twice = measure([rows(observation=torch.zeros(5, 1)), rows()], None, None)
    assert [one["unique_pairs"] for one in twice] == [2.0, 5.0]
    assert [one["saco"] for one in twice] == [0.4, 1.0]
    flat = measure([rows(reward=torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0]))], None, None)[0]
    assert flat["tq"] is None


def test_files_of_other_shapes_are_not_described_together(assay: Callable[..., Any]) -> None:
    made = [json.loads(assay("data", "make", name, "random", "--episodes", "1", "--json")[1])[0]["file"] for name in
            ("cartpole", "pendulum")]  # fmt: skip
    assert "Describe files of one task together" in assay("data", "describe", *made)[2]


def test_seeds_of_starts_do_not_depend_on_how_many_are_played_at_once() -> None:
    task = TASKS["gridworld"]
    few, many = Random(3, 1).make(task), Random(33, 1).make(task)
    assert torch.equal(few.action, many.action[: len(few)])
    assert int(hashed(Draw(1))) != int(hashed(Draw(2)))
