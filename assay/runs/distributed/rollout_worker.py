"""A sampler: gathers pieces of work with weights that it fetches by version, in any process.

A hand is a process that has one, as the thread that hands it work sees it.
"""

from __future__ import annotations

import threading
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Progress, State
from assay.core.slots import Scene, Task
from assay.decoding.weight_versions import VersionedActor
from assay.engine.engine import Engine
from assay.engine.gathering import apply_rewards, roll_out, shard_scene
from assay.engine.machine import tuned
from assay.engine.placement import Placement
from assay.runs.distributed.ledger import Work
from assay.runs.distributed.weights import Weights, WeightsMissing

NO_FLIGHT = "Use a task of prompts or dialogues with rollout Episodes, or remove --in-flight"


@dataclass(frozen=True)
class Asked:
    """A piece of work with its starts, the version to sample with, the progress that schedules see, and what the
    weights are fetched with (`Weights.told`).
    """

    work: Work
    starts: np.ndarray
    version: int
    progress: Progress
    told: str = ""
    shard: int | None = None
    """The shard that the starts are, if the step is cut into shards."""


@dataclass(frozen=True)
class Found:
    """The rows of a piece, whether they are rewarded already, and the (sum, count) metrics that parts logged."""

    rows: Experience
    is_rewarded: bool
    metrics: Mapping[str, list[tuple[float, float]]]


class Lost(Exception):
    """A worker died or missed its deadline; the message says which."""


def models_of(recipe: Recipe) -> tuple[str, ...]:
    """Returns the models that gathering uses: the acting policy, and those that the rollout and rewards read."""
    parts = (*recipe.rewards, *((recipe.rollout,) if recipe.rollout else ()))
    return tuple(dict.fromkeys([recipe.behaviour, *(name for part in parts for name in part.models)]))


def for_sampling(recipe: Recipe) -> Recipe:
    """Returns the recipe without the parts that only train: no optimizer, no model that gathering does not use."""
    used = models_of(recipe)
    copies = {name: copy for name, copy in recipe.copies.items() if name in used}
    needed = {*used, *(copy.of for copy in copies.values())}
    critics = {name: critic for name, critic in recipe.critics.items() if name in needed}
    lean = replace(recipe, stages=(), credit=(), constraints=(), select=None, certificate=None, wrapper=None, before=())
    return replace(lean, critics=critics, copies=copies)


class RolloutWorker:
    """Gathers pieces of work with an engine whose weights are fetched by version."""

    def __init__(self, recipe: Recipe, task: Task, engine: Engine, seed: int, weights: Weights) -> None:
        self.recipe, self.task, self.engine, self.seed, self.weights = recipe, task, engine, seed, weights
        self.names, self.version = models_of(recipe), -1
        self.is_in_flight, self.arrived = False, deque[tuple[int, State]](maxlen=1)
        self.reading = threading.Lock()
        scene = Scene(task, engine, Draw(seed))
        assert recipe.rollout is not None
        self.rollout_state = recipe.rollout.init(scene)
        self.reward_states = [part.init(scene) for part in recipe.rewards]

    @property
    def actor(self) -> Any:
        """The policy that decides."""
        return self.engine.models[self.recipe.behaviour]

    def load(self, tree: State) -> None:
        """Takes over the weights of a version."""
        for name in self.names:
            self.engine.flats[name].restore(tree[name])

    def hear(self, version: int, told: str) -> None:
        """Fetches a version beside what is being sampled, for `newest`. Call it from another thread."""
        # Missing: an even newer one is there, which is told of too. Too large: it is fetched when it is asked for.
        with self.reading, suppress(WeightsMissing, torch.OutOfMemoryError):
            if version > self.version:
                self.arrived.append((version, self.weights.fetch(version, told)))

    def newest(self, most: float = inf) -> int:
        """Takes over the weights that have arrived, if they are newer and up to version `most`; returns the version."""
        while self.arrived and self.arrived[-1][0] <= most:
            version, tree = self.arrived.pop()
            if version > self.version:
                self.load(tree)
                self.version = version
        return self.version

    def turn_to(self, asked: Asked) -> None:
        """Takes over the version that is asked for, which may have arrived; in flight also a newer one."""
        newest = self.newest() if self.is_in_flight else self.version
        if newest == asked.version or (self.is_in_flight and newest > asked.version):
            return
        with self.reading:  # it may be on its way
            if self.newest(asked.version) != asked.version:
                self.version = -1  # what was partly loaded is no version
                self.load(self.weights.fetch(asked.version, asked.told))
                self.version = asked.version

    def __call__(self, asked: Asked) -> Found:
        """Returns the rows of a piece of work; each decision has the version of the weights that sampled it."""
        self.turn_to(asked)
        recipe = self.recipe.at(asked.progress)
        scene = Scene(self.task, self.engine, Draw(self.seed, (asked.work.step,)), asked.progress)
        scene = scene if asked.shard is None else shard_scene(scene, asked.shard)

        def reward(rows: Experience) -> Experience:
            if any(self.reward_states):
                raise AssayError(
                    f"{type(recipe.rollout).__name__} uses rewards while it gathers, and a reward has a state, which "
                    "belongs to the learner. Remove --gatherers and --pieces."
                )
            return apply_rewards(recipe, scene, self.reward_states, rows)

        first, actor = self.version, VersionedActor(self.actor, self.newest) if self.is_in_flight else self.actor
        here = scene.given(actor=actor, starts=asked.starts)
        rows, is_rewarded = roll_out(recipe, here, self.rollout_state, reward)
        version = torch.full(rows.mask.shape, first, dtype=torch.int32)
        if self.is_in_flight:
            if rows.version is None:
                raise AssayError(f"{type(recipe.rollout).__name__} does not say which weights decided. {NO_FLIGHT}.")
            version = torch.where(rows.mask, rows.version.int(), version)
        return Found(rows.with_columns(version=version), is_rewarded, scene.metrics)


def spans_of(rows: Experience) -> list[list[tuple[int, int, int]]]:
    """Returns the spans (version, first, end) of each row: places among its decisions, in order."""
    assert rows.version is not None
    found = []
    for version, mask in zip(rows.version, rows.mask, strict=True):
        values, counts = version[mask].unique_consecutive(return_counts=True)
        ends = counts.cumsum(0)
        found.append(list(zip(values.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True)))
    return found


@dataclass(frozen=True)
class Kit:
    """Everything that a worker process needs to make its sampler; it travels as a pickle."""

    recipe: Recipe
    task: Task
    seed: int
    placement: Placement
    num_parameters: int
    weights: Weights
    in_flight: bool = False
    """Whether weights change while rows are sampled."""

    def sampler(self) -> RolloutWorker:
        """Returns a sampler with models of its own."""
        engine = Engine(self.recipe, self.task.spec, self.seed, self.placement)
        made = RolloutWorker(self.recipe, self.task, engine, self.seed, self.weights)
        made.is_in_flight = self.in_flight
        return made


class Answering:
    """Answers requests in a worker process: with rows, or with an error in words. Its sampler is made for the first."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.sampler: RolloutWorker | None = None

    def __call__(self, asked: Asked) -> Found | str:
        """Samples."""
        shards = self.kit.placement.shards  # whose share of the threads decides bits
        with tuned(self.kit.num_parameters, None if shards > 1 else 1, shards=shards):
            try:
                self.sampler = self.sampler or self.kit.sampler()
                return self.sampler(asked)
            except AssayError as error:
                return str(error)
            except Exception as error:  # it would come again: the run stops with it, and the trace is on this terminal
                traceback.print_exc()
                return f"{type(error).__name__}: {error}"


class Hand(ABC):
    """A worker process as its thread sees it."""

    @abstractmethod
    def ask(self, asked: Asked, seconds: float) -> Found:
        """Returns the rows of a piece of work. Lost if the process dies or needs longer; AssayError as it says."""

    def tell(self, version: int, told: str) -> None:  # noqa: B027
        """Tells a worker that samples with older weights of newer ones, if it can be told."""

    @abstractmethod
    def end(self) -> None:
        """Ends the process at once."""


class Here(Hand):
    """A sampler in this process."""

    def __init__(self, sampler: RolloutWorker) -> None:
        self.sampler = sampler

    def ask(self, asked: Asked, seconds: float) -> Found:
        """Samples."""
        return self.sampler(asked)

    def tell(self, version: int, told: str) -> None:
        """Fetches them in the learner's thread."""
        self.sampler.hear(version, told)

    def end(self) -> None:
        """Does nothing."""
