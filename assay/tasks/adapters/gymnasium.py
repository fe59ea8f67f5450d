"""Gymnasium's environments as tasks: an id, or a function that makes one. Axes: N instances.

Spaces are converted in `gymnasium_spaces`, instances are stepped in `gymnasium_instances` or, in processes, in
`gymnasium_workers`; `gymnasium_trial` tries an environment before it is trained on.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.slots import Simulation
from assay.core.spaces import Box, Spec
from assay.tasks.adapters.gymnasium_checks import check_environment as check_environment
from assay.tasks.adapters.gymnasium_instances import (
    NO_LIMIT,
    Instances,
    closed,
    raised,
    reset_answer,
    spaces_of,
    step_answer,
    time_limit,
)
from assay.tasks.adapters.gymnasium_instances import reset_seed as reset_seed
from assay.tasks.adapters.gymnasium_masks import find_reader
from assay.tasks.adapters.gymnasium_spaces import Port, port_of
from assay.tasks.adapters.gymnasium_trial import try_environment
from assay.tasks.adapters.gymnasium_vector import FromVectorEnv as FromVectorEnv
from assay.tasks.adapters.gymnasium_vector import make_vector
from assay.tasks.adapters.gymnasium_workers import ReadyWorkers, Workers
from assay.tasks.control.stepping import SteppedTask

OWN = "gymnasium.envs."
"""Modules of environments that come with Gymnasium: they keep the rules and are not tried again."""


@dataclass(frozen=True)
class Simulated:
    """Makes simulations of an environment, in this process or in `workers` processes with the same numbers."""

    make: Callable[[], Any]
    spec: Spec
    port: Port = field(repr=False)
    workers: int = field(default=0, repr=False)
    ready: int = field(default=0, repr=False)
    """Workers that are waited for in a step; 0 waits for all."""

    def __call__(self, num: int) -> Simulation:
        """Returns N instances."""
        if 0 < self.ready < min(num, self.workers):
            return ReadyWorkers(self.make, self.spec, self.port, num, self.workers, self.ready)
        if self.workers and num > 1:
            return Workers(self.make, self.spec, self.port, num, self.workers)
        return Instances(self.make, self.spec, self.port, num)


@dataclass(frozen=True)
class EnvironmentTask(SteppedTask):
    """The task of a Gymnasium environment. `build` makes an environment and takes keyword arguments; `remake` returns
    the task with others.
    """

    build: Callable[..., Any] = field(default=None, repr=False)  # type: ignore[assignment]
    port: Port = field(default=None, repr=False)  # type: ignore[assignment]
    limit: int | None = field(default=None, repr=False)
    """The time limit that was given with the task; None takes the environment's own."""
    registered: bool = field(default=False, repr=False)
    """Whether `build` takes the time limit as a keyword argument, as Gymnasium's `make` does."""

    def remake(
        self,
        keywords: Mapping[str, Any],
        wrappers: tuple[tuple[str, Callable[[Any], Any]], ...] = (),
        horizon: int | None = None,
        *,
        one_hot: bool = False,
    ) -> EnvironmentTask:
        """Returns the task of the same environment with keyword arguments, wrappers (by name, the first one innermost),
        a time limit, and one-hot vectors for numbered states; it is tried again.
        """
        limit = self.limit if horizon is None else horizon
        limits = {"max_episode_steps": horizon} if self.registered and horizon is not None else {}
        build = partial(build_wrapped, self.build, {**keywords, **limits}, wrappers)
        return replace(environment_task(self.name, build, limit, one_hot=one_hot), registered=self.registered)

    def with_workers(self, num: int, ready: int = 0) -> EnvironmentTask:
        """Returns the task with its environments in this many processes; 0 steps them in this one. `ready` of them are
        waited for in a step, 0 waits for all.
        """
        assert isinstance(self.make, Simulated)
        return replace(self, make=replace(self.make, workers=num, ready=ready))


# ---------------------------------------------------------------------------------------------------- tasks
def gymnasium_task(id: str, *, vector: bool = False, horizon: int | None = None) -> EnvironmentTask:
    """Returns the task of a Gymnasium id; `vector` steps its own vector implementation, without exact resume.

    `horizon` replaces the time limit of the id; it is required before training if the id has none.
    """
    gymnasium = require("gymnasium", "control", f"task '{id}'")
    known = gymnasium.registry.get(id)
    own = known is not None and isinstance(known.entry_point, str) and known.entry_point.startswith(OWN)
    task = environment_task(id, partial(make_environment, id, horizon), horizon, tried=not own)
    task = replace(task, registered=True)
    if not vector:
        return task
    if gymnasium.spec(id).vector_entry_point is None:
        raise AssayError(f"task '{id}' has no vector implementation. Use gymnasium_task('{id}')")
    return replace(task, make=partial(make_vector, id, task.spec))


def environment_task(
    name: str,
    make: Callable[..., Any],
    horizon: int | None = None,
    *,
    one_hot: bool = False,
    tried: bool = True,
) -> EnvironmentTask:
    """Returns the task of an environment that `make` builds: a class or a function; keyword arguments are optional.

    It is tried first (`try_environment`), unless `tried` is false. A first step shows whether it reports costs. Without
    a `horizon` and a time limit, stated or seen in the trial, it cannot be simulated yet.
    """
    found = try_environment(name, make, is_limited=horizon is not None) if tried else None
    environment = make()
    limit = (time_limit(environment) or found) if horizon is None else horizon
    try:
        seen, info = reset_answer(environment.reset(seed=0))
        port = port_of(*spaces_of(environment), name, one_hot, find_reader(environment, seen, info))
        masks = port.masks
        allowed = None if masks is None else masks.allowed(masks.read(environment, seen, info))
        info = step_answer(environment.step(port.idle(allowed)))[4]
    except (Exception, SystemExit) as error:
        what = str(error) if isinstance(error, AssayError) else raised("its first step", error)
        raise AssayError(f"task '{name}': {what}. Fix the environment") from error
    preset = "mujoco" if isinstance(port.action, Box) and has_mujoco(environment) else preset_of_id(environment)
    closed(environment)
    costs, masked = int("cost" in info), port.masks is not None
    spec = Spec(port.observation, port.action, limit or NO_LIMIT, num_costs=costs, masked=masked)
    simulated = Simulated(make, spec, port)
    return EnvironmentTask(name, spec, simulated, preset=preset, build=make, port=port, limit=horizon)


SMALL_TASKS = ("CartPole-v0", "CartPole-v1", "Pendulum-v1")
"""Ids for which the classic preset was tuned."""


def preset_of_id(environment: Any) -> str:
    """Returns `classic` for the ids that it was tuned for, `general` for any other environment."""
    spec = getattr(environment, "spec", None)
    return "classic" if spec is not None and spec.id in SMALL_TASKS else "general"


def build_wrapped(
    build: Callable[..., Any],
    keywords: Mapping[str, Any],
    wrappers: tuple[tuple[str, Callable[[Any], Any]], ...],
    **more: Any,
) -> Any:
    """Returns an environment made with keyword arguments, inside wrappers."""
    environment = build(**{**keywords, **more})
    for _, wrap in wrappers:
        environment = wrap(environment)
    return environment


def has_mujoco(environment: Any) -> bool:
    """Returns whether MuJoCo simulates the environment: its `model` is an MjModel, under any registered id."""
    engine = sys.modules.get("mujoco")  # an environment of MuJoCo has imported it
    inner = getattr(environment, "unwrapped", environment)
    return engine is not None and isinstance(getattr(inner, "model", None), engine.MjModel)


def make_environment(id: str, horizon: int | None, **keywords: Any) -> Any:
    """Returns one environment of this id, without Gymnasium's passive checker."""
    gymnasium = require("gymnasium", "control", f"task '{id}'")
    show_warnings_once()
    try:
        return gymnasium.make(id, **{"max_episode_steps": horizon, "disable_env_checker": True, **keywords})
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
