"""Gathering of a step's rows: by the recipe's rollout in this process, or by others that were set up for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, State, concatenate
from assay.core.slots import Scene

REWARDED = "rewarded"
"""Column [B]: the recipe's rewards were applied to the row."""
ApplyRewards = Callable[[Experience], Experience]


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
