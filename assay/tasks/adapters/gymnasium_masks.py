"""Action masks of environments: which options are allowed in a state. Axes: A options of all choices, side by side.

An environment reports its mask in one of three places, looked for in this order:

    observation    an entry `action_mask` of a Dict observation, which is then no part of the observation vector
    method         `action_masks()` of the environment or of one of its wrappers
    info           info["action_mask"] of reset and step

Vector environments report the masks of all instances in the same places, those of `action_masks()` by a method of
their own or of their instances. 1 or True allows an option. The mask of several choices has their options one after the
other, or, where they are one numbered choice (see `gymnasium_spaces`), one entry for each combination.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.spaces import MASK

Reader = Callable[[Any, Any, Mapping[str, Any]], Any]
"""Returns the raw mask from (environment, observation, info)."""
VectorReader = Callable[[Any, Sequence[Any], Mapping[str, Any]], Sequence[Any]]
"""Returns the raw masks of all instances from (vector environment, observations, infos of all)."""


def read_observation(environment: Any, observation: Any, info: Mapping[str, Any]) -> Any:
    """Returns the entry of the observation."""
    return observation[MASK]


def read_method(environment: Any, observation: Any, info: Mapping[str, Any]) -> Any:
    """Returns the answer of `action_masks()`."""
    layer = environment
    while not has_method(layer):
        layer = vars(layer)["env"]
    return layer.action_masks()


def read_info(environment: Any, observation: Any, info: Mapping[str, Any]) -> Any:
    """Returns the entry of info; AssayError if this answer lacks it."""
    if MASK not in info:
        raise AssayError(f"info['{MASK}'] is missing, though reset reported one. Report it in every step")
    return info[MASK]


def has_method(layer: Any) -> bool:
    """Returns whether an environment or wrapper defines `action_masks()` itself."""
    return callable(getattr(type(layer), "action_masks", None))


def find_reader(environment: Any, observation: Any, info: Mapping[str, Any]) -> Reader | None:
    """Returns where an environment that was just reset reports its masks; None if nowhere."""
    if isinstance(observation, Mapping) and MASK in observation:
        return read_observation
    layer = environment
    while layer is not None:
        if has_method(layer):
            return read_method
        layer = vars(layer).get("env")
    return read_info if MASK in info else None


def read_rows(envs: Any, observations: Sequence[Any], infos: Mapping[str, Any]) -> Sequence[Any]:
    """Returns the entries of the observations of a vector environment's instances."""
    return [observation[MASK] for observation in observations]


def read_calls(envs: Any, observations: Sequence[Any], infos: Mapping[str, Any]) -> Sequence[Any]:
    """Returns the answers of `action_masks()` of a vector environment, or of its instances."""
    layer = envs
    while layer is not None and not has_method(layer):
        layer = vars(layer).get("env")
    found: Sequence[Any] = envs.call("action_masks") if layer is None else layer.action_masks()
    return found


def read_infos(envs: Any, observations: Sequence[Any], infos: Mapping[str, Any]) -> Sequence[Any]:
    """Returns the entries of info; AssayError if an instance lacks its own (`_action_mask` is false there)."""
    given = np.broadcast_to(np.asarray(infos.get(f"_{MASK}", True), bool), len(observations))
    if MASK not in infos or not given.all():
        which = "" if MASK not in infos else f" of instance {int(np.flatnonzero(~given)[0])}"
        raise AssayError(f"info['{MASK}']{which} is missing, though reset reported one. Report it in every step")
    found: Sequence[Any] = infos[MASK]
    return found


def find_vector_reader(envs: Any, observations: Sequence[Any], infos: Mapping[str, Any]) -> VectorReader | None:
    """Returns where a vector environment that was just reset reports its masks; None if nowhere."""
    if isinstance(observations[0], Mapping) and MASK in observations[0]:
        return read_rows
    layer = envs
    while layer is not None:
        if has_method(layer):
            return read_calls
        layer = vars(layer).get("env")
    if instances_have_method(envs):
        return read_calls
    return read_infos if MASK in infos else None


def instances_have_method(envs: Any) -> bool:
    """Returns whether a vector environment's instances define `action_masks()`; those that cannot be asked do not."""
    try:
        return all(envs.call("has_wrapper_attr", "action_masks"))
    except (AttributeError, NotImplementedError):
        return False


@dataclass(frozen=True)
class Masks:
    """The masks of an environment with these numbers of options; `joint` if its choices are one numbered choice."""

    read: Reader
    sizes: tuple[int, ...]
    joint: bool

    @property
    def num_options(self) -> int:
        """Number of options of a policy."""
        return math.prod(self.sizes) if self.joint else sum(self.sizes)

    def allowed(self, raw: Any, *, ended: bool = False) -> np.ndarray:
        """Returns which options of the policy are allowed [A]; AssayError for another length, other values, or a choice
        without an allowed option. After an episode's end nothing is chosen: a mask without one allows all there.
        """
        parts = [np.asarray(part).reshape(-1) for part in raw] if isinstance(raw, list | tuple) else [np.asarray(raw)]
        flat = np.concatenate([part.reshape(-1) for part in parts]) if parts else np.zeros(0)
        if flat.dtype.kind not in "biuf" or not np.isin(flat, (0, 1)).all():
            raise AssayError(f"the action mask is {raw!r}. Use 0 and 1, or False and True")
        allowed = flat.astype(bool)
        if len(allowed) == sum(self.sizes):
            choices = np.split(allowed, np.cumsum(self.sizes)[:-1])
            if not all(choice.any() for choice in choices):
                return self.none_allowed(raw, ended)
            return self.combined(choices) if self.joint else allowed
        if self.joint and len(allowed) == self.num_options:
            return allowed if allowed.any() else self.none_allowed(raw, ended)
        raise AssayError(f"the action mask has {len(allowed)} entries. Give {sum(self.sizes)}, one for each option")

    def combined(self, choices: list[np.ndarray]) -> np.ndarray:
        """Returns which combinations are allowed: those whose every option is."""
        together = choices[0]
        for choice in choices[1:]:
            together = np.logical_and.outer(together, choice).reshape(-1)
        return together

    def none_allowed(self, raw: Any, ended: bool) -> np.ndarray:
        """Returns a mask that allows all after an end; AssayError before it."""
        if not ended:
            raise AssayError(f"the action mask {raw!r} allows nothing. Allow an option, or end the episode")
        return np.ones(self.num_options, bool)
