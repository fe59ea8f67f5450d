"""A reward that a run was not trained for: its policy is inferred from data and scored on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.datasets.files import write
from assay.datasets.made import Played
from assay.runs import catalogue, zero_shot
from assay.runs.run import load
from assay.tasks.control.stepping import start_seeds

TASK = catalogue.find_task("small-rooms")
REWARDS = """
import numpy as np

def right(positions):
    assert positions.dtype == np.float32 and positions.shape[1] == 2
    return positions[:, 0]

def left(positions):
    return -positions[:, 0]

def nothing(positions):
    return 0 * positions[:, 0]

def short(positions):
    return positions[:1, 0]

def infinite(positions):
    return positions[:, 0] / 0.0 if len(positions) < 0 else [float("nan")] * len(positions)

def broken(positions):
    return positions.no_such_thing
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("zero-shot")
    (folder / "rewards.py").write_text(REWARDS)
    words = ["--task", "small-rooms", "--steps", "1", "--set", "source.log.episodes=5", "--set", "source.updates=2"]
    assert cli.main(["train", "zero-shot-rl", *words, "--out", str(folder / "run"), "--json"]) == 0
    return folder / "run", folder / "rewards.py"


def by_hand(folder: Path, places: torch.Tensor, sign: float) -> np.ndarray:
    """The mean of sign * x over the states that pi_z reaches, z = E[r B]."""
    model, plan, _ = load(folder)
    with torch.no_grad():
        mean = (sign * places[:, :1] * model.backward_of(places)).mean(0)
        z = model.size**0.5 * mean / mean.norm()
        simulation = plan.task.roaming.make(20)
        context = simulation.reset(start_seeds(1, np.arange(20)))
        seen = []
        for _ in range(200):
            values = (model.forwards(context, None, z.expand(20, -1)) * z).sum(-1).amin(0)
            context = simulation.step(values.argmax(-1))[0]
            seen.append(sign * context["achieved"][:, 0])
    return torch.stack(seen, 1).mean(1).double().numpy()


def test_the_policy_of_a_reward_is_inferred_from_the_data_of_the_run(run: tuple[Path, Path], capfd: Any) -> None:
    folder, file = run
    capfd.readouterr()
    assert cli.main(["evaluate", str(folder), "--reward", f"{file}:right", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    _, plan, _ = load(folder)
    places = plan.recipe.source.log.columns(plan.task)["achieved"]
    assert found["data_mean"] == pytest.approx(float(places[:, 0].mean()), abs=1e-6)
    assert found["count"] == 20
    right, left = (zero_shot.evaluate(folder, f"{file}:{name}") for name in ("right", "left"))
    assert right.scores == pytest.approx(by_hand(folder, places, 1.0), abs=1e-6)
    assert left.scores == pytest.approx(by_hand(folder, places, -1.0), abs=1e-6)
    assert found["mean"] == pytest.approx(right.scores.mean())


def test_the_policy_can_be_inferred_from_another_file(run: tuple[Path, Path], tmp_path: Path) -> None:
    folder, file = run
    data = Played(2, noise=1.0, seed=5).make(TASK)
    path = write(data, tmp_path / "other.npz")
    found = zero_shot.evaluate(folder, f"{file}:right", str(path), starts=20)
    places = data.walks(TASK.spec.goal)["achieved"]
    assert found.in_data == pytest.approx(float(places[:, 0].mean()))
    assert found.scores == pytest.approx(by_hand(folder, places, 1.0), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "is 0 at all"),
        ("short", "returned shape"),
        ("infinite", "not finite"),
        ("broken", "raised AttributeError"),
        ("missing", "has no function 'missing'"),
    ],
)
def test_a_wrong_reward_is_named(run: tuple[Path, Path], name: str, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        zero_shot.evaluate(run[0], f"{run[1]}:{name}")


def test_other_methods_and_other_options_are_refused(run: tuple[Path, Path], tmp_path: Path, capfd: Any) -> None:
    words = ["train", "bc", "--task", "small-rooms", "--steps", "1", "--out", str(tmp_path / "bc"), "--json"]
    assert cli.main(words) == 0
    with pytest.raises(AssayError, match="infers no policy from another"):
        zero_shot.evaluate(tmp_path / "bc", f"{run[1]}:right")
    for words, message in (
        (["--data", "x.npz"], "Add --reward"),
        (["--reward", "rewards.py"], "there is no file 'rewards.py'"),
        (["--reward", f"{run[1]}:right", "--samples", "3"], "always acts with its mode"),
    ):
        assert cli.main(["evaluate", str(run[0]), *words]) == 2
        assert message in capfd.readouterr().err
