"""Rollouts in games: self-play, and against opponents that are not trained."""

from __future__ import annotations

from dataclasses import dataclass

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import GameTask, Rollout, Scene
from assay.parts.rollouts.episodes import Episodes, group_rows


@dataclass(frozen=True)
class SelfPlay(Episodes):
    """Gathers groups of games in which the policy plays every role: `Episodes` of a task that is a game."""

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task is not a game."""
        if not isinstance(scene.task, GameTask):
            told = f"self-play needs a game of several roles; '{scene.task.name}' has one role"
            raise AssayError(f"{told}. Use a game such as red-teaming, or a method such as grpo")
        return {}


@dataclass(frozen=True)
class FixedOpponents(Rollout):
    """Gathers groups of games in which the policy is `player` and the task's own fixed opponents are the others.

    Only the policy's rows are returned. `Episodes` is self-play; this is training against a static opponent.
    """

    num_starts: int = 32
    group_size: int = 8
    player: int = 0

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task is not a game with this player."""
        task = scene.task
        if not isinstance(task, GameTask):
            raise AssayError(f"FixedOpponents needs a game; '{task.name}' is not one. Use Episodes")
        if not 0 <= self.player < task.num_players:
            raise AssayError(f"'{task.name}' has no player {self.player}. Use 0 to {task.num_players - 1}")
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` games; random numbers depend on (start, sample), not on the batch."""
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        assert isinstance(task, GameTask)
        rows, samples = group_rows(starts, self.group_size)
        return task.play_against(actor, rows, samples, draw, player=self.player, split=0)
