"""Gymnasium's environments as tasks: ids with Discrete or Box spaces, an existing VectorEnv, an environment checker.

Axes: N instances, D observed numbers, A action dimensions. Box observations become vectors of float32, Box actions
are clipped to their bounds, Discrete ones are numbered from 0.
"""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Draw, State
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.ops.random import hashed
from assay.tasks.control.stepping import SteppedTask


# ---------------------------------------------------------------------------------------------------- spaces
def space_of(space: Any, role: str, name: str) -> Discrete | Box:
    """Returns Assay's space for a Gymnasium space; `role` and `name` are for the message."""
    spaces = require("gymnasium.spaces", "control", f"task '{name}'")
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.Box):
        low, high = (np.asarray(bound, np.float64).reshape(-1).tolist() for bound in (space.low, space.high))
        return Box(tuple(low), tuple(high))
    fix = "Wrap the environment so that it is (gymnasium.wrappers)"
    raise AssayError(f"task '{name}': its {role} space {space} is neither Discrete nor Box. {fix}")


@dataclass(frozen=True)
class Port:
    """Converts tensors to actions of an environment, and its observations to a context."""

    observation: Discrete | Box
    action: Discrete | Box
    raw_observation: Any
    raw_action: Any

    def actions(self, action: Tensor) -> Any:
        """Returns the actions for N environments: a list of integers, or an array [N, ...] within the bounds."""
        if isinstance(self.action, Discrete):
            return (action.detach().cpu() + int(self.raw_action.start)).tolist()
        values = action.detach().cpu().numpy().reshape(-1, *self.raw_action.shape)
        return values.clip(self.raw_action.low, self.raw_action.high).astype(self.raw_action.dtype)

    def idle(self) -> Any:
        """Returns one action: the first discrete one, or zeros clipped to the bounds."""
        first = torch.zeros(1, dtype=torch.long) if isinstance(self.action, Discrete) else torch.zeros(self.action.size)
        return self.actions(first)[0]

    def context(self, observations: Any) -> Context:
        """Returns the context of N observations, in memory of its own."""
        if isinstance(self.observation, Discrete):
            return {"state": torch.from_numpy(np.array(observations, np.int64) - int(self.raw_observation.start))}
        vectors = np.array(observations, np.float32).reshape(len(observations), -1)
        return {"observation": torch.from_numpy(vectors)}


def port_of(observation: Any, action: Any, name: str) -> Port:
    """Returns the port of two Gymnasium spaces."""
    return Port(space_of(observation, "observation", name), space_of(action, "action", name), observation, action)


# ---------------------------------------------------------------------------------------------------- simulations
def reset_seed(seed: int, episode: int) -> int:
    """Returns 32 bits for `env.reset`: a hash of both with the last bit of `seed`, which separates the splits."""
    return 2 * int(hashed(Draw(seed), episode) >> np.uint64(33)) + (seed & 1)


class Instances:
    """N environments of one kind, stepped one after the other in this process.

    Episode k of an instance with seed s is reset with a hash of (s, k), 32 bits, so a snapshot holds the actions since
    then and `restore` replays them. `restore` refuses an environment that is not deterministic under its seed.
    """

    def __init__(self, make: Callable[[], Any], spec: Spec, name: str, num: int) -> None:
        self.spec, self.name, self.num = spec, name, num
        self._environments = [make() for _ in range(num)]
        self._port = port_of(self._environments[0].observation_space, self._environments[0].action_space, name)
        self._ended = [False] * num
        self._taken: list[list[Any]] = [[] for _ in range(num)]
        self._seen: list[Any] = [None] * num
        self.reset(np.arange(num))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts episode 0 of every instance; without it, the seeds are 0 to N - 1."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        self._seeds = np.asarray(seeds).astype(np.int64)
        self._episode = np.zeros(self.num, np.int64)
        for row in range(self.num):
            self._begin(row)
        return self._port.context(self._seen)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Takes one decision of every instance in an episode; starts the next episode of the others."""
        if len(action) != self.num:
            raise AssayError(f"{len(action)} actions for {self.num} instances. Give one action each")
        results = np.zeros((4, self.num), np.float32)
        for row, decided in enumerate(self._port.actions(action)):
            if self._ended[row]:
                self._episode[row] += 1
                self._begin(row)
            else:
                results[:, row] = self._advance(row, decided)
        reward, terminal, truncated, cost = torch.from_numpy(results)
        costs = cost[:, None] if self.spec.num_costs else None
        return self._port.context(self._seen), reward, terminal.bool(), truncated.bool(), costs

    def snapshot(self) -> State:
        """Returns seeds, episode numbers, the actions since each reset, and the observations after them."""
        return {
            "seeds": torch.from_numpy(self._seeds.copy()),
            "episode": torch.from_numpy(self._episode.copy()),
            "taken": [torch.from_numpy(np.array(taken)) for taken in self._taken],
            "seen": dict(self._port.context(self._seen)),
        }

    def restore(self, state: State) -> None:
        """Resets every instance to its episode and replays its actions."""
        if len(state["seeds"]) != self.num:
            raise AssayError(
                f"the snapshot has {len(state['seeds'])} instances, the simulation {self.num}. Simulate as many"
            )
        self._seeds, self._episode = state["seeds"].numpy().copy(), state["episode"].numpy().copy()
        for row, taken in enumerate(state["taken"]):
            self._begin(row)
            for action in taken.tolist() if isinstance(self._port.action, Discrete) else taken.numpy().copy():
                self._advance(row, action)
        for name, seen in self._port.context(self._seen).items():
            if not torch.equal(seen, state["seen"][name].to(seen.dtype)):
                raise AssayError(f"task '{self.name}' is not deterministic under its seed. It cannot be resumed")

    def _begin(self, row: int) -> None:
        seed = reset_seed(int(self._seeds[row]), int(self._episode[row]))
        self._seen[row], _ = self._environments[row].reset(seed=seed)
        self._taken[row], self._ended[row] = [], False

    def _advance(self, row: int, action: Any) -> tuple[float, bool, bool, float]:
        self._taken[row].append(np.array(action))
        seen, reward, terminal, truncated, info = self._environments[row].step(action)
        truncated = truncated or len(self._taken[row]) >= self.spec.horizon
        self._seen[row], self._ended[row] = seen, bool(terminal or truncated)
        if "cost" in info and not self.spec.num_costs:
            raise AssayError(
                f"task '{self.name}': info['cost'] is missing in the first steps. Report it from the first step on"
            )
        return float(reward), bool(terminal), bool(truncated), float(info.get("cost", 0.0))


class FromVectorEnv:
    """A simulation around an existing VectorEnv that resets in the next step.

    Instances that share one random stream are seeded together; with SyncVectorEnv and AsyncVectorEnv each instance has
    its seed. Later episodes come from the environments' own streams, so there is no exact resume.
    """

    def __init__(self, envs: Any, num_costs: int = 0) -> None:
        vector = require("gymnasium.vector", "control", "FromVectorEnv")
        self.envs, self.num_costs, self.num = envs, num_costs, int(envs.num_envs)
        mode = envs.metadata.get("autoreset_mode")
        if mode is not vector.AutoresetMode.NEXT_STEP:
            raise AssayError(
                f"FromVectorEnv: autoreset_mode is {mode}, which steps an instance in the call that resets it. "
                "Build the VectorEnv with autoreset_mode=AutoresetMode.NEXT_STEP"
            )
        self._own_seeds = isinstance(envs.unwrapped, vector.SyncVectorEnv | vector.AsyncVectorEnv)
        self._port = port_of(envs.single_observation_space, envs.single_action_space, str(envs))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        if self._own_seeds:
            seen, _ = self.envs.reset(seed=[reset_seed(int(seed), 0) for seed in seeds])
            return self._port.context(seen)
        if len(np.unique(seeds)) < self.num:
            raise AssayError("instances with one random stream cannot share starts. Use gymnasium_task(id)")
        together = int(np.bitwise_xor.reduce(hashed(Draw(0), np.asarray(seeds), np.arange(self.num))) >> np.uint64(1))
        seen, _ = self.envs.reset(seed=reset_seed(together, 0))
        return self._port.context(seen)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Takes one step of all instances with the VectorEnv."""
        actions = np.asarray(self._port.actions(action))
        seen, reward, terminal, truncated, info = self.envs.step(actions)
        if "cost" in info and not self.num_costs:
            raise AssayError(
                "the environments report info['cost'], but num_costs is 0. Use FromVectorEnv(envs, num_costs=1)"
            )
        cost = torch.from_numpy(np.array(info.get("cost", np.zeros(self.num)), np.float32))[:, None]
        ends = torch.from_numpy(np.array(terminal, bool)), torch.from_numpy(np.array(truncated, bool))
        paid = torch.from_numpy(np.array(reward, np.float32))
        return self._port.context(seen), paid, *ends, cost if self.num_costs else None

    def snapshot(self) -> State:
        """Raises AssayError: the random streams are inside the VectorEnv."""
        raise AssayError("a VectorEnv cannot be resumed exactly. Use gymnasium_task(id), one environment per instance")

    def restore(self, state: State) -> None:
        """Raises AssayError, as `snapshot` does."""
        self.snapshot()


# ---------------------------------------------------------------------------------------------------- tasks
def gymnasium_task(id: str, *, vector: bool = False, horizon: int | None = None) -> SteppedTask:
    """Returns the task of a Gymnasium id; `vector` steps its own vector implementation, without exact resume.

    `horizon` replaces the time limit of the id; it is required if the id has none.
    """
    task = environment_task(id, partial(make_environment, id, horizon), horizon)
    if not vector:
        return task
    gymnasium = require("gymnasium", "control", f"task '{id}'")
    if gymnasium.spec(id).vector_entry_point is None:
        raise AssayError(f"task '{id}' has no vector implementation. Use gymnasium_task('{id}')")
    return replace(task, make=partial(make_vector, id, task.spec))


def environment_task(name: str, make: Callable[[], Any], horizon: int | None = None) -> SteppedTask:
    """Returns the task of an environment that `make` builds; a first step shows whether it reports costs."""
    environment = make()
    port = port_of(environment.observation_space, environment.action_space, name)
    limit = time_limit(environment) if horizon is None else horizon
    if limit is None:
        raise AssayError(f"task '{name}' has no time limit. Set horizon=..., the maximum decisions per episode")
    environment.reset(seed=0)
    info = environment.step(port.idle())[4]
    preset = "mujoco" if isinstance(port.action, Box) and has_mujoco(environment) else "classic"
    environment.close()
    spec = Spec(port.observation, port.action, limit, num_costs=int("cost" in info))
    return SteppedTask(name, spec, partial(Instances, make, spec, name), preset=preset)


def has_mujoco(environment: Any) -> bool:
    """Returns whether MuJoCo simulates the environment: its `model` is an MjModel, under any registered id."""
    engine = sys.modules.get("mujoco")  # an environment of MuJoCo has imported it
    return engine is not None and isinstance(getattr(environment.unwrapped, "model", None), engine.MjModel)


def time_limit(environment: Any) -> int | None:
    """Returns the maximum decisions per episode in the environment's registration, or None."""
    return None if environment.spec is None else environment.spec.max_episode_steps


def make_environment(id: str, horizon: int | None) -> Any:
    """Returns one environment of this id, without Gymnasium's passive checker."""
    gymnasium = require("gymnasium", "control", f"task '{id}'")
    show_warnings_once()
    try:
        return gymnasium.make(id, max_episode_steps=horizon, disable_env_checker=True)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise AssayError(f"task '{id}' needs a missing package ({error}): pip install 'assay[control]'") from error
    except gymnasium.error.Error as error:
        known = {name.lower(): name for name in gymnasium.registry}
        nearest = known[difflib.get_close_matches(id.lower(), known, n=1, cutoff=0.0)[0]]
        raise AssayError(f"task '{id}' is unknown to Gymnasium ({error}). The nearest id is '{nearest}'") from error


@cache
def show_warnings_once() -> None:
    """Prints MuJoCo's warnings once each, ignoring numbers. By default MuJoCo prints one per environment and writes
    MUJOCO_LOG.TXT into the working directory.
    """
    try:
        import mujoco
    except ImportError:
        return
    seen: set[str] = set()

    def show(message: str) -> None:
        kind = re.sub(r"[\d.e+-]+", "#", message)
        if kind not in seen:
            seen.add(kind)
            print(f"MuJoCo: {message}", file=sys.stderr)

    mujoco.set_mju_user_warning(show)


def make_vector(id: str, spec: Spec, num: int) -> FromVectorEnv:
    """Returns N instances by the id's vector implementation."""
    gymnasium = require("gymnasium", "control", f"task '{id}'")
    mode, limit = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT, spec.horizon
    return FromVectorEnv(gymnasium.make_vec(id, num, mode, max_episode_steps=limit), spec.num_costs)


# ---------------------------------------------------------------------------------------------------- checks
def check_environment(make: Callable[[], Any], num_steps: int = 200) -> list[str]:
    """Returns the rules that an environment breaks, one sentence each; empty if it keeps all.

    Plays `num_steps` random actions from one seed three times: twice in one environment, once in a fresh one.
    """
    broken: dict[str, str] = {}
    first, second = attempt("make", make, broken), attempt("make", make, broken)
    if not broken:
        attempt("spaces", lambda: port_of(first.observation_space, first.action_space, "environment"), broken)
    if broken:
        return list(broken.values())
    runs = [recorded(environment, num_steps, broken) for environment in (first, first, second)]
    for run, place in ((runs[1], "the same environment, reset"), (runs[2], "a fresh environment")):
        if run != runs[0]:
            shared = [one == other for one, other in zip(runs[0], run, strict=False)]
            step = (*shared, False).index(False)
            broken.setdefault("repeats", f"determinism: {place}, differs at step {step} under equal seed and actions")
    return list(broken.values())


def attempt(rule: str, call: Callable[[], Any], broken: dict[str, str]) -> Any:
    """Returns the result of the call, or None and a broken rule if it raises. Its warnings are not shown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception as error:
        broken.setdefault(rule, f"{rule}: raises {type(error).__name__}: {error}")
        return None


def recorded(environment: Any, num_steps: int, broken: dict[str, str]) -> list[str]:
    """Plays an environment under seed 0 with seeded random actions up to its first end; records broken rules."""
    answer = attempt("reset", lambda: environment.reset(seed=0), broken)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        broken.setdefault("reset", f"reset: must return (observation, info), returned {type(answer).__name__}")
        return []
    check_observation(environment.observation_space, answer[0], 0, broken)
    shown = [repr(np.asarray(answer[0]).tolist())]
    environment.action_space.seed(0)
    for step in range(1, num_steps + 1):
        answer = attempt("step", lambda: environment.step(environment.action_space.sample()), broken)
        if not (isinstance(answer, tuple) and len(answer) == 5):
            broken.setdefault("step", f"step: must return five values, returned {type(answer).__name__} at step {step}")
            return shown
        check_answer(environment, answer, step, broken)
        shown.append(repr((np.asarray(answer[0]).tolist(), *answer[1:4])))
        if answer[2] or answer[3]:
            attempt("step after the end", lambda: environment.step(environment.action_space.sample()), broken)
            return shown
    if time_limit(environment) is None:
        broken.setdefault("length", f"length: no end within {num_steps} steps and no time limit; set horizon=...")
    return shown


def check_observation(space: Any, observation: Any, step: int, broken: dict[str, str]) -> None:
    """Checks shape, dtype and bounds of an observation."""
    array = np.asarray(observation)
    if array.shape != space.shape:
        broken.setdefault("shape", f"observation: shape {array.shape} at step {step}, its space says {space.shape}")
    elif not np.can_cast(array.dtype, space.dtype):
        broken.setdefault("dtype", f"observation: {array.dtype} at step {step}, its space says {space.dtype}")
    elif not space.contains(array.astype(space.dtype)):
        text = np.array2string(array, threshold=8)
        broken.setdefault("bounds", f"observation: outside its space at step {step}: {text}")


def check_answer(environment: Any, answer: tuple[Any, ...], step: int, broken: dict[str, str]) -> None:
    """Checks the five values of a step."""
    observation, reward, terminal, truncated, info = answer
    check_observation(environment.observation_space, observation, step, broken)
    if not is_number(reward):
        broken.setdefault("reward", f"reward: {reward!r} at step {step} is not a finite number")
    for name, flag in (("terminated", terminal), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            broken.setdefault(name, f"{name}: {flag!r} at step {step} is not a bool")
    if terminal and truncated and step != time_limit(environment):
        broken.setdefault("both", f"ending: terminated and truncated both true at step {step}; an end is one of them")
    if not isinstance(info, dict):
        broken.setdefault("info", f"info: {type(info).__name__} at step {step} is not a dict")
    elif "cost" in info and not is_number(info["cost"]):
        broken.setdefault("cost", f"cost: info['cost'] = {info['cost']!r} at step {step} is not a finite number")


def is_number(value: Any) -> bool:
    """Returns whether a value is one finite real number."""
    try:
        return np.ndim(value) == 0 and not isinstance(value, str) and bool(np.isfinite(float(value)))
    except (TypeError, ValueError):
        return False
