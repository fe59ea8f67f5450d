"""Exact claims of rollart, by the real ledger on a virtual clock. Axes: S steps, I trajectories, T turns."""

from functools import partial

import numpy as np
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Measured, by_hand, same_gradient
from assay.claims.probes import Seen, formulas, worst
from assay.claims.systems.options import other_options
from assay.claims.systems.schedules import Virtual, tailed
from assay.methods.rollart import recipe
from assay.parts import Clip
from assay.runs.distributed.ledger import Ledger, WorkSchedule

STEPS, ROWS, TURNS, TRAINING = 12, 64, 10, 4.0


CROSSED = np.array([[[1.0, 3.0], [3.0, 1.0]]])


sequences = partial(formulas.sequences, num=128)


def loss_by_hand(seen: Seen) -> Tensor:
    """Returns GRPO's loss with ratios to the recorded policy."""
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience, epsilon=1e-4))


def times(seed: int, sigma: float) -> np.ndarray:
    """Returns log-normal times of mean 1 of all turns [S, I, T]."""
    return tailed(seed, STEPS * ROWS * TURNS, sigma).reshape(STEPS, ROWS, TURNS)


def barrier(times_SIT: np.ndarray, training: float = 0.0) -> float:
    """Returns the time of all steps if every turn waits for the slowest trajectory, and training for all."""
    return float(times_SIT.max(1).sum()) + training * len(times_SIT)


def trajectories(times_SIT: np.ndarray, alpha: int = 0, training: float = 0.0) -> Virtual:
    """Returns the run in which each trajectory is a piece of work with a sampler of its own."""
    whole = times_SIT.sum(2).ravel()
    plan = WorkSchedule(len(times_SIT), times_SIT.shape[1], lag=alpha)
    return Virtual(plan, plan.starts, lambda ordinal: float(whole[ordinal]), training).run()


def apart(times_SIT: np.ndarray) -> float:
    """Returns the time of synchronous steps of trajectories that run by themselves."""
    return trajectories(times_SIT).now


def slower_apart() -> int:
    """Returns in how many of 50 random cases trajectories apart need more time than with barriers."""
    cases = [np.random.default_rng(seed).exponential(size=(2, 5, 4)) for seed in range(50)]
    return sum(apart(case) > barrier(case) + 1e-9 for case in cases)


def equal_cases() -> float:
    """Returns the largest difference where there is nothing to gain: one turn, one trajectory, constant times."""
    some = np.random.default_rng(0).exponential(size=(3, 6, 5))
    cases = [some[:, :, :1], some[:, :1], np.ones((3, 6, 5))]
    return worst(*(abs(apart(case) - barrier(case)) for case in cases))


def age_over_alpha() -> int:
    """Returns by how much an age exceeds alpha, and by how much the largest falls short of it."""
    runs = [(alpha, trajectories(times(1, sigma), alpha, TRAINING)) for alpha in (0, 1, 2) for sigma in (0.2, 0.8, 1.6)]
    return int(worst(*(abs(max(run.ages) - alpha) for alpha, run in runs)))


def synchronous_gap() -> float:
    """Returns the difference to steps that are sampled, then trained, in turn, plus the largest age."""
    some = times(2, 0.8)
    run = trajectories(some, 0, TRAINING)
    return abs(run.now - float(some.sum(2).max(1).sum()) - TRAINING * STEPS) + max(run.ages)


def starts_not_trained() -> int:
    """Returns how many starts were not trained exactly once, or handed out more than once."""
    run = trajectories(times(3, 1.6), 1, TRAINING)
    return len(set(range(STEPS * ROWS)) ^ set(run.trained)) + abs(run.started - len(run.trained))


def bias_of_length() -> float:
    """Returns the difference between the mean time of the first three batches and that of the starts planned."""
    some = times(4, 1.6)
    whole, first = some.sum(2), 3 * ROWS
    trained = trajectories(some, 2, TRAINING).trained[:first]
    return float(abs(whole.ravel()[trained].mean() - whole[:3].mean()))


def speedup(seed: int, sigma: float) -> float:
    """Returns trajectories a second at alpha 1 over those with a barrier at each turn."""
    some = times(seed, sigma)
    return barrier(some, TRAINING) / trajectories(some, 1, TRAINING).now


def speedup_at_half_tail(seed: int) -> float:
    """Returns the speedup at sigma 0.8."""
    return speedup(seed, 0.8)


def speedup_at_long_tail(seed: int) -> float:
    """Returns the speedup at sigma 1.2."""
    return speedup(seed, 1.2)


def speedup_at_short_tail(seed: int) -> float:
    """Returns the speedup at sigma 0.2."""
    return speedup(seed, 0.2)


CLAIMS = Claims(
    claims=(
        same_gradient("older trajectories enter by the ratio to the policy that sampled them", recipe,
                      loss_by_hand, sequences),
        Exact("its default command samples two pieces of a step with four processes, one version old at most",
              lambda: other_options("rollart", gatherers=4, pieces=2, lag=1), equals=0.0, of="options"),
        Exact("turns of 1, 3 and 3, 1 take 6 with a barrier at each", lambda: barrier(CROSSED),
              equals=6.0, of="schedules"),
        Exact("turns of 1, 3 and 3, 1 take 4 apart", lambda: apart(CROSSED), equals=4.0),
        Exact("trajectories apart are never slower", slower_apart, equals=0.0),
        Exact("with one turn, one trajectory or constant times, trajectories apart are equally fast",
              equal_cases, equals=0.0, of="schedules"),
        Exact("no trajectory is older than alpha = 0, 1, 2, whatever the times", age_over_alpha, equals=0.0),
        Exact("at alpha 0 all trajectories are sampled by the newest weights, and steps take turns", synchronous_gap,
              equals=0.0, of="sources"),
        Exact("every start is trained once: none dropped, none started twice", starts_not_trained, equals=0.0,
              of="sources"),
        Exact("the first three batches are as long as planned", bias_of_length, equals=0.0, of="schedules"),
        Measured("at sigma 0.8 and alpha 1 it makes 1.5 times the trajectories a second of a barrier at each turn", "",
                 speedup_at_half_tail, 1.0, margin=0.5, seeds=10, minutes=0.2, about=About.MECHANISM),
        Measured("the gain grows with the tail: at sigma 1.2 it is above that at 0.2 by 0.5", "",
                 speedup_at_long_tail, speedup_at_short_tail, margin=0.5, seeds=10, minutes=0.4, about=About.MECHANISM),
    ),
    mutants=(
        Edit("work is handed out one version early", Ledger._next, "step - self.schedule.lag >",
             "step - self.schedule.lag - 1 >"),
        Edit("work waits one version too long", Ledger._next, "> self.version", ">= self.version"),
        Edit("the first B that end are a batch", Ledger.batch, "len(self.here.get(self.step, ()))",
             "sum(map(len, self.here.values()))"),
        Edit("a batch without its slowest", Ledger.batch, "< self.schedule.pieces", "< self.schedule.pieces - 1"),
        Edit("one sampler at a time", Virtual.hand_out, "sorted(self.free)", "sorted(self.free)[:1]"),
        Edit("the ratio is not clipped", Clip.__call__, "torch.minimum(plain, clipped)", "plain"),
    ),
)
