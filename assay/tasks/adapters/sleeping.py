"""CartPole whose steps take time without taking a core: for what waiting costs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.tasks.adapters.gymnasium import EnvironmentTask, environment_task, make_environment


class Sleeping:
    """An environment that sleeps in every step: exponential seconds of mean `mean`, a function of its seed."""

    def __init__(self, env: Any, mean: float) -> None:
        self.env, self.mean = env, mean
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.draw = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode."""
        self.draw = np.random.default_rng(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Sleeps, then steps."""
        time.sleep(self.draw.exponential(self.mean))
        return self.env.step(action)

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()


@dataclass(frozen=True)
class MakeSleeping:
    """Makes CartPole-v1 that sleeps."""

    mean: float

    def __call__(self) -> Sleeping:
        """Returns one environment."""
        return Sleeping(make_environment("CartPole-v1", None), self.mean)


def sleeping_task(mean: float) -> EnvironmentTask:
    """Returns CartPole-v1 of Gymnasium with steps of `mean` seconds."""
    return environment_task(f"sleeping-cartpole-{mean:g}", MakeSleeping(mean), 500, tried=False)
