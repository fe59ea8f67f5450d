"""Exact claims of srl-system: placements of environments, policy and training on a virtual clock.

Axes: B rows, T columns, N instances.
"""


from assay.claims import About, Claims, Computed, Edit, Exact, Measured, by_hand, cartpole, probes, same_gradient
from assay.claims.systems.answers import (
    Delayed, exponential, fragments, frames_a_second, late, unequal, wall_frames_a_second,
)
from assay.claims.systems.options import other_options
from assay.claims.systems.schedules import Virtual, tailed
from assay.method import recipes
from assay.methods.srl_system import recipe
from assay.rollouts.async_stepping import stepped_apart
from assay.runs.distributed.ledger import Ledger, WorkSchedule
from assay.tasks.adapters.sleeping import sleeping_task

STEPS = 64


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
    return Virtual(WorkSchedule(10, 1, lag=lag), 1, lambda ordinal: 4.0, 2.0).run().now


def rows_lost() -> int:
    """Returns the rows that are not trained exactly once in the order of the plan, with uneven times."""
    times = tailed(5, 400, 1.0)
    runs = [Virtual(WorkSchedule(50, 8, lag=lag), 6, lambda row: float(times[row]), 1.5).run() for lag in (0, 1, 3)]
    return sum(row != place for one in runs for place, row in enumerate(one.trained)) + sum(len(r.kept) for r in runs)


def wall_speedup(seed: int) -> float:
    """Returns frames a second of 8 environments in four processes over those in one, that of the policy; the seed only
    counts the repetition. They sleep, so the number of cores does not decide.
    """
    task = sleeping_task(0.02)
    return wall_frames_a_second(task.with_workers(4, 1)) / wall_frames_a_second(task)


def virtual_speedup(seed: int) -> float:
    """Returns the same on a virtual clock, with exponential times."""
    return frames_a_second(cartpole(), exponential(seed), 2) / frames_a_second(cartpole(), exponential(seed), 8)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are ppo's", recipe, by_hand.ppo_of_control, probes.fragments),
        Exact("its default command steps four processes and serves each as it answers",
              lambda: other_options("srl-system", env_workers=4, env_ready=1), equals=0.0, of="options"),
        Exact("a step is three epochs of four minibatches",
              lambda: probes.source_gap(recipe(), probes.fragments(), batches=12, epochs=3), equals=0.0),
        Exact("inline, together and in rings of 2, 4 and 8 it records the same bits", other_bits, equals=0.0),
        Exact("a ring of 4, where it saturates, takes 259 seconds: four times the frames a second",
              lambda: ring(4), equals=259.0, of="schedules"),
        Exact("a ring of 8 takes 515 seconds: no more frames a second", lambda: ring(8), equals=515.0),
        Exact("with e, f and training in a row 10 steps take 10 (e + f + g)", lambda: three_workers(0), equals=60.0),
        Exact("with training apart 10 steps take e + f + 9 max(e + f, g) + g", lambda: three_workers(1),
              equals=42.0),
        Exact("every row is trained once, in order; none is dropped, none left over", rows_lost, equals=0.0,
              of="sources"),
        Measured("with sleeping environments (20 ms) four processes give 1.4 times the frames a second of one (wall "
                 "clock)",
                 "", Computed(wall_speedup, small=virtual_speedup), 1.0, margin=0.4, seeds=5, minutes=2.0,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("actions of other instances", stepped_apart, "decided[0][rows]", "decided[0][: len(rows)]"),
        Edit("random numbers by the order of calls", stepped_apart, "np.minimum(done_N, len(times) - 1)",
             "np.full_like(done_N, done_N.max().clip(max=len(times) - 1))"),
        Edit("the ring waits for all", Delayed.receive, "min(self.ready, len(self.flying))", "len(self.flying)"),
        Edit("ends are forgotten", stepped_apart, "over[rows] = terminal | truncated", "over[rows] = terminal & False"),
        Edit("steps are dropped", stepped_apart, "rows[done_N[rows] < len(times)]",
             "rows[done_N[rows] < len(times) - 1]"),
        Edit("the newest rows are trained first", Ledger._next, "step, number = self.next",
             "step, number = (self.next[0] + self.schedule.lag, self.next[1])"),
        Edit("training is waited for", Virtual.learn, "self.is_training = True",
             "self.is_training, self.free = True, set()"),
        Edit("one epoch", recipes.ppo, "source=preset.minibatch_source", "source=preset.on_policy_source"),
    ),
)
