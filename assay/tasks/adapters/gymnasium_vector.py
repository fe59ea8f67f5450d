"""Existing VectorEnvs as simulations. Axes: N instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Draw, State
from assay.core.spaces import Context, Spec
from assay.ops.random import hashed
from assay.tasks.adapters.gymnasium_instances import reset_seed
from assay.tasks.adapters.gymnasium_masks import refuse_masks
from assay.tasks.adapters.gymnasium_spaces import port_of, unmasked


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
        self._utils = require("gymnasium.vector.utils", "control", "FromVectorEnv")
        self._port = unmasked(port_of(envs.single_observation_space, envs.single_action_space, str(envs)))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        if self._own_seeds:
            seen, info = self.envs.reset(seed=[reset_seed(int(seed), 0) for seed in seeds])
            refuse_masks(info, next(iter(vars(self.envs.unwrapped).get("envs", ())), None))
            return self._context(seen)
        if len(np.unique(seeds)) < self.num:
            raise AssayError("instances with one random stream cannot share starts. Use gymnasium_task(id)")
        together = int(np.bitwise_xor.reduce(hashed(Draw(0), np.asarray(seeds), np.arange(self.num))) >> np.uint64(1))
        seen, info = self.envs.reset(seed=reset_seed(together, 0))
        refuse_masks(info)
        return self._context(seen)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Takes one step of all instances with the VectorEnv."""
        actions = self._joined(self._port.actions(action))
        seen, reward, terminal, truncated, info = self.envs.step(actions)
        if "cost" in info and not self.num_costs:
            raise AssayError(
                "the environments report info['cost'], but num_costs is 0. Use FromVectorEnv(envs, num_costs=1)"
            )
        cost = torch.from_numpy(np.array(info.get("cost", np.zeros(self.num)), np.float32))[:, None]
        ends = torch.from_numpy(np.array(terminal, bool)), torch.from_numpy(np.array(truncated, bool))
        paid = torch.from_numpy(np.array(reward, np.float32))
        return self._context(seen), paid, *ends, cost if self.num_costs else None

    def _context(self, seen: Any) -> Context:
        """Returns the context of the observations of all instances."""
        rows = self._utils.iterate(self.envs.observation_space, seen)
        return self._port.context([self._port.row(row) for row in rows])

    def _joined(self, actions: list[Any]) -> Any:
        """Returns the actions of all instances as the VectorEnv takes them."""
        empty = self._utils.create_empty_array(self.envs.single_action_space, self.num)
        return self._utils.concatenate(self.envs.single_action_space, actions, empty)

    def snapshot(self) -> State:
        """Raises AssayError: the random streams are inside the VectorEnv."""
        raise AssayError("a VectorEnv cannot be resumed exactly. Use gymnasium_task(id), one environment per instance")

    def restore(self, state: State) -> None:
        """Raises AssayError, as `snapshot` does."""
        self.snapshot()


def make_vector(id: str, spec: Spec, num: int) -> FromVectorEnv:
    """Returns N instances by the id's vector implementation."""
    gymnasium = require("gymnasium", "control", f"task '{id}'")
    mode, limit = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT, spec.horizon
    return FromVectorEnv(gymnasium.make_vec(id, num, mode, max_episode_steps=limit), spec.num_costs)
