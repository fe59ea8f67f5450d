"""Environments that break a rule: refused before training or stopped in it, always in one sentence."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.runs.progress import Mode
from assay.runs.run import train
from assay.tasks.adapters.gymnasium import environment_task
from assay.tasks.adapters.gymnasium_trial import try_environment

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces
LATE = 150
"""Decisions after which a fault occurs that the trial does not see."""


class Sound(gymnasium.Env):  # type: ignore[misc]
    """A walk of ten steps that keeps every rule; the others break one each."""

    observation_space = spaces.Box(-100.0, 100.0, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self.total = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.normal(size=3).astype(np.float32)
        return self.seen(), {}

    def seen(self) -> Any:
        return self.place.copy()

    def reward(self) -> Any:
        return float(self.place[0])

    def ends(self) -> tuple[Any, Any]:
        return self.time >= 10, False

    def move(self, action: Any) -> None:
        self.time, self.total = self.time + 1, self.total + 1
        self.place = (self.place + np.float32(action - 1)).astype(np.float32)

    def step(self, action: Any) -> Any:
        self.move(action)
        return self.seen(), self.reward(), *self.ends(), {}


def broken(**changes: Any) -> type[Sound]:
    return type("Broken", (Sound,), changes)


def late(value: Any, name: str) -> Any:
    """Returns a method that gives the wrong value only after the trial is over."""
    return lambda self: value if self.total > LATE else getattr(Sound, name)(self)


def raising(error: BaseException) -> Any:
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise error

    return call


def ends_process(how: Any) -> Any:
    def step(self: Any, action: Any) -> Any:
        how()

    return step


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def with_info(info: Any) -> Any:
    return lambda self, action: (*Sound.step(self, action)[:4], info)


NAN, INF = np.array([0, np.nan, 0], np.float32), np.array([0, 0, -np.inf], np.float32)
WIDE = spaces.Box(-np.inf, np.inf, (3,), np.float32)

EARLY = {
    "nan observation": (broken(seen=lambda self: NAN), r"observation\[1\] is nan. .*instance 0, episode 0, step 0"),
    "infinite observation": (broken(seen=lambda self: INF, observation_space=WIDE), r"observation\[2\] is -inf"),
    "wrong shape": (broken(seen=lambda self: np.zeros(4, np.float32)), r"has shape \(4,\), its space says \(3,\)"),
    "one axis more": (broken(seen=lambda self: np.zeros((1, 3), np.float32)), r"shape \(1, 3\)"),
    "no observation": (broken(seen=lambda self: None), r"observation has shape \(\)"),
    "text for numbers": (broken(seen=lambda self: np.array(["a", "b", "c"])), "dtype <U1.*says float32"),
    "complex numbers": (broken(seen=lambda self: np.zeros(3, complex)), "dtype complex128"),
    "fractions for bytes": (
        broken(observation_space=spaces.Box(0, 255, (3,), np.uint8), seen=lambda self: np.full(3, 0.5)),
        "dtype float64, its space says uint8",
    ),
    "a missing key": (
        broken(observation_space=spaces.Dict({"a": WIDE, "b": WIDE}), seen=lambda self: {"a": np.zeros(3, np.float32)}),
        r"observation\['b'\] is missing",
    ),
    "nan inside a dict": (
        broken(observation_space=spaces.Dict({"a": WIDE, "b": WIDE}), seen=lambda self: {"a": NAN, "b": NAN}),
        r"observation\['a'\]\[1\] is nan",
    ),
    "a state out of range": (
        broken(observation_space=spaces.Discrete(4), seen=lambda self: 4),
        "observation is 4, outside",
    ),
    "reset without seed": (broken(reset=lambda self: Sound.reset(self)), r"seed.*Define reset\(self, \*, seed=None"),
    "reset without info": (
        broken(reset=lambda self, *, seed=None: Sound.reset(self, seed=seed)[0]),
        r"reset\(\) returned a ndarray",
    ),
    "reset raises": (broken(reset=raising(KeyError("level"))), r"reset\(seed=\d+\) raised KeyError: 'level'"),
    "reward none": (broken(reward=lambda self: None), "reward is None. Return one finite number"),
    "reward text": (broken(reward=lambda self: "high"), "reward is 'high'"),
    "reward array": (broken(reward=lambda self: np.ones(1)), r"reward is array\(\[1\.\]\)"),
    "reward nan": (broken(reward=lambda self: float("nan")), "reward is nan"),
    "reward infinite": (broken(reward=lambda self: np.float32("inf")), "reward is .*inf"),
    "four values": (broken(step=lambda self, action: Sound.step(self, action)[:4]), r"step\(\) returned 4 values"),
    "one value": (broken(step=lambda self, action: self.seen()), r"step\(\) returned a ndarray"),
    "terminated array": (
        broken(ends=lambda self: (np.array([False]), False)),
        r"terminated is array\(\[False\]\), a ndarray",
    ),
    "terminated number": (broken(ends=lambda self: (0, False)), "terminated is 0, a int"),
    "truncated none": (broken(ends=lambda self: (False, None)), r"truncated is None.* Return bool\(truncated\)"),
    "info none": (broken(step=with_info(None)), "info is None. Return a dict"),
    "cost text": (broken(step=with_info({"cost": "much"})), r"info\['cost'\] is 'much'"),
    "step raises": (broken(step=raising(ZeroDivisionError("by zero"))), r"step\(\) raised ZeroDivisionError: by zero"),
    "close raises": (broken(close=raising(RuntimeError("no window"))), r"close\(\) raised RuntimeError: no window"),
    "making raises": (
        broken(__init__=raising(FileNotFoundError("map.txt"))),
        "making it raised FileNotFoundError: map.txt",
    ),
    "action space too large": (
        broken(action_space=spaces.Discrete(9), move=lambda self, action: [0, 1, 2][action]),
        r"step\(\) raised IndexError",
    ),
    "no observation space": (broken(observation_space=None), "has no observation_space. Set"),
    "no space at all": (broken(observation_space=None, action_space=None), "texts needs max_turns = N"),
    "no action space": (broken(action_space=None), "has no action_space. Set self.action_space"),
    "a space of text": (broken(observation_space=spaces.Text(9)), r"observation_space is Text.* Use Box"),
    "an empty space": (broken(observation_space=spaces.Dict({})), "is empty"),
    "exit": (broken(step=ends_process(lambda: os._exit(3))), r"exited \(3\) in step"),
    "sys.exit": (broken(step=raising(SystemExit(0))), r"step\(\) raised SystemExit: 0"),
    "segfault": (broken(step=ends_process(segfault)), r"was killed by SIGSEGV in step"),
}

LATER = {
    "nan observation": (
        broken(seen=late(NAN, "seen")),
        r"observation\[1\] is nan.*\(instance 0, episode \d+, step \d+\)",
    ),
    "shape": (broken(seen=late(np.zeros(2, np.float32), "seen")), r"shape \(2,\)"),
    "reward": (broken(reward=late(None, "reward")), "reward is None"),
    "ends": (broken(ends=late((1, 0), "ends")), "terminated is 1"),
    "raises": (broken(reward=lambda self: 1 / (self.total <= LATE)), r"step\(\) raised ZeroDivisionError"),
    "exits": (broken(reward=lambda self: exit(0) if self.total > LATE else 0.0), r"step\(\) raised SystemExit"),
}


def is_one_sentence(text: str) -> bool:
    return text.startswith("task 'mine'") and "\n" not in text and "Traceback" not in text


@pytest.mark.parametrize("case", EARLY)
def test_a_broken_environment_is_refused_before_training(case: str) -> None:
    make, message = EARLY[case]
    with pytest.raises(AssayError, match=message) as error:
        environment_task("mine", make, 20)
    assert is_one_sentence(str(error.value)), str(error.value)


@pytest.mark.parametrize("case", LATER)
def test_a_fault_during_training_stops_the_run_in_one_sentence(case: str, tmp_path: Path) -> None:
    make, message = LATER[case]
    task = environment_task("mine", make, 20)
    small = {"rollout.num_envs": 2, "rollout.steps": 64}
    with pytest.raises(AssayError, match=message) as error:
        train("ppo", task, steps=3, settings=small, evaluations=0, out=tmp_path / "run", mode=Mode.SILENT)
    assert is_one_sentence(str(error.value)), str(error.value)


def test_an_endless_call_ends_after_some_patience() -> None:
    slow = broken(step=ends_process(lambda: time.sleep(60)))
    with pytest.raises(AssayError, match=r"did not answer within 0.3 s in step\(\). Look for an endless loop"):
        try_environment("mine", slow, patience=0.3)


def test_an_environment_without_an_end_needs_a_limit(tmp_path: Path) -> None:
    task = environment_task("mine", broken(ends=lambda self: (False, False)))
    with pytest.raises(AssayError, match=r"no time limit\. Set --max-episode-steps N"):
        train("ppo", task, steps=1, out=tmp_path / "run", mode=Mode.SILENT)


def test_a_sound_environment_is_accepted_without_a_warning() -> None:
    assert environment_task("mine", Sound, 20).spec.horizon == 20


def test_observations_outside_their_space_are_a_warning() -> None:
    tight = broken(observation_space=spaces.Box(-0.1, 0.1, (3,), np.float32))
    with pytest.warns(UserWarning, match=r"observation\[\d\] is -?[\d.]+, outside its space \(-0.1 to 0.1\)"):
        environment_task("mine", tight, 20)


def test_an_environment_that_changes_its_own_observation_trains_the_same(tmp_path: Path) -> None:
    shared = np.zeros(3, np.float32)  # one array for all instances, returned again and again

    def seen(self: Sound) -> np.ndarray:
        shared[:] = self.place
        return shared

    curves = []
    for number, make in enumerate((Sound, broken(seen=seen))):
        settings = {"rollout.num_envs": 2, "rollout.steps": 16}
        run = train("ppo", environment_task("mine", make, 20), steps=2, settings=settings, evaluations=0,
                    out=tmp_path / str(number), mode=Mode.SILENT)  # fmt: skip
        curves.append([{key: value for key, value in row.items() if key != "time"} for row in run.curves])
    assert curves[0] == curves[1]


def test_chance_without_a_seed_is_a_warning_and_a_sentence_on_resume(tmp_path: Path) -> None:
    def reward(self: Sound) -> float:
        self.place[1] = np.random.default_rng().normal()
        return 0.0

    with pytest.warns(UserWarning, match="'mine' is not deterministic: .*This run cannot be resumed exactly"):
        task = environment_task("mine", broken(reward=reward), 20)
    settings = {"rollout.num_envs": 2, "rollout.steps": 20}
    run = train("ppo", task, steps=2, settings=settings, evaluations=0, out=tmp_path / "run", mode=Mode.SILENT)
    assert len(run.curves) == 3
    with pytest.raises(AssayError, match=r"'mine' is not deterministic under its seed .*cannot be resumed"):
        train("ppo", task, steps=2, settings=settings, evaluations=0, out=tmp_path / "run", mode=Mode.SILENT)
