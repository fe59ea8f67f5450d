"""Exact claims of asyncflow, by the real ledger on a virtual clock. Axes: B sequences, T decisions."""

from functools import partial

from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Expect, Final, Measured, by_hand, same_gradient
from assay.claims.probes import Seen, formulas
from assay.claims.systems.options import other_options
from assay.claims.systems.schedules import Virtual, speedup, tailed
from assay.method import STALE, recipes
from assay.methods.asyncflow import recipe
from assay.parts import Clip
from assay.runs.distributed.ledger import Answer, Ledger, Work, WorkSchedule

ROWS, STEPS = 64, 24


RIGHT = (Answer.REFUSED, Answer.ACCEPTED, Answer.KNOWN)


sequences = partial(formulas.sequences, num=128)


def loss_by_hand(seen: Seen) -> Tensor:
    """Returns GRPO's loss with ratios to the recorded policy."""
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience, epsilon=1e-4))


def seconds(sampling: float, training: float, lag: int) -> float:
    """Returns the time of ten steps with one sampler, each sampled and trained in constant time."""
    return Virtual(WorkSchedule(10, 1, lag=lag), 1, lambda ordinal: sampling, training).run().now


def run(seed: int, lag: int, sigma: float = 0.8, lost: int = 0) -> Virtual:
    """Returns a run of 24 steps of 64 rows with log-normal lengths; every `lost`-th first attempt is lost."""
    times = tailed(seed, ROWS * STEPS, sigma)

    def dies(work: Work) -> bool:
        return bool(lost) and work.attempt == 0 and work.ordinals[0] % lost == 0

    return Virtual(WorkSchedule(STEPS, ROWS, lag=lag), ROWS, lambda ordinal: float(times[ordinal]), 2.0, dies)


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
    ledger = Ledger(WorkSchedule(5, 1, lag=1))
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


CLAIMS = Claims(
    claims=(
        same_gradient("older rows enter by the ratio to the policy that sampled them", recipe, loss_by_hand,
                      sequences),
        Exact("its default command samples with two processes, with weights at most one version old",
              lambda: other_options("asyncflow", gatherers=2, lag=1), equals=0.0, of="options"),
        Exact("at lag 0 sampling and training alternate: 10 steps of 3 and 2 seconds take 50",
              lambda: seconds(3.0, 2.0, lag=0), equals=50.0),
        Exact("at lag 1 sampling and training overlap: 10 steps of 3 and 2 seconds take 3 + 9 x 3 + 2",
              lambda: seconds(3.0, 2.0, lag=1), equals=32.0, of="schedules"),
        Exact("at lag 1, where training is slower, 10 steps of 2 and 3 seconds take 2 + 10 x 3",
              lambda: seconds(2.0, 3.0, lag=1), equals=32.0, of="schedules"),
        Exact("no row is older than the lag, whatever the lengths", age_over_lag, equals=0.0),
        Exact("at lag 1 some rows are one version old: the bound is reached",
              oldest_at_one, equals=1.0, of="schedules"),
        Exact("trained rows are the plan's, each once, in its order, after losses too", not_planned, equals=0.0,
              of="sources"),
        Exact("lost work is handed out again; too old rows are refused, doubled ones known", wrong_answers,
              equals=0.0),
        Measured("with long tails (sigma 0.8) lag 1 trains 1.2 times as many rows a second as lag 0", "",
                 speedup_of_lag_one, 1.0, margin=0.2, seeds=10, minutes=0.1, about=About.HEADLINE),
        Measured("rows one version old cost no score", "stale", recipes.grpo(STALE).set("rollout.delay", 1),
                 recipes.grpo(STALE), Final(), Expect.WITHIN, margin=0.05, seeds=5, minutes=1.0, steps=60,
                 about=About.MECHANISM),
    ),
    mutants=(
        Edit("work is handed out one version early", Ledger._next, "step - self.schedule.lag >",
             "step - self.schedule.lag - 1 >"),
        Edit("work waits one version too long", Ledger._next, "> self.version", ">= self.version"),
        Edit("the age of what arrives is not asked", Ledger.deliver, "not work.least <= version <= self.version",
             "False"),
        Edit("batches in the order of completion", Ledger.batch, "len(self.here.get(self.step, ()))",
             "max(map(len, self.here.values()), default=0)"),
        Edit("what a lost worker had is not handed out again", Ledger._lose, "heapq.heappush(self.again, piece)",
             "None"),
        Edit("a late delivery is taken twice", Ledger.deliver, " or number in self.here.get(step, ())", ""),
        Edit("a step is trained without its last piece", Ledger.batch, "< self.schedule.pieces",
             "< self.schedule.pieces - 1"),
        Edit("the ratio is not clipped", Clip.__call__, "torch.minimum(plain, clipped)", "plain"),
    ),
)
