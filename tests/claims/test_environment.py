"""Gymnasium's rules as findings."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from assay.claims.laws.environment import RULES, check_environment

gymnasium = pytest.importorskip("gymnasium")


class Counting(gymnasium.Env):  # type: ignore[misc]
    """Counts to ten."""

    observation_space = gymnasium.spaces.Box(0.0, 10.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    reward: Any = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        self.number = min(10, self.number + 1)
        return np.full(1, self.number, np.float32), self.reward, self.number == 10, False, {}


class Unpaid(Counting):
    reward = None


class Hollow:
    """Neither spaces nor time limit."""

    def reset(self, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, 0.0, False, False, {}


def test_a_sound_environment_keeps_every_rule() -> None:
    findings = check_environment(Counting)
    assert [one.law for one in findings] == list(RULES)
    assert [one for one in findings if not one.held] == []


def test_a_broken_rule_is_a_finding() -> None:
    (broken,) = [one for one in check_environment(Unpaid) if not one.held]
    assert broken.law == "reward"
    assert "None" in broken.detail


def test_without_spaces_nothing_else_is_tried() -> None:
    assert [(one.law, one.held) for one in check_environment(Hollow)] == [("make", True), ("spaces", False)]


def test_an_environment_that_is_no_environment_is_a_finding() -> None:
    class Bare(Hollow):
        observation_space = Counting.observation_space
        action_space = Counting.action_space

    findings = check_environment(Bare)
    assert not all(one.held for one in findings)


class Walk(gymnasium.Env):  # type: ignore[misc]
    """A random walk of twelve steps; `limit` says how its end is reported, `clock` whether the time is observed."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    terminated, clock = True, False

    def seen(self) -> np.ndarray:
        return np.array([self.place, self.time if self.clock else 0.0], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.place = 0, float(self.np_random.normal())
        return self.seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time, self.place = self.time + 1, self.place + 2 * action - 1
        is_over = self.time >= 12
        return self.seen(), self.place, is_over and self.terminated, is_over and not self.terminated, {}


class Truncated(Walk):
    terminated = False


class Clocked(Walk):
    clock = True


class Declared(Walk):
    breaks: ClassVar[dict[str, str]] = {"time limit": "a game of twelve moves"}


def test_a_time_limit_reported_as_terminated_is_found() -> None:
    (broken,) = [one for one in check_environment(Walk) if not one.held]
    assert broken.law == "time limit"
    assert "after 12 decisions" in broken.detail


@pytest.mark.parametrize("sound", [Truncated, Clocked, Declared])
def test_a_limit_that_is_truncated_or_observed_or_declared_is_not(sound: type) -> None:
    assert [one for one in check_environment(sound) if not one.held] == []


def test_a_declared_limit_that_is_none_is_stale() -> None:
    class Stale(Truncated):
        breaks: ClassVar[dict[str, str]] = {"time limit": "a game of twelve moves"}

    assert ["stale" in one.detail for one in check_environment(Stale) if not one.held] == [True]


class Named(Walk):
    terminated = False
    observation_space = gymnasium.spaces.Dict({"place": Walk.observation_space, "phase": gymnasium.spaces.Discrete(2)})

    def seen(self) -> Any:
        return {"place": super().seen(), "phase": self.time % 2}


class Unnamed(Named):
    def seen(self) -> Any:
        return {"place": super().seen()["place"]}


def test_named_observations_are_checked_entry_by_entry() -> None:
    assert [one for one in check_environment(Named) if not one.held] == []
    (broken,) = [one for one in check_environment(Unnamed) if not one.held]
    assert "['phase'] is missing" in broken.detail
