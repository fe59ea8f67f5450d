"""The rules of environments, one sentence for each that is broken."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from assay.tasks.adapters.gymnasium_instances import is_number, time_limit
from assay.tasks.adapters.gymnasium_masks import find_reader
from assay.tasks.adapters.gymnasium_spaces import Port, leaves_of, port_of
from assay.tasks.adapters.gymnasium_trial import some_action


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
    runs = [record_steps(environment, num_steps, broken) for environment in (first, first, second)]
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


def record_steps(environment: Any, num_steps: int, broken: dict[str, str]) -> list[str]:
    """Plays an environment under seed 0 with seeded random actions up to its first end; records broken rules."""
    answer = attempt("reset", lambda: environment.reset(seed=0), broken)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        broken.setdefault("reset", f"reset: must return (observation, info), returned {type(answer).__name__}")
        return []
    check_observation(environment.observation_space, answer[0], 0, broken)
    space = environment.observation_space
    shown = [repr(shown_of(space, answer[0]))]
    environment.action_space.seed(0)
    generator = np.random.default_rng(0)
    port = port_of(space, environment.action_space, "environment", masks_from=find_reader(environment, *answer))
    for step in range(1, num_steps + 1):
        action = attempt("mask", partial(allowed_action, environment, port, answer, generator), broken)
        answer = attempt("step", partial(environment.step, action), broken)
        if not (isinstance(answer, tuple) and len(answer) == 5):
            broken.setdefault("step", f"step: must return five values, returned {type(answer).__name__} at step {step}")
            return shown
        check_answer(environment, answer, step, broken)
        shown.append(repr((shown_of(space, answer[0]), *answer[1:4])))
        if answer[2] or answer[3]:
            action = allowed_action(environment, port, answer, generator)
            attempt("step after the end", partial(environment.step, action), broken)
            return shown
    if time_limit(environment) is None:
        fix = "set --max-episode-steps N"
        broken.setdefault("length", f"length: no end within {num_steps} steps and no time limit; {fix}")
    return shown


def allowed_action(environment: Any, port: Port, answer: tuple[Any, ...], generator: np.random.Generator) -> Any:
    """Returns a random action that the mask of the last answer, of a reset or a step, allows."""
    if port.masks is None:
        return environment.action_space.sample()
    ended = len(answer) == 5 and (answer[2] or answer[3])
    allowed = port.masks.allowed(port.masks.read(environment, answer[0], answer[-1]), ended=ended)
    return port.actions(some_action(port.action, generator, allowed)[None])[0]


def check_observation(space: Any, observation: Any, step: int, broken: dict[str, str]) -> None:
    """Checks shape, dtype and bounds of an observation, entry by entry."""
    for leaf in leaves_of(space, "observation", "environment"):
        try:
            value = leaf.of(observation)
        except (KeyError, IndexError, TypeError):
            broken.setdefault("missing", f"observation: {leaf.name} is missing at step {step}")
            continue
        array, at = np.asarray(value), f"{leaf.name} at step {step}".strip()
        shape, dtype = leaf.space.shape, leaf.space.dtype
        if array.shape != shape:
            broken.setdefault("shape", f"observation: shape {array.shape} {at}, its space says {shape}")
        elif not np.can_cast(array.dtype, dtype):
            broken.setdefault("dtype", f"observation: {array.dtype} {at}, its space says {dtype}")
        elif not leaf.space.contains(array.astype(dtype) if shape else array.astype(dtype)[()]):
            text = np.array2string(array, threshold=8)
            broken.setdefault("bounds", f"observation: outside its space {at}: {text}")
        elif not np.isfinite(array).all():
            broken.setdefault("bounds", f"observation: not finite {at}: {np.array2string(array, threshold=8)}")


def shown_of(space: Any, observation: Any) -> list[Any]:
    """Returns the numbers of an observation as lists, entry by entry; none for one of another structure."""
    try:
        return [np.asarray(leaf.of(observation)).tolist() for leaf in leaves_of(space, "observation", "environment")]
    except (KeyError, IndexError, TypeError):
        return []


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
