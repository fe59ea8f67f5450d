"""Exact claims of envpool, on instances of CartPole that answer late by a virtual clock."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.claims.probes import by_hand
from assay.claims.systems.answers import (
    exponential,
    fragments,
    frames_a_second,
    late,
    unequal,
    wall_frames_a_second,
)
from assay.core.recipe import Recipe
from assay.recipes.defaults import CONTINUOUS
from assay.tasks.adapters.sleeping import sleeping_task
from assay.tasks.control.cartpole import cartpole

transitions = partial(probes.transitions, num=64)
STEPS = 16


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns ppo's losses."""
    return by_hand.ppo_losses(seen, 0.98, 0.9, 0.003 * by_hand.entropy(seen))


def torques() -> Recipe:
    """Returns the recipe of continuous actions."""
    return recipes.ppo(CONTINUOUS)


def other_bits() -> int:
    """Returns how many numbers of two fragments differ from those of instances that are stepped together."""
    whole = fragments(cartpole(), None, 8, 16)
    return sum(unequal(whole, fragments(cartpole(), late(cartpole(), exponential(1), m), 8, 16)) for m in (1, 3, 4, 8))


def replay_gap() -> float:
    """Returns the largest difference between rewards, ends and observations recorded and those of a serial replay."""
    delayed = late(cartpole(), exponential(2), 3)
    record = fragments(cartpole(), delayed, 8, 48, calls=1)
    start = delayed.snapshot()
    gap = 0.0
    for row in range(8):
        alone = cartpole().simulate(1)
        alone.restore(start[str(row)])
        seeds = start[str(row)]["seeds"].numpy()
        context, over = alone.reset(seeds), torch.zeros(1, dtype=torch.bool)
        for time, action in enumerate(delayed.actions[row]):
            seen = record.context["observation"][row, time]
            gap = probes.worst(gap, float((context["observation"] - seen).abs().max()))
            context, reward, terminal, truncated, _ = alone.step(action)
            told = torch.stack([reward.double() * ~over, (terminal & ~over).double(), (truncated & ~over).double()])
            kept = torch.stack([record.reward[row, time].double(), record.terminal[row, time].double(),
                                record.truncated[row, time].double()])  # fmt: skip
            gap, over = probes.worst(gap, float((told.squeeze(1) - kept).abs().max())), terminal | truncated
    return gap


def steps_missing() -> int:
    """Returns by how many the steps of the environments differ from the plan, and how many are in flight at the end."""
    delayed = late(cartpole(), exponential(3), 3)
    fragments(cartpole(), delayed, 8, 32)
    return sum(abs(steps - 64) for steps in delayed.steps) + len(delayed.flying) + len(delayed.sent)


def seconds(times: list[float], ready: int, num: int = 8) -> float:
    """Returns the time of 16 steps; environment i takes times[i % len(times)] for each."""
    delayed = late(cartpole(), lambda row, step: times[row % len(times)], ready, num)
    fragments(cartpole(), delayed, num, STEPS, calls=1)
    return delayed.now


def slow_one() -> float:
    """Returns the time of two environments, one of them twice as slow; less only if its steps were left out."""
    assert seconds([1.0, 2.0], 2, 2) == 32.0
    return seconds([1.0, 2.0], 1, 2)


def in_turns(ready: int) -> float:
    """Returns the time of two steps of two environments that take 1 then 3, and 3 then 1."""
    delayed = late(cartpole(), lambda row, step: 3.0 if (row + step) % 2 else 1.0, ready, 2)
    fragments(cartpole(), delayed, 2, 2, calls=1)
    return delayed.now


def speedup_of_half(seed: int) -> float:
    """Returns frames a second with 4 of 8 over those with 8 of 8, exponential times."""
    ours, theirs = (frames_a_second(cartpole(), exponential(seed), ready) for ready in (4, 8))
    return ours / theirs


def wall_speedup(seed: int) -> float:
    """Returns the same with 8 processes that sleep: 4 of 8 over 8 of 8; the seed only counts the repetition."""
    task = sleeping_task(0.05)
    return wall_frames_a_second(task.with_workers(8, 4)) / wall_frames_a_second(task.with_workers(8))
