"""Acts with a trained policy outside of its task: numpy observations in, numpy actions out. Axes: N observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Task
from assay.core.spaces import MASK, Box, Context, Discrete, Image, Vocabulary
from assay.ops.random import as_open_float32
from assay.tasks.adapters.gymnasium import EnvironmentTask, Simulated
from assay.tasks.adapters.gymnasium_spaces import Port


def with_predict(policy: Any, task: Task) -> Any:
    """Returns the policy with `policy.predict(observation)`; that of a language task as it is."""
    if not isinstance(task.spec.action, Vocabulary):
        policy.predict = Predictor(policy, task)
    return policy


class Predictor:
    """Actions of a trained policy for observations as the environment returns them."""

    def __init__(self, policy: Any, task: Task) -> None:
        self.policy, self.task = policy, task
        whole = isinstance(task, EnvironmentTask) and isinstance(task.make, Simulated)  # frames are not stacked
        self.port: Port | None = task.port if whole and isinstance(task, EnvironmentTask) else None

    @torch.no_grad()
    def __call__(
        self, observation: Any, *, deterministic: bool = True, seed: int | None = None, action_mask: Any = None
    ) -> Any:
        """Returns the action for one observation, or those for N stacked along a new first axis.

        Observations and actions are those of the environment: arrays, numbers, or dicts and tuples of them. With
        `deterministic` false an action is sampled, from `seed` if it is given. A task with stacked frames takes the
        stacked observation. `action_mask` says which options are allowed, where the task has masks and the observation
        does not hold them.
        """
        context, single = self.context(observation)
        if self.task.spec.masked:
            context = {**context, MASK: self.allowed(observation, action_mask, single)}
        num = len(next(iter(context.values())))
        uniform = None
        if not deterministic:
            uniform = as_open_float32(np.random.default_rng(seed).random((num, self.policy.num_draws)))
        action = self.policy.act(context, uniform)[0]
        if self.port is not None:
            actions = self.port.actions(action)
            if single and not self.port.taken[0].keys:
                return np.asarray(actions[0])
            return self.join_actions(actions, single)
        rows = action.cpu().numpy()
        return rows[0] if single else rows

    def join_actions(self, actions: list[Any], single: bool) -> Any:
        """Returns one action, or all: an array, or a list of dicts and tuples."""
        assert self.port is not None
        if single:
            return actions[0]
        return actions if self.port.taken[0].keys else np.asarray(actions)

    def context(self, observation: Any) -> tuple[Context, bool]:
        """Returns the context of an observation or of several, and whether it is one; AssayError for a wrong shape."""
        if self.port is not None:
            first = self.port.seen[0]
            array = np.asarray(first.of(observation))
            single = array.ndim == len(first.space.shape)
            rows = [observation] if single else [picked(observation, row) for row in range(len(array))]
            found = [self.port.row(row) for row in rows]
            for row in found:
                self.port.check_finite(row)
            return self.port.context(found), single
        if isinstance(observation, Mapping):
            columns = {name: torch.as_tensor(np.asarray(value)) for name, value in observation.items()}
            single = next(iter(columns.values())).dim() < 2
            return {name: value.unsqueeze(0) if single else value for name, value in columns.items()}, single
        return self.plain(np.asarray(observation))

    def allowed(self, observation: Any, given: Any, single: bool) -> Tensor:
        """Returns the masks [N, A] of observations: those that they hold, else those that were given."""
        masks = None if self.port is None else self.port.masks
        held = isinstance(observation, Mapping) and MASK in observation
        raw = observation[MASK] if held else given
        if raw is None:
            raise AssayError(f"task '{self.task.name}' has action masks. Pass action_mask=, 1 for each allowed option")
        rows = [raw] if single else list(raw)
        if masks is None:
            return torch.as_tensor(np.asarray(rows)).bool()
        return torch.from_numpy(np.stack([masks.allowed(row) for row in rows]))

    def plain(self, array: np.ndarray) -> tuple[Context, bool]:
        """Returns the context of arrays in the task's own space."""
        space = self.task.spec.observation
        shape: tuple[int, ...]
        kind: Any = np.float32
        if isinstance(space, Discrete):
            return {"state": torch.from_numpy(array.astype(np.int64).reshape(-1))}, array.ndim == 0
        if isinstance(space, Image) and not space.numbers:
            name, shape, kind = "image", (space.channels, space.height, space.width), np.uint8
        elif isinstance(space, Box):
            name, shape = "observation", (space.size,)
        else:
            raise AssayError(f"observations of task '{self.task.name}' have several parts. Pass a dict of its context")
        single = array.shape == shape
        if not single and array.shape[1:] != shape:
            raise AssayError(f"observation has shape {array.shape}. Use {shape}, or (N, ...) for several")
        return {name: torch.from_numpy(array.astype(kind).reshape(-1, *shape))}, single


def picked(value: Any, row: int) -> Any:
    """Returns one row of stacked observations, inside dicts and tuples."""
    if isinstance(value, Mapping):
        return {name: picked(one, row) for name, one in value.items()}
    return tuple(picked(one, row) for one in value) if isinstance(value, tuple) else value[row]
