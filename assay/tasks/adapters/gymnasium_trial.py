"""A short trial of an environment before anything is trained on it, in a process of its own.

Random actions are played from one seed three times, twice in one environment and once in a fresh one. What would stop
training is refused in one sentence; what costs exact resume, or lies outside of its space, is a warning. A crash, an
exit or an endless loop costs the trial's process alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from assay.core.errors import AssayError, warn
from assay.core.spaces import MASK, Box, Discrete, MultiDiscrete, Space, Spec
from assay.tasks.adapters.gymnasium_instances import spaces_of, time_limit
from assay.tasks.adapters.gymnasium_spaces import Port, port_of, split_choices
from assay.tasks.adapters.gymnasium_workers import Process

STEPS, SECONDS = 64, 2.0
"""Decisions of each of the three runs, and the time after which a run of a slow environment stops."""
PROBED, PROBE_SECONDS, EPISODES = 10_000, 5.0, 3
"""Decisions and seconds in which a time limit that is not stated is looked for, and the episodes that must show it."""
PATIENCE = 120.0
"""Seconds that one call of an environment may take in the trial."""

Played = list[tuple[bytes, ...]]
"""What was seen and answered in each decision, as bytes."""


def trial_facts(environment: Any) -> tuple[Any, Any, int | None]:
    """Returns the spaces and the time limit of an environment."""
    return *spaces_of(environment), time_limit(environment)


def try_environment(
    name: str, make: Callable[[], Any], patience: float = PATIENCE, *, is_limited: bool = True
) -> int | None:
    """Raises AssayError for an environment that would stop training; warns of one that does not repeat itself under a
    seed, and of observations outside of their space. Returns its time limit; if it states none and `is_limited` is
    false, since none is given either, one that it keeps by itself (`found_limit`).
    """
    process = Process(f"task '{name}'", make)
    observation, action, limit = call_named(name, lambda: process.call("facts", trial_facts, seconds=patience))
    port = port_of(observation, action, name)
    spec = Spec(port.observation, port.action, limit or STEPS, num_costs=1)
    call_named(name, lambda: process.call("begin", spec, port, 1, 0, seconds=patience))
    reader = call_named(name, lambda: process.call("mask_reader", seconds=patience))
    port, runs = port_of(observation, action, name, masks_from=reader), list[Played]()
    for fresh in (True, False, True):
        if fresh:
            call_named(name, lambda: process.call("begin", spec, port, 1, 0, seconds=patience))
        runs.append(call_named(name, lambda: play_random(process, port, patience, warns=not runs)))
    for run, where in ((runs[1], "after a reset"), (runs[2], "in a fresh environment")):
        different = [step for step, (one, other) in enumerate(zip(runs[0], run, strict=False)) if one != other]
        if different:
            warn(
                f"task '{name}' is not deterministic: under equal seed and actions it differs at step {different[0]} "
                f"{where}. This run cannot be resumed exactly; draw all random numbers from self.np_random, seeded by "
                "super().reset(seed=seed)."
            )
            break
    if limit is not None or is_limited:
        return limit
    call_named(name, lambda: process.call("begin", replace(spec, horizon=PROBED), port, 1, 0, seconds=patience))
    found: int | None = call_named(name, lambda: found_limit(process, port, patience))
    return found


def found_limit(process: Process, port: Port, patience: float) -> int | None:
    """Returns the decisions after which an environment truncates its episodes by itself: three random episodes were
    truncated after equally many, and none was longer. None if that is not seen within `PROBED` decisions.
    """
    generator, begin = np.random.default_rng(1), time.perf_counter()
    length, ended, limits = 0, False, list[int]()
    seen = process.call("reset", np.array([0]), seconds=patience)
    for _ in range(PROBED - 1):
        rows = some_action(port.action, generator, seen[MASK][0] if port.masks else None)[None]
        results, seen = process.call("step", rows, seconds=patience)
        if ended:  # this call has begun the next episode
            length, ended = 0, False
            continue
        length += 1
        ended, is_truncated = bool(results[1:3, 0].any()), bool(results[2, 0] and not results[1, 0])
        limits += [length] if is_truncated else []
        if length > min([PROBED, *limits]) or time.perf_counter() - begin > PROBE_SECONDS:
            return None
        if len(limits) == EPISODES:
            return limits[0] if len(set(limits)) == 1 else None
    return None


def call_named(name: str, call: Callable[[], Any]) -> Any:
    """Returns the result of a call; an error names the task."""
    try:
        return call()
    except AssayError as error:
        text = str(error)
        raise AssayError(text if text.startswith("task '") else f"task '{name}': {text}") from error


def play_random(process: Process, port: Port, patience: float, *, warns: bool) -> Played:
    """Plays seeded random actions from one seed; later episodes follow the first."""
    generator, begin = np.random.default_rng(0), time.perf_counter()
    seen = process.call("reset", np.array([0]), seconds=patience)
    record: Played = [tuple(column.tobytes() for column in seen.values())]
    while len(record) <= STEPS and time.perf_counter() - begin < SECONDS:
        rows = some_action(port.action, generator, seen[MASK][0] if port.masks else None)[None]
        results, seen = process.call("step", rows, seconds=patience)
        record.append((results.tobytes(), *(column.tobytes() for column in seen.values())))
        if warns and isinstance(port.observation, Box) and outside(port, seen["observation"][0]):
            warns = False
    return record


def some_action(space: Space, generator: np.random.Generator, allowed: np.ndarray | None = None) -> np.ndarray:
    """Returns a random action of the policy's space, of the allowed ones if there is a mask; unbounded numbers are
    normal.
    """
    if allowed is not None:
        chosen = [generator.choice(np.flatnonzero(choice)) for choice in split_choices(space, allowed)]
        return np.asarray(chosen if isinstance(space, MultiDiscrete) else chosen[0])
    if isinstance(space, Discrete):
        return np.asarray(generator.integers(space.n))
    if isinstance(space, MultiDiscrete):
        return generator.integers(space.sizes)
    assert isinstance(space, Box)
    low, high = np.array(space.low), np.array(space.high)
    bounded = np.isfinite(low) & np.isfinite(high)
    drawn = generator.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0))
    return np.where(bounded, drawn, generator.normal(size=len(low))).astype(np.float32)


def outside(port: Port, vector: np.ndarray) -> bool:
    """Returns whether an observation lies outside of its bounds, beyond rounding; warns if it does."""
    assert isinstance(port.observation, Box)
    low, high = np.array(port.observation.low), np.array(port.observation.high)
    slack = 1e-5 * np.maximum(1.0, np.abs(vector))
    places = np.flatnonzero((vector < low - slack) | (vector > high + slack))
    if not len(places):
        return False
    place = int(places[0])
    warn(
        f"task '{port.name}': observation{port.names()[place]} is {vector[place]:g}, outside its space "
        f"({low[place]:g} to {high[place]:g}). Widen observation_space, or clip the observation."
    )
    return True
