"""A simulated cluster: the real `Ledger` and restart policy on a virtual clock, with seeds and faults.

    python -m benchmarks.cluster                    # 1,000 GPUs, 24 steps: lag 4 against synchronous
    python -m benchmarks.cluster --seeds 10000      # small clusters with faults; prints the seeds that break a law
    python -m benchmarks.cluster --seed 17          # one of them, with its faults and moves

The model of a GPU: a decoding step takes 10 ms and 0.06 ms a sequence, 128 sequences at a time; a training GPU takes
8,000 tokens a second; weights are handed over in 2 s, in which the sampler pauses. Lengths are log-normal, a function
of (seed, step, ordinal, member). No prefill, memory limit or network: it compares schedules, it does not predict a
cluster.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.runs.distributed.ledger import Answer, Ledger, Restarts, Work, WorkSchedule, WorkStopped

MEDIAN, CAP, SIGMA = 2_500, 28_000, 1.0
DECODE, PER_ROW, SLOTS = 0.010, 0.00006, 128
TRAINED_PER_SECOND, HANDOVER = 8_000, 2.0
SITES = (
    "start.dies", "start.slow", "take.request_lost", "take.request_doubled", "take.reply_lost", "take.reply_late",
    "fetch.torn", "fetch.missing", "fetch.slow", "fetch.dies", "fetch.skipped", "sample.dies", "sample.stops",
    "sample.stalls", "sample.slow", "sample.clock_jumps", "deliver.dies_before", "deliver.dies_after", "deliver.lost",
    "deliver.doubled", "deliver.late", "deliver.torn", "deliver.other_work", "deliver.other_version", "restart.fails",
    "restart.slow", "host.dies", "host.cut_off", "watch.suspects", "watch.skipped", "watch.clock_jumps",
    "pool.joins", "pool.leaves", "train.dies", "train.slow", "trained.dies", "save.full_disk", "save.torn", "save.dies",
    "save.slow", "publish.dies", "publish.lost", "publish.doubled", "publish.late", "driver.restart_fails",
    "driver.restart_slow",
)  # fmt: skip
"""Where something can go wrong."""


@dataclass(frozen=True)
class Cluster:
    """The size of a simulation: GPUs that sample and that train, and what the driver waits for."""

    schedule: WorkSchedule
    samplers: int
    trainers: int
    slots: int = SLOTS
    patience: float = 3_000.0
    """Seconds after which work that has not come back is taken from its worker."""
    check: float = 30.0
    median: float = MEDIAN
    cap: float = CAP
    sigma: float = SIGMA


def lengths(cluster: Cluster, seed: int) -> np.ndarray:
    """Returns the length of every sequence, [step, start, member]."""
    plan = cluster.schedule
    drawn = np.random.default_rng(seed).lognormal(
        np.log(cluster.median), cluster.sigma, (plan.steps, plan.starts, plan.members)
    )
    return np.clip(drawn, 1, cluster.cap)


@dataclass
class Faults:
    """Draws what goes wrong: the named sites with probability `rate`, at most `most` times a run."""

    rate: float = 0.0
    seed: int = 0
    most: int = 12
    names: Sequence[str] = SITES
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.draw, self.num = random.Random(self.seed), 0

    def __call__(self, name: str) -> bool:
        if not self.rate or name not in self.names or self.num >= self.most or self.draw.random() >= self.rate:
            return False
        self.num += 1
        self.seen[name] += 1
        return True


@dataclass(eq=False)
class Sampler:
    """A GPU that samples. Its rows advance together: `clock` counts decoded tokens, a row ends at a count."""

    name: str
    version: int = 0
    life: int = 0
    alive: bool = False
    stopped: bool = False
    cut_off: float = 0.0
    speed: float = 1.0
    clock: float = 0.0
    at: float = 0.0
    rows: list[tuple[float, int]] = field(default_factory=list)
    works: dict[int, list[Any]] = field(default_factory=dict)
    number: int = 0
    tick: int = 0
    idle: bool = True

    def seconds_per_token(self) -> float:
        """Returns the duration of a decoding step with the present rows."""
        return (DECODE + PER_ROW * len(self.rows)) * self.speed


class Simulation:
    """Drives the ledger as a run would. Events are functions on a heap of (virtual time, order)."""

    def __init__(self, cluster: Cluster, seed: int = 0, faults: Faults | None = None, trace: bool = False) -> None:
        self.cluster, self.fault, self.trace = cluster, faults or Faults(), trace
        self.lengths = lengths(cluster, seed)
        self.ledger, self.restarts = Ledger(cluster.schedule), Restarts()
        self.now, self.order, self.events = 0.0, 0, list[tuple[float, int, Callable[..., None], tuple[Any, ...]]]()
        self.samplers = {name: Sampler(name) for name in (f"gpu-{index}" for index in range(cluster.samplers))}
        self.given: dict[str, dict[Work, float]] = {}
        self.kept: dict[int, tuple[int, float]] = {}
        self.trained: list[int] = []
        self.staleness: Counter[int] = Counter()
        self.means: list[float] = []
        self.is_training, self.life, self.saved = False, 0, [json.dumps(self.ledger.state())]
        self.busy, self.stopped = 0.0, ""
        for sampler in self.samplers.values():
            self.start(sampler)
        self.after(cluster.check, self.watch, self.life)

    # ------------------------------------------------------------------------------------------------ clock
    def after(self, seconds: float, call: Callable[..., None], *values: Any) -> None:
        """Calls a function later."""
        self.order += 1
        heapq.heappush(self.events, (self.now + seconds, self.order, call, values))

    def say(self, *words: object) -> None:
        """Prints a move of a traced run."""
        if self.trace:
            print(f"{self.now:9.1f}", *words)

    def run(self, most_events: int = 50_000_000) -> Simulation:
        """Runs until the plan is trained or a worker or work is given up; RuntimeError if neither can happen."""
        try:
            for _ in range(most_events):
                if self.ledger.is_done:
                    return self
                if not self.events:
                    raise RuntimeError(f"wedged at {self.now:.0f} s in step {self.ledger.step}: no event is left")
                self.now, _, call, values = heapq.heappop(self.events)
                call(*values)
        except WorkStopped as error:
            self.stopped = str(error)
            return self
        raise RuntimeError(f"wedged at {self.now:.0f} s in step {self.ledger.step}: events go on for ever")

    # ------------------------------------------------------------------------------------------------ samplers
    def start(self, sampler: Sampler) -> None:
        """Starts a process; it fetches the weights and asks for work."""
        sampler.life += 1
        sampler.alive, sampler.stopped, sampler.speed = True, False, 1.0
        sampler.rows, sampler.works, sampler.version, sampler.idle = [], {}, -1, True
        delay = 60.0 if self.fault("start.slow") else 1.0
        self.after(delay, self.begun, sampler, sampler.life)

    def begun(self, sampler: Sampler, life: int) -> None:
        """The process is there."""
        if self.fault("start.dies"):
            self.die(sampler)
        self.fetch(sampler, life)

    def is_live(self, sampler: Sampler, life: int) -> bool:
        """Whether an event belongs to the present process of a sampler and that process runs."""
        return sampler.alive and not sampler.stopped and sampler.life == life

    def die(self, sampler: Sampler) -> None:
        """The process ends. The driver sees it at its next look."""
        self.say(sampler.name, "dies")
        sampler.alive = False

    def fetch(self, sampler: Sampler, life: int) -> None:
        """Reads the newest weights; a torn or missing file is read again, with a digest as proof."""
        if not self.is_live(sampler, life):
            return None
        if self.fault("fetch.dies"):
            return self.die(sampler)
        if self.fault("fetch.torn") or self.fault("fetch.missing"):
            return self.after(1.0, self.fetch, sampler, life)
        if sampler.version < 0 or not self.fault("fetch.skipped"):
            self.advance(sampler)
            sampler.version, sampler.at = self.ledger.version, self.now + HANDOVER
        return self.after(30.0 if self.fault("fetch.slow") else 0.0, self.fill, sampler, life)

    def fill(self, sampler: Sampler, life: int) -> None:
        """Takes work while there is room for a whole one."""
        if not self.is_live(sampler, life):
            return
        self.advance(sampler)
        size = self.cluster.schedule.piece * self.cluster.schedule.members
        while len(sampler.rows) + size <= max(self.cluster.slots, size):
            if sampler.cut_off > self.now or self.fault("take.request_lost"):
                self.after(5.0, self.fill, sampler, life)
                break
            if self.fault("take.request_doubled"):
                self.take(sampler)  # the first answer is overwritten: that work is missed by its deadline
            work = self.take(sampler)
            if work is None:
                sampler.idle = True
                break
            if self.fault("take.reply_lost"):
                self.after(5.0, self.fill, sampler, life)
                break
            if self.fault("take.reply_late"):
                self.after(20.0, self.hold, sampler, life, work)
                self.after(20.0, self.next_end, sampler)
                break
            self.hold(sampler, life, work)
        self.next_end(sampler)

    def take(self, sampler: Sampler) -> Work | None:
        """Asks the ledger, and notes when."""
        work = self.ledger.take(sampler.name)
        if work is not None:
            self.given.setdefault(sampler.name, {})[work] = self.now
        return work

    def hold(self, sampler: Sampler, life: int, work: Work) -> None:
        """Begins to sample a work: its rows join those that run."""
        if not self.is_live(sampler, life):
            return
        self.advance(sampler)
        sampler.number += 1
        first = work.step * self.cluster.schedule.starts
        sampler.idle = False
        sizes = self.lengths[work.step, work.ordinals.start - first : work.ordinals.stop - first].ravel().tolist()
        sampler.works[sampler.number] = [work, sampler.version, len(sizes)]
        for size in sizes:
            heapq.heappush(sampler.rows, (sampler.clock + size, sampler.number))

    def advance(self, sampler: Sampler) -> None:
        """Brings the count of decoded tokens to the present; `at` may be later, the end of a pause."""
        elapsed = max(0.0, self.now - sampler.at)
        if sampler.rows:
            sampler.clock += elapsed / sampler.seconds_per_token()
            self.busy += elapsed
        sampler.at = max(sampler.at, self.now)

    def next_end(self, sampler: Sampler) -> None:
        """Plans the end of the shortest row; an earlier plan is void."""
        sampler.tick += 1
        if sampler.rows:
            left = max(0.0, sampler.rows[0][0] - sampler.clock) * sampler.seconds_per_token()
            self.after(left + max(0.0, sampler.at - self.now), self.row_ends, sampler, sampler.life, sampler.tick)

    def row_ends(self, sampler: Sampler, life: int, tick: int) -> None:
        """The shortest row has ended; a work whose rows have all ended is delivered, and there may be room for more."""
        if tick != sampler.tick or not self.is_live(sampler, life) or self.is_disturbed(sampler):
            return None
        self.advance(sampler)
        sampler.clock = max(sampler.clock, sampler.rows[0][0])
        _, number = heapq.heappop(sampler.rows)
        held = sampler.works[number]
        held[2] -= 1
        if held[2]:
            if not sampler.idle and len(sampler.rows) + self.cluster.schedule.members <= self.cluster.slots:
                return self.fill(sampler, life)
            return self.next_end(sampler)
        del sampler.works[number]
        self.send(sampler, held[0], held[1])
        if not self.is_live(sampler, life):
            return None
        return (self.fetch if sampler.version < self.ledger.version else self.fill)(sampler, life)

    def is_disturbed(self, sampler: Sampler) -> bool:
        """Whether something happens to a sampler that samples; it then goes on later, or not at all."""
        if self.fault("sample.dies"):
            self.die(sampler)
        elif self.fault("host.dies"):
            for other in list(self.samplers.values())[:2]:
                self.die(other)
        elif self.fault("sample.stops"):
            sampler.stopped = True
        elif self.fault("sample.stalls"):
            sampler.stopped = True
            self.after(2 * self.cluster.patience, self.wake, sampler, sampler.life)
        elif self.fault("sample.slow") or self.fault("sample.clock_jumps"):
            self.advance(sampler)
            sampler.speed = 10.0
            self.next_end(sampler)
        elif self.fault("host.cut_off"):
            sampler.cut_off = self.now + 100.0
            return False
        else:
            return False
        self.say(sampler.name, "is disturbed", dict(self.fault.seen))
        return True

    def wake(self, sampler: Sampler, life: int) -> None:
        """A stalled process runs on, if it was not ended; then it delivers late."""
        if sampler.alive and sampler.life == life:
            sampler.stopped, sampler.at = False, self.now
            self.next_end(sampler)

    # ------------------------------------------------------------------------------------------------ deliveries
    def send(self, sampler: Sampler, work: Work, version: int) -> None:
        """Sends what was sampled; messages are lost, doubled, late, torn or wrong."""
        if self.fault("deliver.dies_before"):
            return self.die(sampler)
        delay = 0.0 if sampler.cut_off <= self.now else sampler.cut_off - self.now
        if self.fault("deliver.lost"):
            return None
        if self.fault("deliver.torn"):
            delay += 1.0  # refused by its digest, sent again
        if self.fault("deliver.late"):
            delay += 2 * self.cluster.patience
        if self.fault("deliver.doubled"):
            self.after(delay + 50.0, self.arrive, sampler.name, work, version)
        if self.fault("deliver.other_work"):
            self.arrive(sampler.name, Work(work.step + 1, work.ordinals, work.members, work.least), version)
        if self.fault("deliver.other_version"):
            self.arrive(sampler.name, work, self.ledger.version + 1)
        if delay:
            self.after(delay, self.arrive, sampler.name, work, version)
        else:
            self.arrive(sampler.name, work, version)
        if self.fault("deliver.dies_after"):
            self.die(sampler)
        return None

    def arrive(self, name: str, work: Work, version: int) -> None:
        """The driver hands a delivery to the ledger and keeps what is accepted."""
        answer = self.ledger.deliver(name, work, version)
        if answer is not Answer.REFUSED or work.incarnation != self.ledger.incarnation:
            self.given.get(name, {}).pop(work, None)
        elif version < work.least:
            self.given.get(name, {}).pop(work, None)  # the ledger hands it out again
            self.wake_idle()
        if answer is Answer.ACCEPTED:
            assert work.step >= self.ledger.step, f"step {work.step} was accepted after it was trained"
            first = work.step * self.cluster.schedule.starts
            for ordinal in work.ordinals:
                assert ordinal not in self.kept, f"ordinal {ordinal} was accepted twice"
                self.kept[ordinal] = version, float(self.lengths[work.step, ordinal - first].sum())
            self.learn()

    def wake_idle(self) -> None:
        """Tells samplers with room that there is work."""
        for sampler in self.samplers.values():
            if sampler.idle and sampler.alive and not sampler.stopped:
                sampler.idle = False
                self.after(0.0, self.fetch, sampler, sampler.life)

    # ------------------------------------------------------------------------------------------------ the driver
    def watch(self, life: int) -> None:
        """The driver looks for processes that ended and for work past its deadline; both are handed out again."""
        if life != self.life:
            return
        self.after(self.cluster.check, self.watch, life)
        if self.fault("watch.skipped"):
            return
        jump = self.cluster.patience if self.fault("watch.clock_jumps") else 0.0
        for sampler in list(self.samplers.values()):
            given = self.given.get(sampler.name, {})
            is_late = bool(given) and self.now + jump - min(given.values()) > self.cluster.patience
            if not sampler.alive or is_late or self.fault("watch.suspects"):
                self.restart(sampler, "it missed its deadline" if sampler.alive else "it died")
        if self.fault("pool.joins"):
            joined = Sampler(f"late-{len(self.samplers)}-{self.now:.0f}")
            self.samplers[joined.name] = joined
            self.start(joined)
        if len(self.samplers) > 1 and self.fault("pool.leaves"):
            left = self.samplers.pop(next(iter(self.samplers)))
            left.alive = False
            self.give_up(left.name)

    def give_up(self, name: str) -> None:
        """Hands out again what a sampler had."""
        self.ledger.lost(name)
        self.given.pop(name, None)
        self.wake_idle()

    def restart(self, sampler: Sampler, reason: str) -> None:
        """Ends a sampler and starts it again, as often as the policy allows."""
        self.say(sampler.name, "is restarted:", reason)
        self.give_up(sampler.name)
        sampler.alive = False
        self.restarts.died(sampler.name, reason)
        if self.fault("restart.fails"):
            return  # found dead at the next look
        self.after(60.0 if self.fault("restart.slow") else 5.0, self.start_again, sampler, sampler.life)
        sampler.alive, sampler.stopped = True, True  # being started: not found dead, and deaf to its old events

    def start_again(self, sampler: Sampler, life: int) -> None:
        """The new process of a sampler, unless there has been another since."""
        if sampler.life == life and self.samplers.get(sampler.name) is sampler:
            self.start(sampler)

    # ------------------------------------------------------------------------------------------------ the learner
    def learn(self) -> None:
        """Trains the next step if it is complete and the learner is free."""
        batch = self.ledger.batch()
        if batch is None or self.is_training:
            return None
        self.is_training = True
        if self.fault("train.dies"):
            return self.crash()
        tokens = sum(self.kept[ordinal][1] for ordinal in batch)
        seconds = tokens / (TRAINED_PER_SECOND * self.cluster.trainers)
        return self.after(seconds * (10.0 if self.fault("train.slow") else 1.0), self.learned, self.life)

    def learned(self, life: int) -> None:
        """The update is done: it is saved, then published."""
        if life != self.life:
            return None
        batch, step = self.ledger.batch(), self.ledger.step
        assert batch is not None
        rows = [self.kept.pop(ordinal) for ordinal in batch]
        members = self.cluster.schedule.members
        self.staleness.update({lag: members * count for lag, count in Counter(step - v for v, _ in rows).items()})
        self.means.append(sum(length for _, length in rows) / (members * len(rows)))
        self.trained += batch
        self.ledger.trained()
        if self.fault("trained.dies"):
            return self.crash()
        return self.save()

    def save(self) -> None:
        """Writes a checkpoint beside the last one, of which a torn one is not read."""
        if self.fault("save.dies"):
            return self.crash()
        if not self.fault("save.full_disk"):
            text = json.dumps(self.ledger.state())
            self.saved = [*self.saved[-1:], text[:10] if self.fault("save.torn") else text]
        delay = 100.0 if self.fault("save.slow") else 0.0
        if self.fault("publish.late"):
            delay += 100.0
        self.after(HANDOVER + delay, self.publish, self.life, self.ledger.step)
        return None

    def publish(self, life: int, version: int) -> None:
        """Samplers may fetch the new weights; then the learner is free."""
        if life != self.life:
            return None
        if self.fault("publish.dies"):
            return self.crash()
        if self.fault("publish.lost"):
            return self.after(10.0, self.publish, life, version)  # not acknowledged: told again
        self.ledger.published(version)
        if self.fault("publish.doubled"):
            self.ledger.published(version)
            self.ledger.published(max(0, version - 1))
        self.say("version", version)
        self.is_training = False
        self.wake_idle()
        return self.learn()

    def crash(self) -> None:
        """The driver dies, and its samplers with it; a new one resumes from the newest checkpoint that can be read."""
        self.say("the driver dies", dict(self.fault.seen))
        self.life += 1
        for sampler in self.samplers.values():
            sampler.alive = False
        self.after(300.0 if self.fault("driver.restart_slow") else 10.0, self.resume, self.life)

    def resume(self, life: int) -> None:
        """Reads the checkpoint; trained ordinals after it are trained again, and nothing else is."""
        if self.fault("driver.restart_fails"):
            return self.after(10.0, self.resume, life)
        whole = [text for text in self.saved if text.endswith("}")]
        if not whole:
            raise WorkStopped("both checkpoints are torn. Restore one, or start a new run.")
        state = json.loads(whole[-1])
        plan = self.cluster.schedule
        self.ledger, self.restarts, self.is_training = Ledger.of(plan, state, life), Restarts(), False
        self.kept.clear()
        self.given.clear()
        del self.trained[self.ledger.step * plan.starts :], self.means[self.ledger.step :]
        for sampler in self.samplers.values():
            self.start(sampler)
        self.after(self.cluster.check, self.watch, life)
        return None


# ---------------------------------------------------------------------------------------------------- figures
def thousand(lag: int, gpus: int = 1_000, steps: int = 24, rows_per_gpu: int = 64) -> dict[str, Any]:
    """Simulates `gpus` GPUs: all sample, then all train, if lag is 0; else 65 % sample and the others train."""
    members = 8
    plan = WorkSchedule(steps, gpus * rows_per_gpu // members, members, lag)
    sampling = gpus if lag == 0 else round(0.65 * gpus)
    slots = rows_per_gpu if lag == 0 else SLOTS  # all GPUs have equally many
    cluster = Cluster(plan, sampling, gpus if lag == 0 else gpus - sampling, slots)
    begin = time.process_time()
    done = Simulation(cluster).run()
    mean = float(lengths(cluster, 1).mean())  # other sequences of the same distribution
    return {
        "lag": lag,
        "virtual_seconds": done.now,
        "seconds_a_step": done.now / steps,
        "staleness": dict(sorted(done.staleness.items())),
        "mean_length": float(np.mean(done.means)),
        "first_three": float(np.mean(done.means[:3])),
        "mean_of_distribution": mean,
        "sampler_busy": done.busy / (done.now * sampling),
        "cpu_seconds": time.process_time() - begin,
    }


def small(seed: int, trace: bool = False) -> Simulation:
    """Simulates a small cluster whose size, lag and faults are drawn from a seed; checks the laws.

    RuntimeError or AssertionError if one is broken; a typed stop is an end like any other.
    """
    draw = random.Random(seed)
    plan = WorkSchedule(
        draw.randint(2, 5), draw.randint(2, 6), draw.randint(1, 3), lag=draw.randint(0, 4), piece=draw.randint(1, 2)
    )
    cluster = Cluster(
        plan, draw.randint(1, 4), 1, draw.choice((4, 8)), patience=200.0, check=7.0, median=300, cap=3_000
    )
    some = draw.sample(SITES, draw.choice((2, 5, 10)))  # few sites that fail often meet each other in more states
    names, rate = (some, draw.choice((0.1, 0.5))) if draw.random() < 0.8 else (SITES, 0.03)
    faults = Faults(rate, seed, draw.randint(1, 16), names)
    done = Simulation(cluster, seed, faults, trace).run(100_000)
    whole = list(range(plan.steps * plan.starts))
    assert done.trained == (whole if not done.stopped else whole[: len(done.trained)]), (
        "trained ordinals are the plan's"
    )
    assert all(0 <= lag <= plan.lag for lag in done.staleness), f"staleness {dict(done.staleness)}, lag {plan.lag}"
    return done


def sweep(seeds: Sequence[int]) -> dict[str, Any]:
    """Runs small clusters; returns how they ended, the seeds that broke a law, and how often each site failed."""
    broken, stopped, sites = dict[int, str](), 0, Counter[str]()
    begin = time.process_time()
    for seed in seeds:
        try:
            done = small(seed)
        except Exception as error:
            broken[seed] = f"{type(error).__name__}: {error}"
            continue
        stopped += bool(done.stopped)
        sites.update(done.fault.seen)
    never = [name for name in SITES if not sites[name]]
    return {
        "seeds": len(seeds),
        "broken": broken,
        "stopped": stopped,
        "sites": len(SITES),
        "faults": sites.total(),
        "never": never,
        "cpu_seconds": time.process_time() - begin,
    }


def main(words: Sequence[str] | None = None) -> int:
    """Prints the figures as JSON; status 1 if a seed breaks a law."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", help="small clusters with faults, seeds 0 to N - 1")
    parser.add_argument("--seed", type=int, metavar="N", help="one of them, with its moves")
    parser.add_argument("--gpus", type=int, default=1_000, help="GPUs of the large cluster (default: 1,000)")
    options = parser.parse_args(words)
    if options.seed is not None:
        done = small(options.seed, trace=True)
        print(done.stopped or "done", dict(done.fault.seen))
        return 0
    if options.seeds is not None:
        found = sweep(range(options.seeds))
        print(json.dumps(found, indent=1))
        return int(bool(found["broken"]))
    together, apart = (thousand(lag, options.gpus) for lag in (0, 4))
    print(json.dumps([together, apart, {"ratio": together["virtual_seconds"] / apart["virtual_seconds"]}], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
