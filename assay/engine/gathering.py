"""Gathers the rows of a step: in one piece, or shard by shard of their starts, each by its rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import COLUMNS, Draw, Experience, State, concatenate
from assay.core.slots import Scene
from assay.engine.engine import Engine

REWARDED = "rewarded"
"""Column [B]: the recipe's rewards were applied to the row."""

ApplyRewards = Callable[[Experience], Experience]
Played = tuple[Experience, dict[str, list[tuple[float, float]]], State]
"""Rows, the metrics logged while they were gathered, and the numbers that the rollout put into models."""


class Gatherers(Protocol):
    """Gathers in place of the loop's own process. Its state is saved with the loop's."""

    def __call__(self, scene: Scene, states: State) -> tuple[Experience, bool]:
        """Returns the rows of the scene's step, and whether the recipe's rewards were applied to them."""

    def snapshot(self) -> State:
        """Returns its state as a tree of plain values."""

    def restore(self, state: State) -> None:
        """Resumes where `snapshot` was taken."""


def rolled_out(recipe: Recipe, scene: Scene, state: State, reward: ApplyRewards) -> tuple[Experience, bool]:
    """Returns what the recipe's rollout gathers from the starts of `scene` with its actor, and whether the rollout
    has applied the rewards.
    """
    assert recipe.rollout is not None
    peeks: list[int] = []
    # Random numbers of a rollout belong to (start, sample, time), whatever the step: the draw is the run's.
    here = scene.given(draw=Draw(scene.draw.seed, (0,)), reward=partial(marked, reward, peeks))
    fresh = recipe.rollout(here, state)
    return (unmarked(fresh), True) if peeks else (fresh, False)


def rewarded(recipe: Recipe, scene: Scene, states: Sequence[State], fresh: Experience) -> Experience:
    """Applies the recipe's rewards in order."""
    for place, (part, state) in enumerate(zip(recipe.rewards, states, strict=True)):
        fresh = part(fresh, scene.given(draw=scene.draw.at(10, place)), state)
    return fresh


def ordered(parts: Sequence[Experience]) -> Experience:
    """Returns the rows of a batch that was cut by start, in the order that they have if it is not: by player, then
    by start and sample.
    """
    rows = concatenate(parts)
    return rows if rows.player is None or len(parts) == 1 else rows.rows(torch.argsort(rows.player, stable=True))


def gathered(engine: Engine, scene: Scene, play: Callable[[Scene], Experience], is_cut: bool) -> Experience:
    """Returns play(scene), on every rank. If `is_cut`, each shard plays its own starts; else rank 0 plays all of them.

    A shard's rewards have random numbers of their own. Rows are those of the first shard, of the second, ...; in a
    game they are sorted by (start, sample, player), because a task lists its players one after the other.
    """
    shards, ranks = engine.placement.shards, engine.ranks
    if shards == 1 or (not is_cut and ranks.num == 1):
        return play(scene)

    def one(here: Scene) -> Played:
        return play(here), here.metrics, kept(engine)

    if not is_cut:
        played = [ranks.told(lambda: one(scene.given(metrics={})))]
        keep(engine, played[0][2])
    else:
        starts = np.array_split(scene.starts, shards)
        own = [
            one(shard_of(scene, place).given(starts=starts[place], metrics={}))
            for place in ranks.mine(shards)
            if len(starts[place])
        ]
        played = ranks.shared(own)
    for _, metrics, _ in played:
        for name, entries in metrics.items():
            scene.metrics.setdefault(name, []).extend(entries)
    fresh = joined([rows for rows, *_ in played])
    return by_episode(fresh) if is_cut else fresh


def shard_of(scene: Scene, place: int) -> Scene:
    """Returns the scene in which a shard is played: rewards draw random numbers of their own."""
    return scene.given(draw=scene.draw.at(14, place))


def by_episode(fresh: Experience) -> Experience:
    """Returns the rows of a game sorted by (start, sample, player); other rows as they are."""
    if fresh.player is None or fresh.episode is None:
        return fresh
    by_player = torch.argsort(fresh.player, stable=True)
    return fresh.rows(by_player[torch.argsort(fresh.episode[by_player], stable=True)])


def joined(parts: list[Experience]) -> Experience:
    """Returns the rows of all shards; AssayError if only some of them have a column, which joining would drop."""
    names = [{name for name, value in vars(part).items() if value is not None} & set(COLUMNS) for part in parts]
    names = [own | {f"extra.{name}" for name in part.extra} for own, part in zip(names, parts, strict=True)]
    if odd := set().union(*names) - names[0].intersection(*names):
        raise AssayError(
            f"only some shards of the starts have the column '{min(odd)}': the rollout, a reward or the task writes it "
            "for some rows and not for others. Write it always, or use --shards 1"
        )
    return concatenate(parts)


def kept(engine: Engine) -> State:
    """Returns the numbers that models keep besides their parameters, such as moments of observations."""
    return {name: {own: module.kept() for own, module in flat.keeping.items()} for name, flat in engine.flats.items()}


def keep(engine: Engine, state: State) -> None:
    """Sets what `kept` returned."""
    for name, flat in engine.flats.items():
        for own, module in flat.keeping.items():
            module.keep(state[name][own])


def marked(reward: Callable[[Experience], Experience], peeks: list[int], rows: Experience) -> Experience:
    """Computes rewards of rows while they are gathered, marks the rows, and notes how many there were."""
    fresh = reward(rows)
    peeks.append(len(fresh))
    return fresh.add({REWARDED: torch.ones(len(fresh), dtype=torch.bool, device=fresh.mask.device)})


def unmarked(fresh: Experience) -> Experience:
    """Returns the rows without the mark; raises AssayError if a rollout rewarded only some of its rows."""
    if REWARDED not in fresh.extra or not bool(fresh.extra[REWARDED].all()):  # joining drops columns some rows lack
        raise AssayError("the rollout rewarded some of its rows and not others. Pass all rows through scene.reward")
    return fresh.with_columns(extra={name: value for name, value in fresh.extra.items() if name != REWARDED})
