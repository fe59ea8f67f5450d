"""Parallel games of several agents, as PettingZoo defines them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import GameTask
from assay.core.spaces import Box, Discrete
from assay.models.model import Policy
from assay.runs.progress import Mode
from assay.runs.run import train
from assay.tasks.adapters.pettingzoo import parallel_game, pettingzoo_task

spaces = pytest.importorskip("gymnasium").spaces


class Meeting:
    """Two walkers on a line are paid when they are close; the second one leaves after three steps."""

    possible_agents = ("a", "b")

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-9.0, 9.0, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        places = np.random.default_rng(seed).integers(-3, 4, 2)
        self.place, self.time = dict(zip("ab", places, strict=True)), 0
        self.agents = ["a", "b"]
        return {agent: self.seen(agent) for agent in self.agents}, {}

    def seen(self, agent: str) -> np.ndarray:
        other = "b" if agent == "a" else "a"
        return np.array([self.place[agent], self.place[other]], np.float32)

    def step(self, actions: dict[str, int]) -> Any:
        assert list(actions) == self.agents
        self.time += 1
        for agent, action in actions.items():
            self.place[agent] += action - 1
        gap = abs(int(self.place["a"]) - int(self.place["b"]))
        ends = {"a": self.time >= 5, "b": self.time >= 3}
        acted = list(actions)
        self.agents = [agent for agent in acted if not ends[agent]]
        return (
            {agent: self.seen(agent) for agent in acted}, dict.fromkeys(acted, -float(gap)),
            {agent: ends[agent] for agent in acted}, dict.fromkeys(acted, False), {agent: {} for agent in acted},
        )  # fmt: skip

    def close(self) -> None:
        pass


def test_rows_are_players_and_end_when_their_agent_leaves() -> None:
    task = parallel_game("meeting", Meeting, 9)
    assert isinstance(task, GameTask)
    assert (task.spec.observation, task.spec.action) == (Box((-9.0,) * 2, (9.0,) * 2), Discrete(3))
    policy = Policy().build(task.spec)
    starts, samples = np.array([4, 4, 7]), np.array([0, 1, 0])
    played = task.play(policy, starts, samples, Draw(0), split=0, greedy=False)
    assert played.mask.sum(1).tolist() == [5, 5, 5, 3, 3, 3]
    assert played.player is not None
    assert played.player.tolist() == [0, 0, 0, 1, 1, 1]
    assert played.episode is not None
    assert torch.equal(played.episode[:3], played.episode[3:])
    first = played.context["observation"]
    assert torch.equal(first[0, 0], first[1, 0]), "equal starts"
    assert torch.equal(first[0, 0].flip(0), first[3, 0]), "each sees itself first"
    again = task.play(policy, starts, samples, Draw(0), split=0, greedy=False)
    assert torch.equal(again.action, played.action)
    held_out = task.play(policy, starts, samples, Draw(0), split=1, greedy=True)
    assert held_out.player is not None
    assert held_out.player.tolist() == [0, 0, 1]


def test_opponents_are_random_and_do_not_depend_on_the_policy() -> None:
    task = parallel_game("meeting", Meeting, 9)
    starts, samples = np.arange(6), np.zeros(6, int)
    seen = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        policy = Policy().build(task.spec)
        rows = task.play_against(policy, starts, samples, Draw(0), player=0, split=0)
        assert len(rows) == 6
        seen.append(rows.context["observation"][:, :4, 1])
    other = seen[0]
    assert torch.equal(other, seen[1])
    assert len({tuple(row) for row in (other - other[:, :1]).tolist()}) > 1


def test_group_methods_train_on_a_parallel_game(tmp_path: Path) -> None:
    task = parallel_game("meeting", Meeting, 9)
    small = {"num_starts": 4, "group_size": 4}
    run = train("grpo", task, steps=2, settings=small, evaluations=0, out=tmp_path / "run", mode=Mode.SILENT)
    assert np.isfinite(run.after.value)


def test_agents_with_other_spaces_and_missing_packages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Uneven(Meeting):
        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(3 if agent == "a" else 2)

    with pytest.raises(AssayError, match=r"agent 'b' has other spaces than 'a'\. Make them equal"):
        parallel_game("uneven", Uneven)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(AssayError, match=r"pettingzoo is needed for task 'pettingzoo:a.b'.*assay\[games\]"):
        pettingzoo_task("pettingzoo:a.b")
