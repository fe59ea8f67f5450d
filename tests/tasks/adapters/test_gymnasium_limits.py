"""Time limits of environments that truncate their episodes by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
from assay.core.errors import AssayError  # noqa: E402
from assay.tasks.adapters.gymnasium import environment_task  # noqa: E402
from assay.tasks.adapters.gymnasium_instances import NO_LIMIT  # noqa: E402


class Walk(gymnasium.Env):  # type: ignore[misc]
    """Ends at +-`size`; truncated after `limit` steps, and up to `more` by chance."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    size, limit, more = 100, 7, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.steps, self.last = 0, 0, self.limit + int(self.np_random.integers(self.more + 1))
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.at, self.steps = self.at + 2 * int(action) - 1, self.steps + 1
        is_late = self.steps >= self.last
        return np.array([self.at], np.float32), 0.0, abs(self.at) >= self.size, is_late, {}


class Short(Walk):
    """Most random episodes end before the limit."""

    size = 3


class Endless(Walk):
    limit = 10**9


class Varying(Walk):
    more = 20


@pytest.mark.parametrize(("make", "limit"), [(Walk, 7), (Short, 7), (Endless, NO_LIMIT), (Varying, NO_LIMIT)])
def test_a_limit_that_an_environment_keeps_by_itself_is_found(make: type[Walk], limit: int) -> None:
    task = environment_task("walk", make)
    assert task.spec.horizon == limit
    if limit == NO_LIMIT:
        with pytest.raises(AssayError, match=r"has no time limit.*it truncates none itself"):
            task.simulate(1)
    else:
        assert environment_task("walk", make, 5, tried=False).spec.horizon == 5, "a limit that is given is taken"
