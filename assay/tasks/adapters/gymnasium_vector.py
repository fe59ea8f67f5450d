"""Existing VectorEnvs as simulations. Axes: N instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Draw, State
from assay.core.spaces import MASK, Context, Spec
from assay.ops.random import hashed
from assay.tasks.adapters.gymnasium_instances import reset_seed
from assay.tasks.adapters.gymnasium_masks import VectorReader, find_vector_reader, read_info
from assay.tasks.adapters.gymnasium_spaces import check_allowed, port_of


class FromVectorEnv:
    """A simulation around an existing VectorEnv that resets in the next step.

    Instances that share one random stream are seeded together; with SyncVectorEnv and AsyncVectorEnv each instance has
    its seed. Later episodes come from the environments' own streams, so there is no exact resume. Action masks are
    found at the first reset, in one of the places of `gymnasium_masks`; with `masked` there must be some.
    """

    def __init__(self, envs: Any, num_costs: int = 0, *, masked: bool = False) -> None:
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
        self._port = port_of(envs.single_observation_space, envs.single_action_space, str(envs))
        self._masked = masked
        self._read_masks: VectorReader | None = None
        self._ended = np.zeros(self.num, bool)

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        if self._own_seeds:
            seen, info = self.envs.reset(seed=[reset_seed(int(seed), 0) for seed in seeds])
            return self._begun(seen, info)
        if len(np.unique(seeds)) < self.num:
            raise AssayError("instances with one random stream cannot share starts. Use gymnasium_task(id)")
        together = int(np.bitwise_xor.reduce(hashed(Draw(0), np.asarray(seeds), np.arange(self.num))) >> np.uint64(1))
        seen, info = self.envs.reset(seed=reset_seed(together, 0))
        return self._begun(seen, info)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Takes one step of all instances with the VectorEnv."""
        self._check_allowed(action)
        actions = self._joined(self._port.actions(action))
        seen, reward, terminal, truncated, info = self.envs.step(actions)
        if "cost" in info and not self.num_costs:
            raise AssayError(
                "the environments report info['cost'], but num_costs is 0. Use FromVectorEnv(envs, num_costs=1)"
            )
        cost = torch.from_numpy(np.array(info.get("cost", np.zeros(self.num)), np.float32))[:, None]
        ends = torch.from_numpy(np.array(terminal, bool)), torch.from_numpy(np.array(truncated, bool))
        paid = torch.from_numpy(np.array(reward, np.float32))
        self._ended = np.array(terminal, bool) | np.array(truncated, bool)
        return self._context(seen, info), paid, *ends, cost if self.num_costs else None

    def _begun(self, seen: Any, info: Mapping[str, Any]) -> Context:
        """Returns the context after a reset; the first one finds out where masks are reported."""
        self._ended = np.zeros(self.num, bool)
        if self._read_masks is None:
            rows = list(self._utils.iterate(self.envs.observation_space, seen))
            self._read_masks = find_vector_reader(self.envs, rows, info)
            if self._read_masks is not None:
                self._port = self._port.masked_by(read_info)
        if self._masked and self._port.masks is None:
            what = "the vector implementation reports no action masks, though a single environment does"
            raise AssayError(f"{what}. Use gymnasium_task(id)")
        return self._context(seen, info)

    def _context(self, seen: Any, info: Mapping[str, Any]) -> Context:
        """Returns the context of the observations of all instances."""
        given = list(self._utils.iterate(self.envs.observation_space, seen))
        rows = [self._port.row(row) for row in given]
        masks = self._port.masks
        if masks is not None and self._read_masks is not None:
            raw = self._read_masks(self.envs, given, info)
            for row, mask, ended in zip(rows, raw, self._ended, strict=True):
                row[MASK] = masks.allowed(mask, ended=bool(ended))
            self._allowed = [row[MASK] for row in rows]
        return self._port.context(rows)

    def _check_allowed(self, action: Tensor) -> None:
        """Raises AssayError for a forbidden action of an instance in an episode."""
        if self._port.masks is None:
            return
        chosen = action.detach().cpu().numpy()
        for row in np.flatnonzero(~self._ended):
            try:
                check_allowed(self._port.action, self._allowed[row], chosen[row])
            except AssayError as error:
                raise AssayError(f"{error} (instance {row})") from error

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
    envs = gymnasium.make_vec(id, num, mode, max_episode_steps=limit)
    return FromVectorEnv(envs, spec.num_costs, masked=spec.masked)
