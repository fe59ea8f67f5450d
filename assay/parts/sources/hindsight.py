"""Replay with goals chosen in hindsight. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Scene
from assay.parts.sources.prioritised import FINE
from assay.parts.sources.replay import FOLLOWING, Replay, integers


@dataclass(frozen=True)
class Hindsight(Replay):
    """Replaces the goal of a share `relabel` of the rows by what a later state of the same episode achieved: HER with
    the strategy `future` (arXiv:1707.01495).

    The later state is drawn uniformly from those that followed the decision, at most `reach` decisions ahead (0: an
    episode's length). A relabelled row pays 1 and ends where the state after the decision is within `radius` of the
    new goal, in the units of the task's goals, else 0; a truncated decision stays truncated. Degenerate: relabel 0, and
    experience without goals, is `Replay` bit for bit. Assumes a task that pays 1 at the goal, where the episode ends,
    and goals that do not matter to the dynamics.
    """

    relabel: float = 0.8
    radius: float = 0.05
    reach: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps != 1:
            raise AssayError(f"source.steps is {self.steps}: rewards of several steps belong to one goal. Use steps=1")
        if not 0.0 <= self.relabel <= 1.0:
            raise AssayError(f"source.relabel is {self.relabel}. Use a share from 0 to 1, such as 0.8")

    @property
    def is_chained(self) -> bool:
        """Every transition knows the one that followed it."""
        return True

    def init(self, scene: Scene) -> State:
        """Returns an empty buffer; raises AssayError for a task without goals."""
        if scene.task is not None and scene.task.spec.goal is None:
            raise AssayError(f"task '{scene.task.name}' has no goals to choose in hindsight. Use source=Replay()")
        return super().init(scene)

    def drawn(self, scene: Scene, state: State, draw: Draw) -> Iterator[Experience]:
        """Yields the batch of one update."""
        ring = state["columns"]
        index = integers(draw, state["size"], self.batch, ring["mask"])
        batch, share = self.rows(index, state), int(FINE * self.relabel)
        if share and "context.goal" in ring:
            place = self.later(index, ring, self.reach or scene.task.spec.horizon, draw)
            batch = self.relabelled(batch, ring, place, integers(draw.at(2), FINE, self.batch, index) < share)
        yield batch

    def later(self, index: Tensor, ring: dict[str, Tensor], reach: int, draw: Draw) -> Tensor:
        """Returns the place of one of the transitions from here to the last one known of the episode, [B]."""
        places, goes = [index], [torch.ones_like(index, dtype=torch.bool)]
        for _ in range(min(reach, self.capacity) - 1):
            onward = ring[FOLLOWING][places[-1]]
            goes.append(onward >= 0)
            places.append(torch.where(goes[-1], onward, places[-1]))
        length = torch.stack(goes).sum(0)
        chosen = (integers(draw.at(1), FINE, self.batch, index).double() / FINE * length).long()
        return torch.stack(places).gather(0, chosen.unsqueeze(0)).squeeze(0)

    def relabelled(self, batch: Experience, ring: dict[str, Tensor], place: Tensor, where: Tensor) -> Experience:
        """Returns the batch with the goals achieved after these transitions, and their rewards, in rows `where`."""
        given = batch.context["goal"]
        goal = ring["context.achieved"][place, 1].unsqueeze(1).expand_as(given)
        distance = (batch.context["achieved"][:, 1] - goal[:, 1]).norm(dim=-1)
        there = torch.stack((distance <= self.radius, torch.zeros_like(where)), 1)
        rows = where.unsqueeze(1)
        context = {**batch.context, "goal": torch.where(rows.unsqueeze(-1), goal, given)}
        reward = torch.where(rows & batch.mask, there.to(batch.reward), batch.reward)
        terminal = torch.where(rows, there, batch.terminal)
        return batch.with_columns(context=context, reward=reward, terminal=terminal)
