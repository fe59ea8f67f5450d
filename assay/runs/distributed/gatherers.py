"""Gatherers: a step's rows are sampled by other processes with published weights, under the rules of the ledger.

The learner publishes version k before it asks for the rows of step k. A thread for each worker takes work from the
ledger, hands it over, and delivers what comes back; the learner waits for the batches, in the order of the plan. Every
wait has a deadline: a worker that misses its own is ended, its work handed out again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Need, Progress, State
from assay.core.slots import Scene
from assay.engine.gathering import apply_rewards, join_pieces, join_shards, shard_scene, sort_by_episode
from assay.runs.distributed.ledger import Answer, Ledger, Restarts, WorkSchedule
from assay.runs.distributed.rollout_worker import Asked, Found, Hand, Lost, models_of, spans_of
from assay.runs.distributed.weights import Weights

TICK = 0.5
"""Seconds after which a thread that waits looks again."""
ROWS = 32
"""Rows of each staleness on which the effective sample size is measured."""


@dataclass(frozen=True)
class Patience:
    """Deadlines of a worker in seconds: to start and return its first rows, and after that `factor` times the longest
    piece of work so far, at least `least`.
    """

    start: float = 900.0
    least: float = 60.0
    factor: float = 10.0


@dataclass(eq=False)
class Crew:
    """The gatherers of a run: `num` workers that `start` makes; with 0 the learner gathers the pieces itself.

    Curricula are asked for the starts of step k when version k - lag is published; the starts of steps that are not
    trained are saved with the ledger.
    """

    schedule: WorkSchedule
    recipe: Recipe
    weights: Weights
    start: Callable[[str], Hand]
    num: int = 0
    patience: Patience = Patience()
    ready: Callable[[], None] = lambda: None
    """Checks before compute is spent that the workers can work; AssayError if not."""
    ledger: Ledger | None = None
    starts: dict[int, np.ndarray] = field(default_factory=dict)
    """Starts of steps that are handed out and not trained."""
    lengths: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    """Decisions and rows so far: of all that arrived, then of what was trained."""
    incarnation: int = 0
    shards: int = 1
    """Shards that are sampled apart: the pieces, if there are several."""
    in_flight: bool = False
    """Whether workers take over newer weights while they sample."""

    def __post_init__(self) -> None:
        self.turn = threading.Condition()
        self.kept: dict[tuple[int, int], Found] = {}
        self.restarts, self.is_closed = Restarts(), False
        self.failure: Exception | None = None
        self.threads: list[threading.Thread] = []
        self.hands: dict[str, Hand] = {}
        self.longest, self.idle, self.since, self.progress = 0.0, 0.0, time.monotonic(), Progress()
        self.waits: dict[str, float] = {}  # workers without work, and since when their idle time is not counted yet

    # ------------------------------------------------------------------------------------------------ the loop's side
    def __call__(self, scene: Scene, states: State) -> tuple[Experience, bool]:
        """Publishes the weights, hands out what they allow, and waits for the rows of the scene's step.

        Raises WorkStopped if a worker or a piece of work fails again and again.
        """
        step, begin = scene.progress.step, time.monotonic()
        models: Any = scene.models
        self.weights.publish(step, {name: models.flats[name].snapshot() for name in models_of(self.recipe)})
        with self.turn:
            if self.ledger is None or self.ledger.step != step:  # a new run, or one that was gathered here before
                self.ledger = Ledger(self.schedule, step, step, next=(step, 0), incarnation=self.incarnation)
                self.starts.clear()
            self.ledger.published(step)
            self.progress = scene.progress
            self.open_steps(scene, states)
            self.turn.notify_all()
            hands = list(self.hands.values()) if self.in_flight or self.weights.is_read_ahead else []
        for hand in hands:
            hand.tell(step, self.weights.told(step))
        if self.num and not self.threads:
            self.threads = [threading.Thread(target=self.serve, args=(f"g{k}",), daemon=True) for k in range(self.num)]
            for thread in self.threads:
                thread.start()
        parts = self.batch(step)
        waited, found, is_rewarded = time.monotonic() - begin, list[Experience](), parts[0].is_rewarded
        for place, part in enumerate(parts):
            for name, entries in part.metrics.items():
                scene.metrics.setdefault(name, []).extend(entries)
            found.append(part.rows)
            if self.shards > 1 and not is_rewarded:
                recipe = self.recipe.at(scene.progress)
                found[-1] = apply_rewards(recipe, shard_scene(scene, place), states["rewards"], part.rows)
        rows = sort_by_episode(join_shards(found)) if self.shards > 1 else join_pieces(found)
        self.measure(scene, rows, waited)
        return rows, is_rewarded or self.shards > 1

    def open_steps(self, scene: Scene, states: State) -> None:
        """Asks the curriculum for the starts of every step that may be handed out now."""
        now, curriculum = scene.progress.step, self.recipe.at(scene.progress).curriculum
        assert curriculum is not None
        for step in range(max(self.starts, default=now - 1) + 1, min(self.schedule.steps, now + self.schedule.lag + 1)):
            there = scene
            if step != now:
                progress = replace(scene.progress, step=step)
                there = scene.given(draw=Draw(scene.draw.seed, (step,)), progress=progress)
            found = curriculum(there, states["curriculum"])
            if len(found) != self.schedule.starts:
                raise AssayError(
                    f"{type(curriculum).__name__} chose {len(found)} of {self.schedule.starts} starts at step {step}; "
                    "gatherers need all. Remove --gatherers and --pieces."
                )
            self.starts[step] = found

    def batch(self, step: int) -> list[Found]:
        """Returns the pieces of a step in order when all are there; gathers them here without workers."""
        here = None if self.num else self.start("here")
        with self.turn:
            assert self.ledger is not None
            while self.ledger.batch() is None:
                if here is not None:
                    asked = self.take("here")
                    assert asked is not None
                    self.deliver("here", asked, here.ask(asked, 0.0))
                elif self.failure is not None:
                    raise self.failure
                else:
                    self.turn.wait(TICK)  # a worker's own deadline ends this: it delivers, or the run stops
            parts = [self.kept.pop((step, piece)) for piece in range(self.schedule.pieces)]
            self.ledger.trained()
            del self.starts[step]
        return parts

    @torch.no_grad()
    def measure(self, scene: Scene, rows: Experience, waited: float) -> None:
        """Logs shares of idle time since the last batch; with a lag also staleness, lengths, and effective samples."""
        now = time.monotonic()
        passed, self.since = max(1e-9, now - self.since), now
        with self.turn:
            idle, self.idle = self.idle + sum(now - since for since in self.waits.values()), 0.0
            self.waits = dict.fromkeys(self.waits, now)
            self.lengths[2] += int(rows.mask.sum())
            self.lengths[3] += len(rows)
            every = list(self.lengths)
        if self.num:
            scene.log("idle/learner", min(1.0, waited / passed))
            scene.log("idle/gatherers", min(1.0, idle / (passed * self.num)))
        if not self.schedule.lag:
            return
        assert rows.version is not None
        age = scene.progress.step - rows.version[:, 0].long()
        scene.log("staleness", float(age.sum()), float(len(age)))
        scene.log("staleness_max", float(age.max()))
        if self.in_flight:
            scene.log("versions_per_row", float(sum(map(len, spans_of(rows)))), float(len(rows)))
        scene.log("length_generated", every[0], every[1])
        scene.log("length_trained", every[2], every[3])
        for value in age.unique().tolist():
            scene.log(f"staleness/{value}", float((age == value).sum()), float(len(age)))
            some = rows.rows((age == value).nonzero().squeeze(1)[:ROWS]).trim()
            logp = scene.models.over(
                self.recipe.behaviour, some, lambda actor, part: actor.score(part, frozenset({Need.LOGP})).logp
            )
            ratio = (logp - some.logp)[some.mask].double().exp()
            share = ratio.sum() ** 2 / (max(1, len(ratio)) * ratio.square().sum()).clamp(min=1e-30)
            scene.log(f"effective_samples/{value}", float(share))

    # ------------------------------------------------------------------------------------------------ a worker's side
    def serve(self, name: str) -> None:
        """Hands work to one worker until the crew is closed; starts it again when it is lost, as often as allowed."""
        try:
            while (asked := self.next(name)) is not None:
                begin, is_new = time.monotonic(), name not in self.hands
                try:
                    found = self.hand(name).ask(asked, self.patience.start if is_new else self.deadline)
                except Lost as lost:
                    self.hands.pop(name).end()
                    self.lose(name, str(lost))
                    continue
                with self.turn:
                    self.longest = self.longest if is_new else max(self.longest, time.monotonic() - begin)
                    self.deliver(name, asked, found)
        except Exception as error:  # the learner raises it: a thread that ends in silence would leave it waiting
            with self.turn:
                self.failure = self.failure or error
                self.turn.notify_all()

    def hand(self, name: str) -> Hand:
        """Returns the worker, which is started if it is not there."""
        if name not in self.hands:
            started = self.start(name)
            with self.turn:
                self.hands[name] = started
                if self.is_closed:
                    started.end()
        return self.hands[name]

    @property
    def deadline(self) -> float:
        """Seconds that a worker has for a piece of work."""
        known = self.patience.factor * self.longest if self.longest else self.patience.start
        return max(self.patience.least, known)

    def next(self, name: str) -> Asked | None:
        """Waits for work; None when the crew is closed or the run stops."""
        with self.turn:
            self.waits[name] = time.monotonic()
            while not self.is_closed and self.failure is None:
                asked = self.take(name)
                if asked is not None:
                    self.idle += time.monotonic() - self.waits.pop(name)
                    return asked
                self.turn.wait(TICK)
        return None

    def take(self, name: str) -> Asked | None:
        """Takes work from the ledger, to be sampled by the newest version."""
        assert self.ledger is not None
        work = self.ledger.take(name)
        if work is None:
            return None
        first = work.step * self.schedule.starts
        starts = self.starts[work.step][work.ordinals.start - first : work.ordinals.stop - first]
        progress = self.progress if work.step == self.progress.step else replace(self.progress, step=work.step)
        version, shard = self.ledger.version, (work.ordinals.start - first) // self.schedule.piece
        told = self.weights.told(version)
        return Asked(work, starts, version, progress, told, shard if self.shards > 1 else None)

    def deliver(self, name: str, asked: Asked, found: Found) -> None:
        """Keeps what the ledger accepts."""
        assert self.ledger is not None
        self.lengths[0] += int(found.rows.mask.sum())
        self.lengths[1] += len(found.rows)
        if self.ledger.deliver(name, asked.work, asked.version) is Answer.ACCEPTED:
            piece = (asked.work.ordinals.start - asked.work.step * self.schedule.starts) // self.schedule.piece
            self.kept[asked.work.step, piece] = found
            self.turn.notify_all()

    def lose(self, name: str, reason: str) -> None:
        """Hands out again what a worker had; WorkStopped if it has had its restarts."""
        with self.turn:
            assert self.ledger is not None
            self.ledger.lost(name)
            self.turn.notify_all()
            if not self.is_closed:
                self.restarts.died(name, reason)

    # ------------------------------------------------------------------------------------------------ state and end
    def snapshot(self) -> State:
        """Returns the ledger, and the starts of steps that the curriculum has chosen and that are not trained."""
        with self.turn:
            ledger = None if self.ledger is None else self.ledger.state()
            starts = {str(step): found for step, found in self.starts.items()}
            return {"ledger": ledger, "starts": starts, "lengths": list(self.lengths), "incarnation": self.incarnation}

    def restore(self, state: State) -> None:
        """Resumes: everything from the first untrained step is sampled again, from the same starts."""
        self.incarnation = int(state["incarnation"]) + 1
        self.starts = {int(step): np.asarray(found) for step, found in state["starts"].items()}
        self.lengths = list(state["lengths"])
        if state["ledger"] is not None:
            self.ledger = Ledger.of(self.schedule, state["ledger"], self.incarnation)

    def close(self, seconds: float = 10.0) -> None:
        """Ends all workers; what they were sampling is dropped."""
        with self.turn:
            self.is_closed = True
            self.turn.notify_all()
            for hand in self.hands.values():
                hand.end()
        until = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))
