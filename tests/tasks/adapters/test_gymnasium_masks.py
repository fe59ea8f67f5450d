"""Action masks: read in three places, obeyed by every policy of discrete actions, never ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import assay
from assay.claims.laws import environment as laws
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.spaces import MASK
from assay.parts.rollouts.explore import EpsilonActor
from assay.recipes.presets import CONTROL
from assay.runs.catalogue import find_method
from assay.runs.user_code.loading import load
from assay.tasks.adapters.gymnasium import check_environment, environment_task
from assay.tasks.adapters.gymnasium_masks import Masks, read_info

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces

FILE = '''
import gymnasium, numpy as np
from gymnasium import spaces

class Base(gymnasium.Env):
    """Eight options, two of them allowed in a state: the larger of them pays. A forbidden one is an error."""
    max_episode_steps = 8
    action_space = spaces.Discrete(8)
    observation_space = spaces.Box(0.0, 1.0, (8,), np.float32)

    def mask(self):
        return np.isin(np.arange(8), self.pair).astype(np.int8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.pair = 0, self.np_random.choice(8, 2, replace=False)
        return self.shown()

    def step(self, action):
        assert action in self.pair, f"{action} is forbidden, {self.pair} are allowed"
        paid = float(action == self.pair.max())
        self.time, self.pair = self.time + 1, self.np_random.choice(8, 2, replace=False)
        shown = self.shown()
        return shown[0], paid, self.time == 8, False, shown[1]

class InObservation(Base):
    observation_space = spaces.Dict(action_mask=spaces.MultiBinary(8), seen=Base.observation_space)
    def shown(self):
        return {"action_mask": self.mask(), "seen": self.mask().astype(np.float32)}, {}

class InInfo(Base):
    def shown(self):
        return self.mask().astype(np.float32), {"action_mask": self.mask()}

class ByMethod(Base):
    def shown(self):
        return self.mask().astype(np.float32), {}
    def action_masks(self):
        return self.mask().astype(bool)

class Several(gymnasium.Env):
    """Two choices of 9 and 8 options (too many for one numbered choice); the mask has 17 entries."""
    max_episode_steps = 4
    action_space = spaces.MultiDiscrete([9, 8])
    observation_space = spaces.Box(0.0, 1.0, (17,), np.float32)
    def shown(self):
        self.allowed = np.zeros(17, np.int8)
        self.allowed[self.np_random.integers(9)] = self.allowed[9 + self.np_random.integers(8)] = 1
        return self.allowed.astype(np.float32), {"action_mask": self.allowed}
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.shown()
    def step(self, action):
        assert self.allowed[action[0]] and self.allowed[9 + action[1]], f"{action} is forbidden"
        self.time += 1
        shown = self.shown()
        return shown[0], 1.0, self.time == 4, False, shown[1]
'''
KINDS = ("InObservation", "InInfo", "ByMethod")


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("masks") / "masked.py"
    file.write_text(FILE)
    return file


@pytest.fixture(scope="module")
def made(code: Path) -> dict[str, Any]:
    return vars(load(str(code)))


@pytest.mark.parametrize("kind", [*KINDS, "Several"])
def test_masks_are_found_and_are_no_part_of_the_observation(made: dict[str, Any], kind: str) -> None:
    task = environment_task(kind, made[kind], tried=False)
    context = task.simulate(3).reset(np.arange(3))
    assert task.spec.masked
    assert context[MASK].dtype == torch.bool
    assert torch.equal(context["observation"].bool(), context[MASK]), "the observation shows the mask, and once"
    assert not check_environment(made[kind], 40)


@pytest.mark.parametrize(
    ("kind", "method"), [*((kind, "ppo") for kind in KINDS), ("ByMethod", "dqn"), ("Several", "ppo")]
)
def test_a_policy_trains_without_a_forbidden_action(code: Path, tmp_path: Path, kind: str, method: str) -> None:
    """The environment raises for one; half of the right choices would pay a policy that does not learn."""
    run = assay.train(method, f"{code}:{kind}", steps=3, preset="classic", out=tmp_path / "run")
    assert run.curves[-1]["step"] == 3
    context = run.task.simulate(16).reset(np.arange(16))
    uniform = torch.rand(16, run.policy.num_draws, generator=torch.Generator().manual_seed(0))
    for draws in (None, uniform):
        action = run.policy.act(context, draws)[0]
        options = [action] if action.dim() == 1 else [action[:, 0], 9 + action[:, 1]]
        assert all(bool(context[MASK].gather(1, one[:, None]).all()) for one in options)


def test_a_forbidden_option_has_probability_zero_and_no_gradient(made: dict[str, Any]) -> None:
    task = environment_task("InInfo", made["InInfo"], tried=False)
    actor = find_method("ppo")[1].recipe(CONTROL).actor.build(task.spec)
    context = task.simulate(5).reset(np.arange(5))
    prob = actor.logits(context).softmax(-1)
    assert bool((prob[~context[MASK]] == 0).all())
    assert torch.allclose(prob.sum(-1), torch.ones(5))


def test_exploration_draws_allowed_actions_alone_and_uniformly() -> None:
    class Actor:
        num_actions = 4

        def act(self, context: Any, uniform: Any) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.full((8,), 3), torch.zeros(8)

    context = {MASK: torch.tensor([[False, True, False, True]]).expand(8, 4)}
    uniform = torch.stack([torch.zeros(8), torch.linspace(0.05, 0.95, 8)], 1)
    action, logp = EpsilonActor(Actor(), 0.5).act(context, uniform)
    assert action.tolist() == [1] * 4 + [3] * 4
    assert torch.allclose(logp.exp(), torch.tensor([0.25] * 4 + [0.75] * 4))


def test_a_policy_that_does_not_read_masks_is_refused_at_its_first_forbidden_action(made: dict[str, Any]) -> None:
    class Last:
        num_draws = 1

        def act(self, context: Any, uniform: Any) -> tuple[torch.Tensor, torch.Tensor]:
            num = len(context["observation"])
            return torch.full((num,), 7), torch.zeros(num)

    task = environment_task("ByMethod", made["ByMethod"], tried=False)
    with pytest.raises(
        AssayError, match=r"action 7 was chosen, which the mask forbids\. .*Use a method whose actor does"
    ):
        task.play(Last(), np.arange(8), np.zeros(8, np.int64), Draw(0), split=0, greedy=False)


def test_masks_of_one_numbered_choice_are_those_of_every_combination() -> None:
    joint = Masks(read_info, (2, 3), joint=True)
    assert joint.allowed([[1, 0], [0, 1, 1]]).tolist() == [False, True, True, False, False, False]
    assert joint.allowed([0, 0, 0, 0, 0, 1]).tolist() == [False] * 5 + [True]
    assert Masks(read_info, (2, 3), joint=False).allowed([1, 0, 0, 1, 1]).tolist() == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("raw", "match"),
    [([1, 1], "has 2 entries. Give 3"), ([0, 0, 0], "allows nothing"), ([0.5, 1, 1], "Use 0 and 1")],
)
def test_a_wrong_mask_is_refused(raw: list[float], match: str) -> None:
    masks = Masks(read_info, (3,), joint=True)
    with pytest.raises(AssayError, match=match):
        masks.allowed(raw)
    assert masks.allowed([0, 0, 0], ended=True).all(), "nothing is chosen after an end"


def test_a_deployed_policy_takes_the_mask(code: Path, tmp_path: Path) -> None:
    run = assay.train("ppo", f"{code}:ByMethod", steps=1, preset="classic", out=tmp_path / "run")
    only = np.eye(8, dtype=np.int8)[5]
    assert int(run.policy.predict(np.zeros(8, np.float32), action_mask=only)) == 5
    with pytest.raises(AssayError, match="Pass action_mask="):
        run.policy.predict(np.zeros(8, np.float32))
    run = assay.train("ppo", f"{code}:InObservation", steps=1, preset="classic", out=tmp_path / "other")
    assert int(run.policy.predict({"seen": np.zeros(8, np.float32), MASK: only})) == 5


def test_workers_pass_masks_on(made: dict[str, Any]) -> None:
    task = environment_task("InInfo", made["InInfo"], tried=False)
    alone, apart = task.simulate(4), task.with_workers(2).simulate(4)
    assert torch.equal(alone.reset(np.arange(4))[MASK], apart.reset(np.arange(4))[MASK])


def test_the_laws_of_environments_take_allowed_actions_alone(made: dict[str, Any]) -> None:
    for kind in (*KINDS, "Several"):
        broken = [one for one in laws.check_environment(made[kind]) if not one.held]
        assert [one.law for one in broken] == ["time limit"], "it ends as terminated after eight decisions, by a clock"
