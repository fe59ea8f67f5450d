"""Simulations as tensors: the episodes of their twins in numpy, resume, placing and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Progress
from assay.core.slots import DeviceSimulation, DeviceTask, Scene
from assay.core.spaces import Context
from assay.engine.guards.alarms import Moment
from assay.engine.guards.correctness import STANDARD
from assay.engine.guards.learning import FINITE_WORLDS
from assay.parts.rollouts.episodes import Fragments, totals_at_ends, totals_at_ends_on_device
from assay.tasks.control.arrays import Array, as_rows, namespace
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.frames import with_frames
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.stepping import AHEAD, ArraySimulation, Scripted, SteppedTask
from assay.tasks.control.tensor_stepping import TensorSimulation

SEEDS = np.arange(40) * 7 + 3
by_task = pytest.mark.parametrize("task", [cartpole(), pendulum()], ids=lambda task: task.name)


@dataclass(frozen=True)
class Coin:
    """A walk by chance that ends within one to a few steps: more episodes than are prepared at once."""

    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = True
    limit: ClassVar[int] = 4

    def start(self, uniform: Array) -> Array:
        return 2.0 * uniform - 1.0

    def step(self, state: Array, action: Array, uniform: Array) -> tuple[Array, Array, Array]:
        moved = state + uniform - 0.5
        return moved, (1.0 * moved[0]).astype(np.float32) if namespace(state) is np else moved[0].float(), uniform > 0.3

    def observe(self, state: Array) -> Context:
        return {"observation": as_rows(state)}


def follow(task: SteppedTask, first: object, second: object, steps: int) -> None:
    """Steps both by the scripted expert, each by what it sees itself, and compares."""
    mine, other = first.reset(SEEDS), second.reset(SEEDS)
    numbers = torch.rand(steps, len(SEEDS), generator=torch.Generator().manual_seed(0))
    for step in range(steps):
        torch.testing.assert_close(mine["observation"], other["observation"], rtol=0, atol=1e-6)
        actions = [task.expert(context) for context in (mine, other)]
        if not actions[0].is_floating_point():  # the expert never falls: some actions are turned
            actions = [torch.where(numbers[step] < 0.3, 1 - action, action) for action in actions]
        mine, reward, *ends, _ = first.step(actions[0])
        other, rewarded, *ended, _ = second.step(actions[1])
        torch.testing.assert_close(reward, rewarded, rtol=0, atol=1e-5)
        assert all(torch.equal(one, two) for one, two in zip(ends, ended, strict=True))


@by_task
def test_episodes_are_those_of_numpy(task: SteppedTask) -> None:
    assert isinstance(task, DeviceTask)
    assert task.is_portable
    follow(task, task.simulate(len(SEEDS)), task.on("cpu").simulate(len(SEEDS)), 450)


def test_more_episodes_than_are_prepared_and_chance_are_those_of_numpy() -> None:
    coin, action = Coin(), torch.zeros(len(SEEDS), 1)
    first, second = ArraySimulation(coin, len(SEEDS)), TensorSimulation(coin, len(SEEDS), "cpu")
    assert torch.equal(first.reset(SEEDS)["observation"], second.reset(SEEDS)["observation"])
    for _ in range(6 * AHEAD):
        mine, other = first.step(action), second.step(action)
        assert torch.equal(mine[0]["observation"], other[0]["observation"])
        assert all(torch.equal(one, two) for one, two in zip(mine[1:4], other[1:4], strict=True))
    assert int(second.snapshot()["episode"].min()) > AHEAD


@by_task
def test_a_snapshot_continues_bitwise(task: SteppedTask) -> None:
    first, second = (task.on("cpu").simulate(len(SEEDS)) for _ in range(2))
    context = first.reset(SEEDS)
    for _ in range(37):
        context = first.step(task.expert(context))[0]
    second.restore(first.snapshot())
    for _ in range(300):
        action = task.expert(context)
        context, *mine = first.step(action)
        other, *rest = second.step(action)
        assert torch.equal(context["observation"], other["observation"])
        assert all(torch.equal(one, two) for one, two in zip(mine[:3], rest[:3], strict=True))


def test_states_are_placed_at_the_beginning_of_their_episodes() -> None:
    simulation = TensorSimulation(Coin(), 5, "cpu")
    for _ in range(3):
        simulation.step(torch.zeros(5, 1))
    states = torch.tensor([[9.0, 7.0], [8.0, 6.0]])
    context = simulation.place(torch.tensor([1, 4]), states)["observation"]
    assert torch.equal(context[[1, 4]], states.T)
    kept = simulation.snapshot()
    assert kept["elapsed"][[1, 4]].tolist() == [0, 0]
    assert not bool(kept["ended"][[1, 4]].any())


def test_a_simulation_names_its_device_and_numpys_has_none() -> None:
    assert isinstance(pendulum().on("cpu").simulate(2), DeviceSimulation)
    assert not isinstance(pendulum().simulate(2), DeviceSimulation)


def test_what_only_the_cpu_can_simulate_is_not_portable() -> None:
    for task in (with_frames(cartpole(), 3), replace(cartpole(), on_device=None)):
        assert not task.is_portable
        with pytest.raises(AssayError, match=r"on the CPU\. Use --device cpu"):
            task.on("cpu")


def test_sizes_are_checked() -> None:
    simulation = TensorSimulation(Coin(), 3, "cpu")
    with pytest.raises(AssayError, match="2 seeds for 3 instances"):
        simulation.reset(np.arange(2))
    with pytest.raises(AssayError, match="2 actions for 3 instances"):
        simulation.step(torch.zeros(2, 1))
    with pytest.raises(AssayError, match="the snapshot has 4 instances"):
        simulation.restore(TensorSimulation(Coin(), 4, "cpu").snapshot())


def test_totals_where_episodes_end_are_the_same_with_and_without_indices() -> None:
    drawn = torch.Generator().manual_seed(1)
    counted, over = torch.rand(6, 9, 2, generator=drawn).double(), torch.rand(6, 9, generator=drawn) < 0.3
    one, other = torch.rand(6, 2, generator=drawn).double().repeat(2, 1, 1).unbind()
    found = totals_at_ends(counted.numpy(), over.numpy(), one.numpy())
    assert torch.equal(torch.from_numpy(found), totals_at_ends_on_device(counted, over, other))
    assert torch.equal(one, other)
    assert found.any()


@dataclass(frozen=True)
class Leaking(Coin):
    """A coin that has lost two episodes in every step."""

    count: list[int] = field(default_factory=lambda: [0])

    def step(self, state: Array, action: Array, uniform: Array) -> tuple[Array, Array, Array]:
        self.count[0] += 2
        return super().step(state, action, uniform)

    @property
    def lost(self) -> torch.Tensor:
        return torch.tensor(self.count[0])


def test_episodes_that_a_simulator_lost_are_a_metric_with_an_alarm() -> None:
    task = replace(pendulum(), make=lambda num: TensorSimulation(Leaking(), num, "cpu"))
    gather, metrics = Fragments(num_envs=10, steps=4), {}
    scene = Scene(task, actor=Scripted(lambda context: context["observation"][:, :1]), metrics=metrics)
    gather(scene, gather.init(scene))
    assert metrics["lost_worlds"] == [(8.0, 40.0)]
    seen = [Moment(None, Progress(), None, None, {"lost_worlds": share}) for share in (0.2, 1e-4)]
    assert ["not finite" in alarm.message for alarm in FINITE_WORLDS.updated(seen[0], {})] == [True]
    assert FINITE_WORLDS.updated(seen[1], {}) == []
    assert FINITE_WORLDS in STANDARD
    assert TensorSimulation(Coin(), 2, "cpu").lost is None
