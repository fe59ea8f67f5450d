"""Action masks of environments that are stepped together: Gymnasium's vector environments, EnvPool, PettingZoo."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw, Need
from assay.core.spaces import MASK, num_options
from assay.engine.loop import Loop
from assay.parts.targets.one_step import DoubleQ
from assay.recipes.presets import CONTROL
from assay.runs import catalogue
from assay.runs.catalogue import find_method
from assay.tasks.adapters.gymnasium import environment_task, gymnasium_task
from assay.tasks.adapters.gymnasium_vector import FromVectorEnv
from assay.tasks.adapters.pettingzoo import ParallelGame, parallel_game
from assay.tasks.control.stepping import SteppedTask

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces
LENGTH = 6


class Base(gymnasium.Env):  # type: ignore[name-defined]
    """Six options, two of them allowed in a state: the larger of them pays. A forbidden one is an error."""

    max_episode_steps = LENGTH
    action_space = spaces.Discrete(6)
    observation_space = spaces.Box(0.0, 1.0, (6,), np.float32)

    def mask(self) -> np.ndarray:
        return np.isin(np.arange(6), self.pair).astype(np.int8)

    def begin(self) -> None:
        self.pair = self.np_random.choice(6, 2, replace=False)

    def pay(self, action: Any) -> float:
        assert action in self.pair, f"{action} is forbidden, {self.pair} are allowed"
        return float(action == self.pair.max())

    def shown(self) -> tuple[Any, dict[str, Any]]:
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.begin()
        return self.shown()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        paid = self.pay(action)
        self.time += 1
        self.begin()
        seen, info = self.shown()
        return seen, paid, self.time == LENGTH, False, info


class InObservation(Base):
    observation_space = spaces.Dict(action_mask=spaces.MultiBinary(6), seen=Base.observation_space)

    def shown(self) -> tuple[Any, dict[str, Any]]:
        return {MASK: self.mask(), "seen": self.mask().astype(np.float32)}, {}


class InInfo(Base):
    def shown(self) -> tuple[Any, dict[str, Any]]:
        return self.mask().astype(np.float32), {MASK: self.mask()}


class ByMethod(Base):
    def shown(self) -> tuple[Any, dict[str, Any]]:
        return self.mask().astype(np.float32), {}

    def action_masks(self) -> np.ndarray:
        return self.mask().astype(bool)


class Several(Base):
    """Two choices of 9 and 8 options, one of each is allowed; the mask is given as two lists."""

    action_space = spaces.MultiDiscrete([9, 8])
    observation_space = spaces.Box(0.0, 1.0, (17,), np.float32)

    def begin(self) -> None:
        self.pair = np.array([self.np_random.integers(9), self.np_random.integers(8)])

    def pay(self, action: Any) -> float:
        assert (action == self.pair).all(), f"{action} is forbidden, {self.pair} is allowed"
        return 1.0

    def shown(self) -> tuple[Any, dict[str, Any]]:
        masks = [np.eye(9, dtype=np.int8)[self.pair[0]].tolist(), np.eye(8, dtype=np.int8)[self.pair[1]].tolist()]
        return np.concatenate(masks).astype(np.float32), {MASK: masks}


KINDS = {one.__name__: one for one in (InObservation, InInfo, ByMethod, Several)}


# ---------------------------------------------------------------------------------------------------- the adapters
def vector_task(kind: str, parallel: bool = False) -> SteppedTask:
    """The kind in one process as a VectorEnv, or, with `parallel`, in one process each."""
    alone, build = environment_task(kind, KINDS[kind], tried=False), gymnasium.vector.SyncVectorEnv
    build = gymnasium.vector.AsyncVectorEnv if parallel else build
    return SteppedTask(kind, alone.spec, lambda num: FromVectorEnv(build([KINDS[kind]] * num), masked=True))


class Pool:
    """An environment behind EnvPool's calls: each entry has a first axis for the one instance that answers."""

    config = {"max_episode_steps": LENGTH}

    def __init__(self, kind: str, num_envs: int, seed: list[int]) -> None:
        self.envs = [KINDS[kind]() for _ in range(num_envs)]
        self.seed, self.answers, self.over = seed, list[Any](), [True] * num_envs
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space

    def async_reset(self) -> None:
        self.send(np.zeros(len(self.envs), int), np.arange(len(self.envs)))

    def send(self, actions: np.ndarray, rows: np.ndarray) -> None:
        for action, row in zip(actions, rows, strict=True):
            if self.over[row]:
                seen, info = self.envs[row].reset(seed=self.seed[row])
                self.seed[row] += 1000
                found = (0.0, False, False)
            else:
                seen, *found, info = self.envs[row].step(action)
            self.over[row] = found[1] or found[2]
            seen = {name: part[None] for name, part in seen.items()} if isinstance(seen, dict) else seen[None]
            info = {name: np.hstack(part)[None] for name, part in info.items()}
            self.answers.append((seen, *(np.array([value]) for value in found), {"env_id": np.array([row]), **info}))

    def recv(self) -> Any:
        return self.answers.pop()


def pool_task(kind: str, patch: pytest.MonkeyPatch) -> SteppedTask:
    specs = {kind: ("envpool.toy",)}
    package = SimpleNamespace(
        make=lambda id, env_type, num_envs, batch_size, seed: Pool(id, num_envs, list(seed)),
        list_all_envs=lambda: list(specs),
        registration=SimpleNamespace(registry=SimpleNamespace(specs=specs)),
    )
    patch.setitem(sys.modules, "envpool", package)
    found = catalogue.find_task(f"envpool:{kind}")
    assert isinstance(found, SteppedTask)
    return replace(found, preset="classic")


class Table:
    """A parallel game: two agents, each in an environment of its own; the second one leaves after three steps."""

    possible_agents = ("a", "b")

    def __init__(self, kind: type[Base]) -> None:
        self.inside = {agent: kind() for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.inside[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self.inside[agent].action_space

    def reset(self, seed: int = 0, options: Any = None) -> tuple[Any, Any]:
        answers = {agent: env.reset(seed=seed + place) for place, (agent, env) in enumerate(self.inside.items())}
        return {agent: answer[0] for agent, answer in answers.items()}, {
            agent: answer[1] for agent, answer in answers.items()
        }

    def step(self, actions: dict[str, Any]) -> Any:
        found = {agent: self.inside[agent].step(action) for agent, action in actions.items()}
        seen, paid, ended, truncated, info = (
            {agent: answer[place] for agent, answer in found.items()} for place in range(5)
        )
        left = {agent: ends or (agent == "b" and self.inside["b"].time == 3) for agent, ends in ended.items()}
        return seen, paid, left, truncated, info

    def close(self) -> None:
        """Has nothing open."""


class Asked(Table):
    """The masks of all agents by one method of the game."""

    def action_masks(self) -> dict[str, np.ndarray]:
        return {agent: env.mask() for agent, env in self.inside.items()}


def game_task(kind: str) -> ParallelGame:
    return parallel_game(kind, lambda: (Asked if kind == "ByMethod" else Table)(KINDS[kind]))


# ---------------------------------------------------------------------------------------------------- laws of each
TASKS: dict[str, Callable[[str, pytest.MonkeyPatch], Any]] = {
    "vector": lambda kind, patch: vector_task(kind),
    "envpool": pool_task,
    "pettingzoo": lambda kind, patch: game_task(kind),
}
CASES = [(where, kind) for where in TASKS for kind in KINDS if (where, kind) != ("envpool", "ByMethod")]
"""EnvPool has no Python methods."""


def taken(action: torch.Tensor) -> list[torch.Tensor]:
    """The options of a recorded action, as places in the mask."""
    return [action] if action.dim() == 2 else [action[..., 0], 9 + action[..., 1]]


TRAINED = [(where, kind, "grpo") for where, kind in CASES] + [
    (where, kind, method)
    for where, kind in CASES
    for method in ("ppo", "dqn")
    if where != "pettingzoo" and (method, kind) != ("dqn", "Several")
]
"""Games are played whole, and dqn takes one choice."""


@pytest.mark.parametrize(("where", "kind", "method"), TRAINED)
def test_methods_train_without_a_forbidden_action(
    where: str, kind: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environments raise for one. What was recorded for it, and what the trained policy gives it, is nothing."""
    task = TASKS[where](kind, monkeypatch)
    assert task.spec.masked
    small = {"grpo": {"num_starts": 2, "group_size": 4}, "ppo": {"num_envs": 2}, "dqn": {"num_envs": 2}}[method]
    loop = Loop(catalogue.recipe_for(method, task, small), task, seed=0, num_steps=2)
    loop.step()
    loop.step()
    record = task.play(loop.actor, np.arange(5), np.zeros(5, int), Draw(1), split=0, greedy=False)
    allowed, mask = record.context[MASK], record.mask
    assert allowed.shape == (*mask.shape, num_options(task.spec.action))
    chosen = taken(record.action)
    assert all(bool(allowed.gather(2, one.unsqueeze(2)).squeeze(2)[mask].all()) for one in chosen)


@pytest.mark.parametrize(("where", "kind"), CASES)
def test_probabilities_entropies_and_gradients_of_forbidden_options_are_zero(
    where: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acting, what is recorded and what is computed again agree with the softmax over the allowed options alone."""
    task = TASKS[where](kind, monkeypatch)
    actor: Any = find_method("ppo")[1].recipe(CONTROL).actor.build(task.spec)
    record = task.play(actor, np.arange(4), np.zeros(4, int), Draw(0), split=0, greedy=False)
    mask, allowed = record.mask, record.context[MASK]
    found = actor.score(record, frozenset({Need.ENTROPY}))
    assert torch.allclose(found.logp[mask], record.logp[mask], atol=1e-5)
    if kind == "Several":
        assert float(found.entropy[mask].detach().abs().max()) == 0.0, "one option of each choice is left"
        return
    logits = actor.logits({name: value[mask] for name, value in record.context.items()})
    logits.retain_grad()
    prob, left = logits.softmax(-1), allowed[mask]
    assert bool((prob[~left] == 0).all())
    assert bool((prob[left] > 0).all())
    alone = prob[left].view(-1, 2)
    entropy = -(alone * alone.log()).sum(1)
    assert torch.allclose(found.entropy[mask], entropy, atol=1e-5)


@pytest.mark.parametrize(("where", "kind"), [case for case in CASES if case[1] != "Several"])
def test_the_target_of_a_value_is_the_best_allowed_option_of_the_next_state(
    where: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TASKS[where](kind, monkeypatch)
    actor: Any = find_method("dqn")[1].recipe(CONTROL).actor.build(task.spec)
    record = task.play(actor, np.arange(4), np.zeros(4, int), Draw(0), split=0, greedy=False)
    view: Any = SimpleNamespace(model=lambda name: actor)
    now, after = record.now, record.after
    outputs = actor.outputs(after.context)
    best = outputs.masked_fill(~after.context[MASK], -torch.inf).amax(-1)
    assert bool((best < outputs.amax(-1)).any()), "a forbidden option is the largest somewhere"
    expected = now.reward + 0.9 * best * ~now.terminal
    assert torch.allclose(DoubleQ(0.9)(record, view)[now.mask], expected[now.mask])


# ---------------------------------------------------------------------------------------------------- what is refused
class Last:
    """Takes the last option, whatever the mask says."""

    num_draws = 1

    def act(self, context: Any, uniform: Any) -> tuple[torch.Tensor, torch.Tensor]:
        num = len(context["observation"])
        return torch.full((num,), 5), torch.zeros(num)


@pytest.mark.parametrize("where", list(TASKS))
def test_a_policy_that_does_not_read_masks_is_refused_at_its_first_forbidden_action(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TASKS[where]("InInfo", monkeypatch)
    with pytest.raises(AssayError, match=r"action 5 was chosen, which the mask forbids\. .*Use a method whose actor"):
        task.play(Last(), np.arange(8), np.zeros(8, int), Draw(0), split=0, greedy=False)


def test_instances_in_processes_pass_their_masks_on() -> None:
    for kind in ("ByMethod", "InInfo"):
        one, other = (vector_task(kind, parallel).simulate(3) for parallel in (False, True))
        seen = [simulation.reset(np.arange(3)) for simulation in (one, other)]
        for _ in range(LENGTH + 3):
            assert torch.equal(seen[0][MASK], seen[1][MASK])
            assert torch.equal(seen[0]["observation"].bool(), seen[0][MASK])
            action = seen[0][MASK].float().argmax(1)
            seen = [simulation.step(action)[0] for simulation in (one, other)]
        assert isinstance(other, FromVectorEnv)
        other.envs.close()


def test_a_pool_with_masks_is_restored_by_its_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    task = pool_task("InInfo", monkeypatch)
    ours, theirs = task.simulate(3), task.simulate(3)
    seen = ours.reset(np.array([4, 5, 6]))
    for _ in range(LENGTH + 3):
        seen = ours.step(seen[MASK].float().argmax(1))[0]
    theirs.restore(ours.snapshot())
    following = [simulation.step(seen[MASK].float().argmax(1))[0] for simulation in (ours, theirs)]
    assert torch.equal(following[0][MASK], following[1][MASK])


def test_random_opponents_take_allowed_actions() -> None:
    """The games raise for another one."""
    for kind in KINDS:
        task = game_task(kind)
        policy = find_method("grpo")[1].recipe(CONTROL).actor.build(task.spec)
        rows = task.play_against(policy, np.arange(6), np.zeros(6, int), Draw(0), player=1, split=0)
        assert rows.mask.sum(1).tolist() == [3] * 6


class Forgets(InInfo):
    """Reports no mask in its third step."""

    def shown(self) -> tuple[Any, dict[str, Any]]:
        seen, info = super().shown()
        return seen, {} if self.time == 3 else info


def test_an_instance_that_forgets_its_mask_is_named() -> None:
    class Mixed(InInfo):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            seen, info = super().reset(seed=seed)
            return seen, info if self.reports else {}

    reports, silent = type("Reports", (Mixed,), {"reports": True}), type("Silent", (Mixed,), {"reports": False})
    envs = FromVectorEnv(gymnasium.vector.SyncVectorEnv([reports, silent]))
    with pytest.raises(AssayError, match=r"info\['action_mask'\] of instance 1 is missing.*Report it in every step"):
        envs.reset(np.arange(2))
    late = FromVectorEnv(gymnasium.vector.SyncVectorEnv([Forgets] * 2))
    seen = late.reset(np.arange(2))
    for _ in range(2):
        seen = late.step(seen[MASK].float().argmax(1))[0]
    with pytest.raises(AssayError, match=r"info\['action_mask'\] is missing"):
        late.step(seen[MASK].float().argmax(1))


def test_agents_of_a_game_all_have_masks_or_none() -> None:
    class Uneven(Table):
        def reset(self, seed: int = 0, options: Any = None) -> Any:
            seen, infos = super().reset(seed)
            return seen, {**infos, "b": {}}

    with pytest.raises(AssayError, match=r"agent 'b' reports no action mask, though another one does\. Report one for"):
        parallel_game("uneven", lambda: Uneven(InInfo))


def test_a_vector_implementation_without_the_masks_of_its_environment_is_refused() -> None:
    class Silent(Base):
        def pay(self, action: Any) -> float:
            return 0.0

        def shown(self) -> Any:
            return self.mask().astype(np.float32), {}

    def many(kind: type[Base]) -> Any:
        return lambda num_envs, **settings: gymnasium.vector.SyncVectorEnv([kind] * num_envs)

    for id, kind in (("Silent-v0", Silent), ("Masked-v0", InInfo)):
        gymnasium.register(id, InInfo, vector_entry_point=many(kind), max_episode_steps=LENGTH)
    try:
        masked = gymnasium_task("Masked-v0", vector=True)
        assert masked.spec.masked
        assert MASK in masked.simulate(2).reset(np.arange(2))
        with pytest.raises(AssayError, match="the vector implementation reports no action masks"):
            gymnasium_task("Silent-v0", vector=True).simulate(2).reset(np.arange(2))
    finally:
        for id in ("Silent-v0", "Masked-v0"):
            gymnasium.registry.pop(id)
