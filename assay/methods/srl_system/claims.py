"""Exact claims of srl-system: placements of environments, policy and training on a virtual clock."""

from __future__ import annotations

from torch import Tensor

from assay.claims import probes
from assay.claims.probes import by_hand
from assay.claims.systems.answers import exponential, fragments, late, unequal, wall_frames_a_second
from assay.claims.systems.schedules import Virtual, tailed
from assay.ledger import Schedule
from assay.tasks.adapters.sleeping import sleeping_task
from assay.tasks.control.cartpole import cartpole

STEPS = 64


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns ppo's losses."""
    return by_hand.ppo_losses(seen, 0.98, 0.9, 0.003 * by_hand.entropy(seen))


def other_bits() -> int:
    """Returns how many numbers of two fragments of 8 environments differ between placements."""
    inline = fragments(cartpole(), None, 8, 16)
    rings = [fragments(cartpole(), late(cartpole(), exponential(4), 8 // ring, 8, 0.5), 8, 16) for ring in (1, 2, 4, 8)]
    return sum(unequal(inline, one) for one in rings)


def ring(num: int) -> float:
    """Returns the time of 64 steps of a ring: a step of an environment takes 3, a call of the policy 1."""
    delayed = late(cartpole(), lambda row, step: 3.0, 1, num, policy=1.0)
    fragments(cartpole(), delayed, num, STEPS, calls=1)
    return delayed.now


def three_workers(lag: int) -> float:
    """Returns the time of 10 steps that are gathered in e + f = 3 + 1 and trained in g = 2 seconds."""
    return Virtual(Schedule(10, 1, lag=lag), 1, lambda ordinal: 4.0, 2.0).run().now


def rows_lost() -> int:
    """Returns the rows that are not trained exactly once in the order of the plan, with uneven times."""
    times = tailed(5, 400, 1.0)
    runs = [Virtual(Schedule(50, 8, lag=lag), 6, lambda row: float(times[row]), 1.5).run() for lag in (0, 1, 3)]
    return sum(row != place for one in runs for place, row in enumerate(one.trained)) + sum(len(r.kept) for r in runs)


def wall_speedup(seed: int) -> float:
    """Returns frames a second of 8 environments in four processes over those in one, that of the policy; the seed only
    counts the repetition. They sleep, so the number of cores does not decide.
    """
    task = sleeping_task(0.02)
    return wall_frames_a_second(task.with_workers(4, 1)) / wall_frames_a_second(task)
