"""MuJoCo Warp's worlds against Gymnasium's environments on the same states. The first compilation takes a minute."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.runs.catalogue import find_task
from assay.tasks.adapters import warp
from assay.tasks.adapters.warp_rules import RULES, Pose
from tests.optional import Optional

gymnasium = Optional("gymnasium", "the extra 'control' is not installed")
has_warp = importlib.util.find_spec("mujoco_warp") is not None and "ASSAY_TEST_WARP" in os.environ
needs_warp = pytest.mark.skipif(not has_warp, reason="set ASSAY_TEST_WARP with the extra 'warp': it compiles a minute")
WORLDS = 3


def state_of(environment: Any, reads: tuple[str, ...]) -> np.ndarray:
    """The numbers of a state of ours in an environment of Gymnasium."""
    data = environment.unwrapped.data
    mass = environment.unwrapped.model.body_mass
    more = {
        "torso": lambda: data.xpos[1, :1],
        "fingertip": lambda: data.body("fingertip").xpos,
        "target": lambda: data.body("target").xpos,
        "mass_centre": lambda: data.xipos[:, :1].T @ mass / mass.sum(),
        "cinert": lambda: data.cinert.ravel(),
        "cvel": lambda: data.cvel.ravel(),
        "qfrc_actuator": lambda: data.qfrc_actuator,
        "cfrc_ext": lambda: data.cfrc_ext.ravel(),
    }
    return np.concatenate([data.qpos, data.qvel, data.qacc_warmstart, *(more[name]() for name in reads)])


def followed(name: str, decisions: int, **options: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Differences of observations and of rewards, in units of 1 + size, in decisions from the states of Gymnasium with
    these options of physics, and how many ends there were; ends must be equal."""
    simulation = find_task(f"warp:{name}").on("cpu").simulate(WORLDS)
    made = [gymnasium.make(f"{name}-v5") for _ in range(WORLDS)]
    seen = [one.reset(seed=place)[0] for place, one in enumerate(made)]
    for one in made:
        for option, value in options.items():
            setattr(one.unwrapped.model.opt, option, value)
    drawn, reads, ends = np.random.default_rng(0), RULES[name].reads, 0
    gaps: tuple[list[float], list[float]] = ([], [])
    for _ in range(decisions):
        states = np.array([state_of(one, reads) for one in made]).T
        shown = simulation.place(torch.arange(WORLDS), torch.tensor(states, dtype=torch.float32))["observation"]
        np.testing.assert_allclose(shown.numpy(), np.array(seen), rtol=1e-5, atol=1e-5)
        high = made[0].action_space.high
        action = (drawn.uniform(-1, 1, (WORLDS, len(high))) * high).astype(np.float32)
        context, reward, terminal, truncated, _ = simulation.step(torch.from_numpy(action))
        for place, one in enumerate(made):
            seen[place], paid, ended, _, _ = one.step(action[place])
            gap = np.abs(context["observation"][place].numpy() - seen[place]) / (1 + np.abs(seen[place]))
            gaps[0].append(float(gap.max()))
            gaps[1].append(abs(float(reward[place]) - paid) / (1 + abs(paid)))
            assert bool(terminal[place]) is bool(ended)
            if ended:
                seen[place], ends = one.reset()[0], ends + 1
    assert not bool(truncated.any())
    return *map(np.array, gaps), ends


@needs_warp
@pytest.mark.parametrize(
    ("name", "ends"),
    [("HalfCheetah", 0), ("Hopper", 1), ("Walker2d", 1), ("InvertedPendulum", 5), ("Reacher", 0), ("Humanoid", 1)],
)
def test_decisions_are_gymnasiums_on_the_same_states(name: str, ends: int) -> None:
    newton = {"solver": 2} if name == "Humanoid" else {}  # MuJoCo Warp does not have its own
    observed, rewarded, ended = followed(name, 60, **newton)
    assert np.quantile(observed, 0.95) <= 1e-4
    assert observed.max() <= 2e-3
    assert rewarded.max() <= 1e-4
    assert ended >= ends


@needs_warp
def test_ants_decisions_are_gymnasiums_where_friction_has_no_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    # MuJoCo turns the pyramid of friction of a steep leg along the leg, MuJoCo Warp along the world's y: with cones
    # there is no difference.
    plain = warp.model_of

    def with_cones(rules: Any, name: str) -> Any:
        model = plain(rules, name)
        model.opt.cone = 1
        return model

    monkeypatch.setattr(warp, "model_of", with_cones)
    warp.physics_of.cache_clear()
    observed, rewarded, _ = followed("Ant", 40, cone=1)
    warp.physics_of.cache_clear()
    assert np.quantile(observed, 0.95) <= 1e-3
    assert np.quantile(rewarded, 0.95) <= 1e-4


@needs_warp
@pytest.mark.parametrize("name", list(RULES))
def test_a_start_is_observed_as_gymnasium_observes_it(name: str) -> None:
    simulation, environment = find_task(f"warp:{name}").on("cpu").simulate(2), gymnasium.make(f"{name}-v5")
    environment.reset(seed=0)
    seen = simulation.reset(np.arange(2))["observation"]
    for _ in range(2):
        number, state = simulation.dynamics.physics.sizes(), simulation.snapshot()["state"].double().numpy()
        inner = environment.unwrapped
        inner.data.cfrc_ext[:] = 0
        inner.set_state(state[: number[0], 1], state[number[0] : sum(number), 1])
        np.testing.assert_allclose(seen[1].numpy(), inner._get_obs(), rtol=1e-5, atol=1e-5)
        simulation.step(torch.zeros(2, simulation.dynamics.physics.inputs[3].shape[1]))
        seen = simulation.reset(np.arange(5, 7))["observation"]


@needs_warp
def test_starts_have_gymnasiums_noise_and_a_snapshot_continues_bitwise() -> None:
    task = find_task("warp:HalfCheetah")
    first, second = (task.on("cpu").simulate(64) for _ in range(2))
    start = first.reset(np.arange(64))["observation"]
    assert 0.09 < float(start[:, :8].abs().max()) <= 0.1
    assert 0.08 < float(start[:, 8:].std()) < 0.12
    action = torch.full((64, 6), 0.3)
    for _ in range(5):
        first.step(action)
    second.restore(first.snapshot())
    for _ in range(3):
        mine, other = first.step(action), second.step(action)
        assert torch.equal(mine[0]["observation"], other[0]["observation"])
        assert torch.equal(mine[1], other[1])


@needs_warp
def test_a_world_that_is_not_finite_ends_is_counted_and_begins_again() -> None:
    simulation = find_task("warp:InvertedPendulum").on("cpu").simulate(4)
    state = simulation.snapshot()["state"][:, :1].clone()
    state[0] = torch.nan
    before = int(simulation.dynamics.lost)
    simulation.place(torch.tensor([2]), state)
    context, reward, terminal, _, _ = simulation.step(torch.zeros(4, 1))
    assert terminal.tolist() == [False, False, True, False]
    assert reward[2] == 0
    assert bool(context["observation"].isfinite().all())
    assert int(simulation.dynamics.lost) == before + 1
    context, *_ = simulation.step(torch.zeros(4, 1))
    assert 0 < float(context["observation"][2].abs().max()) <= 0.01


def test_rewards_of_a_runner_are_the_formula() -> None:
    rules = RULES["Hopper"]
    after = Pose(torch.tensor([[0.02, 0.02], [1.2, 0.6], [0.1, 0.1], [0.0, 0.0]]), torch.zeros(4, 2), torch.zeros(0, 2))
    reward, ended = rules.outcome(after, after, torch.tensor([[0.5, 1.0], [0.5, 0.0]]), 0.008)
    torch.testing.assert_close(reward, torch.tensor([2.5 + 1.0 - 5e-4, 2.5 - 1e-3]))
    assert ended.tolist() == [False, True]


def test_positions_that_do_not_matter_are_not_observed() -> None:
    pose = Pose(torch.arange(9.0).view(9, 1), torch.full((9, 1), 30.0), torch.zeros(0, 1))
    assert RULES["HalfCheetah"].observe(pose)[:8, 0].tolist() == list(range(1, 9))
    assert float(RULES["Walker2d"].observe(pose).max()) == 10.0
    assert float(RULES["HalfCheetah"].observe(pose).max()) == 30.0


def test_a_missing_package_and_an_unknown_name_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssayError, match=r"there is no task 'warp:Halfcheeta'.*--task warp:HalfCheetah"):
        find_task("warp:Halfcheeta")
    import sys

    monkeypatch.setitem(sys.modules, "warp", None)
    with pytest.raises(AssayError, match=r"warp is needed for task 'warp:Ant'.*pip install 'assay\[warp\]'"):
        find_task("warp:Ant")
    assert Path(warp.__file__).exists()
