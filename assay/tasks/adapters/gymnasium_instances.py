"""N Gymnasium environments as a simulation: seeded episodes, checked answers, exact resume. Axes: N instances."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.faults import at_place
from assay.core.record import Draw, State
from assay.core.spaces import MASK, Context, Spec
from assay.ops.random import hashed
from assay.tasks.adapters.gymnasium_spaces import Port, check_allowed

NO_LIMIT = 0
"""The horizon of an environment whose episodes have no known maximum; it is never simulated."""


LIMITS = ("_max_episode_steps", "max_episode_steps")
"""Attributes in which an environment or a TimeLimit wrapper has its time limit."""


def reset_seed(seed: int, episode: int) -> int:
    """Returns 32 bits for `env.reset`: a hash of both with the last bit of `seed`, which separates the splits."""
    return 2 * int(hashed(Draw(seed), episode) >> np.uint64(33)) + (seed & 1)


def is_number(value: Any) -> bool:
    """Returns whether a value is one finite real number."""
    try:
        if not isinstance(value, float) and (np.ndim(value) != 0 or isinstance(value, str)):
            return False
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False


def raised(call: str, error: BaseException) -> str:
    """Returns what a call of the environment raised, and where, in one line."""
    text = " ".join(str(error).split())[:200]
    return f"{call} raised {type(error).__name__}{': ' if text else ''}{text}{at_place(error)}"


def reset_answer(answer: Any) -> tuple[Any, dict[str, Any]]:
    """Returns (observation, info) of a reset; AssayError if it returned something else."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):
        return answer
    raise AssayError(f"reset() returned {describe_answer(answer)}. Return (observation, info), info a dict")


def step_answer(answer: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Returns the five values of a step; AssayError names the one that is wrong."""
    if not isinstance(answer, tuple) or len(answer) != 5:
        what = "Return (observation, reward, terminated, truncated, info)"
        raise AssayError(f"step() returned {describe_answer(answer)}. {what}")
    seen, reward, terminated, truncated, info = answer
    if not is_number(reward):
        raise AssayError(f"reward is {reward!r}. Return one finite number, float(reward)")
    if terminated.__class__ is not bool or truncated.__class__ is not bool:  # the usual case costs no loop
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise AssayError(f"{name} is {flag!r}, a {type(flag).__name__}. Return bool({name})")
    if not isinstance(info, dict):
        raise AssayError(f"info is {info!r}. Return a dict")
    if "cost" in info and not is_number(info["cost"]):
        raise AssayError(f"info['cost'] is {info['cost']!r}. Report one finite number")
    return seen, float(reward), bool(terminated), bool(truncated), info


def describe_answer(answer: Any) -> str:
    """Returns type and length of an answer."""
    return f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"


class Instances:
    """N environments of one kind, stepped one after the other in this process.

    Episode k of an instance with seed s is reset with a hash of (s, k), 32 bits, so a snapshot holds the policy's
    actions since then and `restore` replays them. `restore` refuses an environment that is not deterministic under its
    seed. `first` is the number of the first instance, for messages. An answer that breaks a rule is an AssayError that
    names instance, episode, decision and value.
    """

    def __init__(self, make: Callable[[], Any], spec: Spec, port: Port, num: int, first: int = 0) -> None:
        if spec.horizon == NO_LIMIT:
            raise AssayError(without_limit(port.name))
        self.spec, self.port, self.num, self.first = spec, port, num, first
        self._ended = [False] * num
        self._taken: list[list[np.ndarray]] = [[] for _ in range(num)]
        self._seen: list[dict[str, np.ndarray]] = [{}] * num
        self._episode = np.zeros(num, np.int64)
        self._environments = [self._made(make, row) for row in range(num)]
        self.reset(np.arange(first, first + num))

    def _made(self, make: Callable[[], Any], row: int) -> Any:
        try:
            return make()
        except (Exception, SystemExit) as error:
            if isinstance(error, AssayError):
                raise
            raise self._fault(row, raised("making it", error)) from error

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts episode 0 of every instance; without it, the seeds are 0 to N - 1."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        self._seeds = np.asarray(seeds).astype(np.int64)
        self._episode = np.zeros(self.num, np.int64)
        for row in range(self.num):
            self._begin(row)
        return self.context()

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Takes one decision of every instance in an episode; starts the next episode of the others."""
        if len(action) != self.num:
            raise AssayError(f"{len(action)} actions for {self.num} instances. Give one action each")
        results = self.stepped(action.detach().cpu().numpy())
        return self.context(), *answered(results, self.spec.num_costs)

    def stepped(self, rows: np.ndarray) -> np.ndarray:
        """Takes one decision of every instance; returns (reward, terminal, truncated, cost) [4, N]."""
        results = np.zeros((4, self.num), np.float32)
        for row, decided in enumerate(self.port.actions(rows)):
            if self._ended[row]:
                self._episode[row] += 1
                self._begin(row)
            else:
                self._check_allowed(row, rows[row])
                self._taken[row].append(rows[row].copy())
                results[:, row] = self._advance(row, decided)
        return results

    def context(self) -> Context:
        """Returns the current observations; AssayError names a number that is not finite."""
        columns = self.port.stacked(self._seen)
        if "observation" in columns and not np.isfinite(columns["observation"]).all():
            for row, seen in enumerate(self._seen):
                try:
                    self.port.check_finite(seen)
                except AssayError as error:
                    raise self._fault(row, str(error)) from error
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def snapshot(self) -> State:
        """Returns seeds, episode numbers, the actions since each reset, and the observations after them."""
        return {
            "seeds": torch.from_numpy(self._seeds.copy()),
            "episode": torch.from_numpy(self._episode.copy()),
            "taken": [torch.from_numpy(np.array(taken)) for taken in self._taken],
            "seen": dict(self.context()),
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
            for decided in taken.numpy():
                self._taken[row].append(decided.copy())
                self._advance(row, self.port.actions(decided[None])[0])
        for name, seen in self.context().items():
            same = (seen == state["seen"][name].to(seen.dtype)).flatten(1).all(1) if len(seen) else torch.ones(0)
            if not bool(same.all()):
                row = self.first + int((~same.bool()).nonzero()[0])
                raise AssayError(
                    f"task '{self.port.name}' is not deterministic under its seed (instance {row}: its actions, taken "
                    "again, led to another observation), so this run cannot be resumed. Draw all random numbers from "
                    "self.np_random and start a new run"
                )

    def environment(self, row: int) -> Any:
        """Returns the environment of an instance."""
        return self._environments[row]

    def close(self) -> None:
        """Closes every environment; what closing raises is of no consequence."""
        for environment in self._environments:
            closed(environment)

    # ------------------------------------------------------------------------------------------------ one instance
    def _begin(self, row: int) -> None:
        seed = reset_seed(int(self._seeds[row]), int(self._episode[row]))
        self._taken[row], self._ended[row] = [], False
        try:
            self._see(row, *reset_answer(self._environments[row].reset(seed=seed)))
        except AssayError as error:
            raise self._fault(row, str(error)) from error
        except (Exception, SystemExit) as error:
            fix = ". Define reset(self, *, seed=None, options=None)" if "seed" in str(error) else ""
            raise self._fault(row, raised(f"reset(seed={seed})", error) + fix) from error

    def _see(self, row: int, observation: Any, info: dict[str, Any], *, ended: bool = False) -> None:
        self._seen[row] = self.port.row(observation)
        if self.port.masks is not None:
            raw = self.port.masks.read(self._environments[row], observation, info)
            self._seen[row][MASK] = self.port.masks.allowed(raw, ended=ended)

    def _check_allowed(self, row: int, chosen: np.ndarray) -> None:
        if self.port.masks is None:
            return
        try:
            check_allowed(self.port.action, self._seen[row][MASK], chosen)
        except AssayError as error:
            raise self._fault(row, str(error)) from error

    def _advance(self, row: int, action: Any) -> tuple[float, bool, bool, float]:
        try:
            answer = step_answer(self._environments[row].step(action))
            self._see(row, answer[0], answer[4], ended=answer[2] or answer[3])
        except AssayError as error:
            raise self._fault(row, str(error)) from error
        except (Exception, SystemExit) as error:
            raise self._fault(row, raised("step()", error)) from error
        _, reward, terminal, truncated, info = answer
        truncated = truncated or len(self._taken[row]) >= self.spec.horizon
        self._ended[row] = terminal or truncated
        if "cost" in info and not self.spec.num_costs:
            raise self._fault(row, "info['cost'] is missing in the first steps. Report it from the first step on")
        return reward, terminal, truncated, float(info.get("cost", 0.0))

    def _fault(self, row: int, what: str) -> AssayError:
        where = f"instance {self.first + row}, episode {self._episode[row]}, step {len(self._taken[row])}"
        fix = "" if ". " in what else ". Fix the environment"
        return AssayError(f"task '{self.port.name}': {what}{fix} ({where}).")


def without_limit(name: str) -> str:
    """Returns the sentence for an environment without a time limit."""
    fix = "Set --max-episode-steps N (horizon=N in Python), the most decisions of an episode: it truncates none itself"
    return f"task '{name}' has no time limit. {fix}"


def answered(results: np.ndarray, num_costs: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Returns (reward, terminal, truncated, cost) of one step, as a simulation does."""
    reward, terminal, truncated, cost = torch.from_numpy(results)
    return reward, terminal.bool(), truncated.bool(), cost[:, None] if num_costs else None


def spaces_of(environment: Any) -> tuple[Any, Any]:
    """Returns observation and action space; AssayError if one is missing."""
    found = [getattr(environment, f"{role}_space", None) for role in ("observation", "action")]
    for space, role in zip(found, ("observation", "action"), strict=True):
        if space is None:
            who = type(environment).__name__
            more = ". A class whose prompt and replies are texts needs max_turns = N" if found == [None, None] else ""
            raise AssayError(
                f"{who} has no {role}_space. Set self.{role}_space, a gymnasium.spaces.Space, in __init__{more}"
            )
    return found[0], found[1]


def time_limit(environment: Any) -> int | None:
    """Returns the maximum decisions per episode: of the environment's registration, of a TimeLimit wrapper, or its
    attribute `max_episode_steps`; None if it has none.
    """
    found = [getattr(getattr(environment, "spec", None), "max_episode_steps", None)]
    layer = environment
    while layer is not None:
        found += [getattr(type(layer), "max_episode_steps", None), *map(vars(layer).get, LIMITS)]
        layer = vars(layer).get("env")
    return next((limit for limit in found if isinstance(limit, int) and limit > 0), None)


def closed(environment: Any) -> None:
    """Closes an environment; what closing raises is ignored, since nothing is read from it again."""
    try:
        environment.close()
    except (Exception, SystemExit):
        return
