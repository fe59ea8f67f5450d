"""Exact claims of envpool, on instances of CartPole that answer late by a virtual clock.

Axes: B rows, T columns, N instances.
"""

from functools import partial

import torch

from assay.claims import About, Claims, Computed, Edit, Exact, Measured, by_hand, cartpole, probes, same_gradient
from assay.claims.systems.answers import Delayed, exponential, fragments, frames_a_second, late, unequal
from assay.claims.systems.answers import wall_frames_a_second
from assay.claims.systems.options import other_options
from assay.method import CONTINUOUS, Recipe, recipes
from assay.methods.envpool import recipe
from assay.rollouts.async_stepping import Filed, stepped_apart
from assay.tasks.adapters.sleeping import sleeping_task

transitions = partial(probes.transitions, num=64)


STEPS = 16


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


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are ppo's", recipe, by_hand.ppo_of_control, probes.fragments),
        same_gradient("with continuous actions its gradients are ppo's", torques, by_hand.ppo_of_torques, transitions,
                      probes.BOX_SPEC, of="continuous-control"),
        Exact("its default command steps four processes and waits for two of them",
              lambda: other_options("envpool", env_workers=4, env_ready=2), equals=0.0, of="options"),
        Exact("a step is three epochs of four minibatches",
              lambda: probes.source_gap(recipe(), probes.fragments(), batches=12, epochs=3), equals=0.0),
        Exact("waiting for 1, 3, 4 or 8 of 8 gives the synchronous record, bit by bit", other_bits, equals=0.0),
        Exact("each environment, stepped alone with its own actions, answers what was recorded",
              replay_gap, equals=0.0, of="sources"),
        Exact("every environment takes every step once, and none is in flight afterwards",
              steps_missing, equals=0.0, of="sources"),
        Exact("with constant times, waiting for 2 of 8 takes as long as waiting for 8 of 8",
              lambda: seconds([1.0], 2), equals=16.0, of="schedules"),
        Exact("if one of two is twice as slow, 16 steps take 32 together and 32 apart",
              slow_one, equals=32.0, of="schedules"),
        Exact("environments that are slow in turns, 1 + 3 and 3 + 1, take 6 together", lambda: in_turns(2), equals=6.0,
              of="schedules"),
        Exact("environments that are slow in turns, 1 + 3 and 3 + 1, take 4 apart", lambda: in_turns(1), equals=4.0),
        Measured("with exponential times 4 of 8 give 1.6 times the frames a second of 8 of 8 (virtual clock)", "",
                 speedup_of_half, 1.0, margin=0.6, seeds=10, minutes=0.3, about=About.MECHANISM),
        Measured("with processes that sleep 50 ms 4 of 8 give 1.2 times the frames a second of 8 of 8 (wall clock)",
                 "", Computed(wall_speedup, small=speedup_of_half), 1.0, margin=0.2, seeds=5, minutes=2.0,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("actions of other instances", stepped_apart, "decided[0][rows]", "decided[0][: len(rows)]"),
        Edit("random numbers by the order of calls", stepped_apart, "np.minimum(done_N, len(times) - 1)",
             "np.full_like(done_N, done_N.max().clip(max=len(times) - 1))"),
        Edit("rows are filed in the order of arrival", stepped_apart, "filed.put(done_N[rows], rows, told",
             "filed.put(done_N[rows], np.sort(rows)[::-1].copy(), told"),
        Edit("ends are forgotten", stepped_apart, "over[rows] = terminal | truncated", "over[rows] = terminal & False"),
        Edit("fast ones take more steps", stepped_apart, "done_N[rows] += 1", "done_N[rows[1:]] += 1"),
        Edit("an answer is not shown", stepped_apart, "context[name][rows] = value",
             "context[name][rows[1:]] = value[1:]"),
        Edit("waits for all", Delayed.receive, "min(self.ready, len(self.flying))", "len(self.flying)"),
        Edit("all of a step are filed at one time", Filed.put, "[times_n, rows_n]", "[times_n.min(), rows_n]"),
        Edit("one epoch", recipes.ppo, "source=preset.minibatch_source", "source=preset.on_policy_source"),
    ),
)
