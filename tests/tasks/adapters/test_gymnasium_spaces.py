"""Spaces of Gymnasium as contexts and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.spaces import Box, Discrete, Image, MultiDiscrete
from assay.engine.memory import check_memory, estimates
from assay.models.bodies.convolution import SMALL, Convolution, Convolved
from assay.runs.plan import make_plan
from assay.runs.progress import Mode
from assay.runs.run import train
from assay.tasks.adapters.gymnasium import environment_task
from assay.tasks.adapters.gymnasium_spaces import JOINT, port_of

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces
UNIT = spaces.Box(-1.0, 1.0, (2, 2), np.float32)


@pytest.mark.parametrize(
    ("space", "expected", "value", "row"),
    [
        (UNIT, Box((-1.0,) * 4, (1.0,) * 4), np.eye(2, dtype=np.float32), [1, 0, 0, 1]),
        (spaces.MultiBinary(3), Box((0.0,) * 3, (1.0,) * 3), np.array([1, 0, 1]), [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), Box((0.0,) * 5, (1.0,) * 5), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.Tuple((spaces.Discrete(2, start=5), UNIT)), Box((0.0,) * 2 + (-1.0,) * 4, (1.0,) * 6),
         (6, np.zeros((2, 2))), [0, 1, 0, 0, 0, 0]),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})}), Discrete(2), {"a": {"b": 1}}, 1),
    ],
)  # fmt: skip
def test_observations_become_vectors(space: Any, expected: Any, value: Any, row: Any) -> None:
    port = port_of(space, spaces.Discrete(2), "mine")
    assert port.observation == expected
    assert [one.tolist() for one in port.row(value).values()] == [row]


def test_a_numbered_state_is_one_hot_where_a_table_cannot_be_used() -> None:
    state = spaces.Discrete(3, start=4)
    assert port_of(state, spaces.Discrete(2), "mine").observation == Discrete(3)
    for port in (port_of(state, spaces.Discrete(2), "mine", one_hot=True), port_of(state, UNIT, "mine")):
        assert port.row(5)["observation"].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((6, 5, 3), (3, 6, 5)), ((4, 6, 5), (4, 6, 5)), ((6, 5), (1, 6, 5)), ((4, 4, 4), (4, 4, 4))],
)
def test_images_have_their_channels_first(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    port = port_of(spaces.Box(0, 9, shape, np.uint8), spaces.Discrete(2), "mine")
    assert port.observation == Image(*expected, top=9)
    image = port.row(np.ones(shape, np.uint8))["image"]
    assert image.shape == expected
    assert image.dtype == np.uint8


def test_actions_are_one_choice_if_there_are_few_and_several_if_not() -> None:
    few = port_of(UNIT, spaces.MultiDiscrete([3, 2]), "mine")
    assert few.action == Discrete(6)
    assert [one.tolist() for one in few.actions(torch.tensor([0, 1, 5]))] == [[0, 0], [0, 1], [2, 1]]
    many = port_of(UNIT, spaces.MultiBinary(9), "mine")
    assert many.action == MultiDiscrete((2,) * 9)
    assert JOINT < 2**9
    assert many.actions(torch.ones(1, 9, dtype=torch.long))[0].tolist() == [1] * 9
    both = port_of(UNIT, spaces.Dict({"a": spaces.Box(-1, 1, (1,), np.float32), "b": UNIT}), "mine")
    action = both.actions(torch.full((1, 5), 3.0))[0]
    assert (action["a"].tolist(), action["b"].tolist()) == ([1.0], [[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(AssayError, match="action_space mixes Box and discrete parts"):
        port_of(UNIT, spaces.Tuple((UNIT, spaces.Discrete(2))), "mine")


# ---------------------------------------------------------------------------------------------------- images
class Spot(gymnasium.Env):  # type: ignore[misc]
    """The reward is 1 where a bright column is left of the middle and the action 0, or right of it and 1."""

    observation_space = spaces.Box(0, 255, (6, 6, 1), np.uint8)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        self.place = int(self.np_random.integers(6))
        image = np.zeros((6, 6, 1), np.uint8)
        image[:, self.place] = 255
        return image

    def chosen(self, action: Any) -> int:
        return int(action)

    def step(self, action: Any) -> Any:
        self.time += 1
        reward = float(self.chosen(action) == int(self.place >= 3))
        return self.seen(), reward, False, self.time >= 8, {}


class Steered(Spot):
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def chosen(self, action: Any) -> int:
        return int(action[0] > 0)


class Switches(Spot):
    action_space = spaces.MultiBinary(7)

    def chosen(self, action: Any) -> int:
        return int(action[0])


@pytest.mark.parametrize(
    ("method", "make", "steps", "settings"),
    [
        ("ppo", Spot, 8, {"rollout.steps": 32, "policy.optimizer.learning_rate": 3e-3}),
        ("ppo", Switches, 2, {"rollout.steps": 8}),
        ("a2c", Spot, 2, {"rollout.steps": 8}),
        ("dqn", Spot, 3, {"rollout.steps": 8, "source.warmup": 16, "source.updates": 2, "source.batch": 8}),
        ("sac", Steered, 3, {"rollout.steps": 8, "source.warmup": 8, "source.updates": 2, "source.batch": 8}),
        ("td3", Steered, 3, {"rollout.steps": 8, "source.warmup": 8, "source.updates": 2, "source.batch": 8}),
    ],
)
def test_methods_train_on_images(method: str, make: type, steps: int, settings: dict[str, Any], tmp_path: Path) -> None:
    task = environment_task("spot", make, 8)
    run = train(method, task, steps=steps, settings=settings, evaluations=0, out=tmp_path, mode=Mode.SILENT)
    assert np.isfinite(run.after.value)
    if steps > 3:
        assert run.after.value > 6.0, "of 8; chance is 4"


def test_images_stay_bytes_and_are_divided_in_the_body() -> None:
    space = Image(1, 6, 6)
    task = environment_task("spot", Spot, 8)
    context = task.simulate(2).reset(np.arange(2))
    assert task.spec.observation == space
    assert context["image"].dtype == torch.uint8
    plan = make_plan("ppo", task)
    body = plan.recipe.actor.body  # type: ignore[attr-defined]
    assert body == SMALL
    actor = plan.recipe.actor.build(task.spec)
    assert isinstance(actor.body, Convolved)
    network = actor.body.networks[0]
    half = network.see(context["image"].float() / 255.0).flatten(1)
    assert torch.equal(actor.body(context), network.read(half))


def test_a_convolution_refuses_images_below_its_filters() -> None:
    task = environment_task("spot", Spot, 8)
    with pytest.raises(AssayError, match="an image of 6 x 6 is smaller than 36 x 36"):
        Convolution().check(task.spec.observation)  # type: ignore[arg-type]


def test_the_memory_of_images_is_estimated_before_it_is_allocated() -> None:
    class Large(Spot):
        observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)

        def seen(self) -> np.ndarray:
            super().seen()
            return np.zeros((84, 84, 4), np.uint8)

    task = environment_task("large", Large, 8)
    recipe = make_plan("dqn", task, settings={"source.capacity": 10_000_000}).recipe
    replay = max(estimates(recipe, task.spec, 10**6), key=lambda one: one.bytes)
    assert replay.path == "source.capacity"
    assert 10**7 * 2 * 84 * 84 * 4 < replay.bytes < 1.01 * 10**7 * 2 * 84 * 84 * 4
    with pytest.raises(
        AssayError, match=r"not enough memory: .* for source.capacity = 10000000.*Lower source.capacity"
    ):
        check_memory(recipe, task.spec, 10**6)
