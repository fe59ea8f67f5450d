"""EnvPool's environments, by a stand-in with its interface; by EnvPool itself where it is installed."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.systems.answers import fragments, unequal
from assay.core.errors import AssayError
from assay.runs import catalogue
from assay.tasks.control.stepping import SteppedTask

gymnasium = pytest.importorskip("gymnasium")


class StandIn:
    """CartPole behind EnvPool's calls: answers come one at a time, the last one sent first; a reset takes a step."""

    config = {"max_episode_steps": 500}

    def __init__(self, num_envs: int, seed: list[int]) -> None:
        self.envs = [gymnasium.make("CartPole-v1") for _ in range(num_envs)]
        self.seed, self.answers, self.over = seed, list[Any](), [True] * num_envs
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space

    def async_reset(self) -> None:
        self.send(np.zeros(len(self.envs), int), np.arange(len(self.envs)))

    def send(self, actions: np.ndarray, rows: np.ndarray) -> None:
        for action, row in zip(actions, rows, strict=True):
            if self.over[row]:
                seen, _ = self.envs[row].reset(seed=self.seed[row])
                self.seed[row] += 1000
                found = (seen, 0.0, False, False)
            else:
                found = self.envs[row].step(int(action))[:4]
            self.over[row] = found[2] or found[3]
            self.answers.append((*(np.array([value]) for value in found), {"env_id": np.array([row])}))

    def recv(self) -> Any:
        return self.answers.pop()


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> SteppedTask:
    specs = {"CartPole-v1": ("envpool.classic_control",)}
    package = SimpleNamespace(
        make=lambda id, env_type, num_envs, batch_size, seed: StandIn(num_envs, list(seed)),
        list_all_envs=lambda: list(specs),
        registration=SimpleNamespace(registry=SimpleNamespace(specs=specs)),
    )
    if "envpool" not in sys.modules:
        monkeypatch.setitem(sys.modules, "envpool", package)
    found = catalogue.find_task("envpool:CartPole-v1")
    assert isinstance(found, SteppedTask)
    return found


def test_instances_of_a_pool_are_filed_by_their_numbers(task: SteppedTask) -> None:
    whole = fragments(task, None, 6, 40)
    assert int(whole.terminal.sum()) > 6
    for ready in (1, 4):
        apart = replace(task, make=replace(task.make, ready=ready))  # type: ignore[type-var]
        assert unequal(whole, fragments(apart, None, 6, 40)) == 0


def test_a_pool_is_restored_by_its_actions(task: SteppedTask) -> None:
    ours, theirs = task.simulate(3), task.simulate(3)
    ours.reset(np.array([4, 5, 6]))
    for time in range(30):
        ours.step(torch.full((3,), time % 2))
    theirs.restore(ours.snapshot())
    for _ in range(20):
        one, other = (simulation.step(torch.ones(3, dtype=torch.long)) for simulation in (ours, theirs))
        assert torch.equal(one[0]["observation"], other[0]["observation"])
        assert torch.equal(one[2], other[2])


def test_what_is_missing_is_named(task: SteppedTask, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssayError, match=r"EnvPool has no environment 'CartPol-v1'. The nearest is 'CartPole-v1'"):
        catalogue.find_task("envpool:CartPol-v1")
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(AssayError, match=r"tasks envpool:ID need EnvPool.*pip install envpool"):
        catalogue.find_task("envpool:CartPole-v1")
