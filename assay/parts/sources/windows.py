"""Windows of logged episodes: up to `length` consecutive decisions of one episode in a row of a batch.

Axes: N decisions of a dataset, E episodes, P = N + E + 1 places: every state of every episode, then one of zeros;
B rows, T = length + 1 columns.

Contexts have, besides what the task shows, what an actor can know before a decision:

    return_to_go      r_t + r_t+1 + ... to the end of the episode, not discounted: known of a log alone
    previous_action   a_t-1, and `previous_reward` r_t-1; zeros in the first decision of an episode
    time              decisions of the episode so far
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Scene
from assay.parts.sources.logged import Logged, Packed, at
from assay.parts.sources.relabelled import Goals
from assay.parts.sources.replay import from_columns

DECISION, PAST = "mask", "past"
RESTS = (DECISION, "place", "last")
"""Columns of decisions [N]; all others are of places [P]."""


@dataclass(frozen=True)
class Windows(Logged):
    """Yields `updates` batches per step of `batch` windows; each begins at a decision drawn uniformly from the dataset.

    A window has `length` decisions, or fewer where its episode ends, then the context after them, then padding: zeros
    and mask false. So longer episodes have more windows, and none crosses an end. With `goals` the context `goal` of a
    whole window is a state of the data, chosen as from its first decision; rewards stay those that were recorded.
    Where a row does not follow the one before it, an episode ends too. Source: arXiv:2106.01345. Assumes rows in the
    order in which they were recorded. Degenerate: length 1 gives the transitions of `Logged`.
    """

    length: int = 20
    goals: Goals | None = None
    writes: ClassVar[Mapping[str, str]] = {"window": "B: row of the dataset at which the window begins"}

    def __post_init__(self) -> None:
        if self.length < 1:
            raise AssayError(f"source.length is {self.length}. Use at least 1 decision")
        if self.goals is not None and len(self.logs) != 1:
            raise AssayError(f"source.goals are states of one dataset, and there are {len(self.logs)}. Name one")

    def init(self, scene: Scene) -> State:
        """Returns the datasets as places, of which a checkpoint stores the hash."""
        state = super().init(scene)
        contents = state["contents"]
        contents.columns = tuple(places_of(dict(columns)) for columns in contents.columns)
        if self.goals is not None and "context.achieved" not in contents.columns[0]:
            what = f"source.goals are positions in goal space, and the data of task '{scene.task.name}' have none"
            raise AssayError(f"{what}. Use a task with goals, or source.goals=none")
        return state

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        for update, batch in enumerate(super().__call__(scene, state)):
            yield batch if self.goals is None else self.asking(batch, scene.draw.at(5, update), state, self.goals)

    def rows(self, logs: Sequence[dict[str, Tensor]], index: Sequence[Tensor]) -> Experience:
        parts = [self.windows(log, first) for log, first in zip(logs, index, strict=True)]
        axis, device = index[0].dim() - 1, index[0].device
        sources = [torch.full(i.shape, log.origin, device=device) for log, i in zip(self.logs, index, strict=True)]
        if len(parts) > 1:
            parts = [{name: torch.cat([part[name] for part in parts], axis) for name in parts[0]}]
        record = from_columns(parts[0]).with_columns(source=torch.cat(sources, axis))
        return record.add({"window": torch.cat(tuple(index), axis)})

    def windows(self, log: dict[str, Tensor], first: Tensor) -> dict[str, Tensor]:
        """Returns the columns [..., T, ...] of the windows that begin at these decisions."""
        begin, last = (at(log[name], first).unsqueeze(-1) for name in ("place", "last"))
        place = begin + torch.arange(self.length + 1, device=first.device)
        zeros = next(len(column) for name, column in log.items() if name not in RESTS) - 1
        mask = (place <= last) & (place < begin + self.length)
        place = torch.where(place <= last + 1, place, zeros)
        if isinstance(log, Packed):
            found = log.gathered(place)
        else:
            found = {name: at(column, place) for name, column in log.items() if name not in RESTS}
        for name, column in found.items():
            if not name.startswith("context."):  # the context after the last decision, not a decision
                column.select(first.dim(), self.length).zero_()
        return {**found, DECISION: mask}

    def asking(self, batch: Experience, draw: Draw, state: State, goals: Goals) -> Experience:
        """Returns the windows with a goal each."""
        (log,) = state["contents"].columns
        first, ends = batch.column("window"), log["last"].unique()
        starts = torch.cat((ends.new_zeros(1), ends[:-1] + 2))  # an episode has one place more than decisions
        place = log["place"][first]
        episode = torch.searchsorted(ends, place)
        chosen = goals(episode.numpy(), (place - starts[episode]).numpy(), (ends + 1 - starts).numpy(), draw)
        there = starts[torch.from_numpy(chosen.episode)] + torch.from_numpy(chosen.time)
        goal = at(log["context.achieved"], there).unsqueeze(1).expand_as(batch.context["achieved"])
        return batch.with_columns(context={**batch.context, "goal": goal})


def places_of(columns: dict[str, Tensor]) -> Packed:
    """Returns transitions of two columns as places, with `place` [N] of each decision and `last` [N], the place of its
    episode's last one.
    """
    is_last = ends_of(columns)
    ends = is_last.nonzero().squeeze(1)
    num, episode = len(is_last), is_last.long().cumsum(0) - is_last.long()
    place, final = torch.arange(num) + episode, ends + torch.arange(len(ends)) + 1
    total = num + len(ends) + 1

    def laid(now: Tensor, after: Tensor | None = None) -> Tensor:
        found = now.new_zeros(total, *now.shape[1:])
        found[place] = now
        if after is not None:
            found[final] = after
        return found

    kept = {name: column for name, column in columns.items() if not name.startswith(f"context.{PAST}")}
    found = {
        name: laid(column[:, 0], column[ends, 1] if name.startswith("context.") else None)
        for name, column in kept.items()
        if name != DECISION
    }
    begins = torch.cat((is_last.new_ones(1), is_last[:-1]))
    reward = columns["reward"][:, 0].double()
    sums = reward.cumsum(0)
    to_go = (sums[ends][episode] - sums + reward).to(columns["reward"].dtype)
    time = torch.arange(num) - torch.arange(num)[begins][episode]
    found["context.return_to_go"] = laid(to_go)
    found["context.time"] = laid(time, time[ends] + 1)
    for name in ("action", "reward"):
        found[f"context.previous_{name}"] = torch.cat((found[name][:1] * 0, found[name][:-1]))
    packed = Packed(found)
    packed |= {DECISION: torch.ones(num, dtype=torch.bool), "place": place, "last": (final - 1)[episode]}
    return packed


def ends_of(columns: Mapping[str, Tensor]) -> Tensor:
    """Returns where episodes end [N]: at terminal and truncated rows, where the next row does not follow, and at the
    dataset's end.
    """
    ends = (columns["terminal"] | columns["truncated"])[:, 0].clone()
    for name in ("context.observation", "context.state"):
        if name in columns:
            seen = columns[name]
            follows = (seen[:-1, 1] == seen[1:, 0]).reshape(len(seen) - 1, -1).all(1)
            ends[:-1] |= ~follows
    ends[-1:] = True
    return ends
