"""A server as a worker of a run: its thread in the learner's process asks it for the rows of pieces of work."""

from __future__ import annotations

import time

from assay.core.recipe import Recipe
from assay.core.record import State
from assay.core.slots import Task
from assay.engine.engine import Engine
from assay.runs.distributed import servers
from assay.runs.distributed.rollout_worker import Asked, Found, Hand, RolloutWorker
from assay.runs.distributed.servers import Server
from assay.runs.distributed.weights import Weights


class Served(RolloutWorker):
    """A sampler in the learner's process whose policy is a server."""

    def __init__(self, server: Server, recipe: Recipe, task: Task, engine: Engine, seed: int, weights: Weights) -> None:
        super().__init__(recipe, task, engine, seed, weights)
        self.server = server

    @property
    def actor(self) -> Server:
        return self.server

    def load(self, tree: State) -> None:
        self.server.update(tree)


class ServerHand(Hand):
    """A server as its thread sees it."""

    def __init__(self, sampler: Served) -> None:
        self.sampler, self.has_answered = sampler, False

    def ask(self, asked: Asked, seconds: float) -> Found:
        """Samples; the first time, or after the server was lost, when it is there."""
        if not self.has_answered:
            self.sampler.server.wait(servers.AWAY)
            self.has_answered = True
        self.sampler.server.until = time.monotonic() + seconds
        return self.sampler(asked)

    def end(self) -> None:
        """Ends the requests under way; the server stays."""
        self.sampler.server.close()
