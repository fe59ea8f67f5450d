"""Gymnasium's rules as findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.proof.laws.environment import RULES, check_environment

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
