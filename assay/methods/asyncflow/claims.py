"""Exact claims of asyncflow, by the real ledger on a virtual clock."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from assay.claims.probes import Seen, by_hand, formulas
from assay.claims.systems.schedules import Virtual, speedup, tailed
from assay.ledger import Answer, Ledger, Schedule, Work

ROWS, STEPS = 64, 24
RIGHT = (Answer.REFUSED, Answer.ACCEPTED, Answer.KNOWN)
sequences = partial(formulas.sequences, num=128)


def loss_by_hand(seen: Seen) -> Tensor:
    """Returns GRPO's loss with ratios to the recorded policy."""
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience, epsilon=1e-4))


def seconds(sampling: float, training: float, lag: int) -> float:
    """Returns the time of ten steps with one sampler, each sampled and trained in constant time."""
    return Virtual(Schedule(10, 1, lag=lag), 1, lambda ordinal: sampling, training).run().now


def run(seed: int, lag: int, sigma: float = 0.8, lost: int = 0) -> Virtual:
    """Returns a run of 24 steps of 64 rows with log-normal lengths; every `lost`-th first attempt is lost."""
    times = tailed(seed, ROWS * STEPS, sigma)

    def dies(work: Work) -> bool:
        return bool(lost) and work.attempt == 0 and work.ordinals[0] % lost == 0

    return Virtual(Schedule(STEPS, ROWS, lag=lag), ROWS, lambda ordinal: float(times[ordinal]), 2.0, dies)


def age_over_lag() -> int:
    """Returns by how much the age of any trained row exceeds the lag: with tails of three weights, and losses."""
    cases = [(lag, sigma, lost) for lag in (0, 1, 2) for sigma in (0.3, 0.8, 1.6) for lost in (0, 7)]
    return max(max(run(0, lag, sigma, lost).run().ages) - lag for lag, sigma, lost in cases)


def oldest_at_one() -> int:
    """Returns the largest age at lag 1."""
    return max(run(0, 1).run().ages)


def not_planned() -> int:
    """Returns how many trained rows are not those of the plan at their place; with losses and late deliveries."""
    runs = [run(0, lag, lost=lost).run() for lag in (0, 1, 2) for lost in (0, 3, 7)]
    plan = list(range(ROWS * STEPS))
    return sum(one.trained != plan or one.started < len(plan) for one in runs)


def wrong_answers() -> int:
    """Returns how many of three deliveries the ledger answers wrongly: rows older than the lag, rows of a worker that
    was thought lost after another has sampled them, and whether that other got the work.
    """
    ledger = Ledger(Schedule(5, 1, lag=1))
    for step in range(3):
        work = ledger.take("first")
        assert work is not None
        ledger.deliver("first", work, step)
        ledger.trained()
        ledger.published(step + 1)
    lost = ledger.take("first")
    assert lost is not None
    ledger.lost("first")
    again = ledger.take("second")
    if again is None or again.ordinals != lost.ordinals:
        return 3
    answers = [ledger.deliver("second", again, version) for version in (1, 3)]
    answers.append(ledger.deliver("first", lost, 3))
    return sum(one is not right for one, right in zip(answers, RIGHT, strict=True))


def speedup_of_lag_one(seed: int) -> float:
    """Returns rows a second at lag 1 over those at lag 0."""
    return speedup(run(seed, 1), run(seed, 0))
