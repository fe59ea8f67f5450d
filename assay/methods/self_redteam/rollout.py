"""Gathering in games against opponents that do not learn."""

from __future__ import annotations

from dataclasses import dataclass

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import GameTask, Rollout, Scene
from assay.parts.rollouts.episodes import group_rows


@dataclass(frozen=True)
class FixedOpponents(Rollout):
    """Groups of games in which the policy is `player` and the task's own fixed opponents are the others.

    Only the policy's rows are there. Where `Episodes` is self-play, this is training on a static opponent.
    """

    num_starts: int = 32
    group_size: int = 8
    player: int = 0

    def init(self, scene: Scene) -> State:
        """Nothing to remember."""
        task = scene.task
        if not isinstance(task, GameTask):
            raise AssayError(f"FixedOpponents needs a game, and '{task.name}' is none; use Episodes")
        if not 0 <= self.player < task.num_players:
            raise AssayError(f"player {self.player} does not sit at '{task.name}'; take 0 to {task.num_players - 1}")
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """`len(starts)` x `group_size` games; randomness belongs to (start, sample), not to the batch."""
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        assert isinstance(task, GameTask)
        rows, samples = group_rows(starts, self.group_size)
        return task.play_against(actor, rows, samples, draw, player=self.player, split=0)
