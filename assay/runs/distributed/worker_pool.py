"""Where gatherers run: processes of this machine, or actors of a Ray cluster; and the gatherers of a plan.

Axes: B rows, T tokens.
"""

from __future__ import annotations

import json
import pickle
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import logp_of
from assay.core.spaces import Vocabulary
from assay.engine.gathering import needs_one_piece
from assay.engine.loop import Loop
from assay.runs.distributed.checks import check_foreign
from assay.runs.distributed.gatherers import Crew, Patience
from assay.runs.distributed.gpu_memory import CudaMemory, SharedWeights
from assay.runs.distributed.ledger import WorkSchedule
from assay.runs.distributed.ray_cluster import cluster, first_line
from assay.runs.distributed.rollout_worker import (
    NO_FLIGHT,
    Answering,
    Asked,
    Found,
    Hand,
    Here,
    Kit,
    Lost,
    RolloutWorker,
    for_sampling,
)
from assay.runs.distributed.server_worker import Served, ServerHand
from assay.runs.distributed.servers import Published, Server, as_rows, probes
from assay.runs.distributed.weights import SameMemory, WeightFiles, Weights
from assay.runs.plan import Plan
from assay.runs.signals import STOPS, end_with
from assay.runs.user_code.consent import own_sources
from assay.runs.user_code.loading import load
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.prompts import PromptTask

FOLDER = ".weights"
"""The folder inside a run's with the versions of its weights; it is removed with the gatherers."""


# ---------------------------------------------------------------------------------------------------- processes
def serve(sources: Sequence[str], sent: bytes, pipe: Connection, life: Connection, news: Connection) -> None:
    """Samples in the child process until the pipe or the learner ends; `news` are versions that arrive meanwhile."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)  # a terminal signals all: the learner saves, and ends its gatherers
    end_with(life)
    answer = Answering(unpickled(sources, sent))
    threading.Thread(target=listen, args=(answer, news), daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(pickle.dumps(answer(pickle.loads(pipe.recv_bytes()))))


def listen(answer: Answering, news: Connection) -> None:
    """Fetches the versions that the learner tells of, beside what is being sampled."""
    with suppress(EOFError, OSError):
        while True:
            version, told = json.loads(news.recv_bytes())
            while news.poll():  # an older one would only delay the newest
                version, told = json.loads(news.recv_bytes())
            if answer.sampler is not None:
                answer.sampler.hear(version, told)


def unpickled(sources: Sequence[str], sent: bytes) -> Kit:
    """Returns the kit, after the own code that it is made of is loaded."""
    for source in sources:
        load(source)
    kit: Kit = pickle.loads(sent)
    return kit


class ProcessHand(Hand):
    """A process of this machine. One that misses a deadline is killed, also if it is stopped."""

    lock = threading.Lock()  # multiprocessing keeps a list of children that threads may not change together

    def __init__(self, name: str, sources: Sequence[str], sent: bytes) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.pipe, pipe = context.Pipe()
        self.life, life = context.Pipe()
        self.news, news = context.Pipe()
        self.asked = NO_WORK
        self.process = context.Process(target=serve, args=(sources, sent, pipe, life, news), name=f"gatherer {name}")
        with self.lock:
            self.process.start()
        for end in (pipe, life, news):
            end.close()

    def ask(self, asked: Asked, seconds: float) -> Found:
        """Sends the work and waits for its rows; at the deadline the process is killed, which ends the wait."""
        begin, timer = time.monotonic(), threading.Timer(seconds, self.process.kill)
        timer.daemon = True
        timer.start()
        self.asked = asked.version
        try:
            self.pipe.send_bytes(pickle.dumps(asked))
            answer = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise Lost(self.cause(time.monotonic() - begin >= seconds, seconds)) from None
        finally:
            self.asked = NO_WORK
            timer.cancel()
        return answered(answer)

    def tell(self, version: int, told: str) -> None:
        """Sends the version, if the process samples with an older one: one without work is told with its next, and has
        no deadline.
        """
        with suppress(OSError):  # it died, which its own thread finds out
            if self.asked < version:
                self.news.send_bytes(json.dumps([version, told]).encode())

    def cause(self, is_late: bool, seconds: float) -> str:
        """Returns why the process is not there."""
        self.process.join(TAKES)
        code = self.process.exitcode
        end = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        return f"it missed its deadline of {seconds:.3g} s" if is_late else f"its process died, {end}"

    def end(self) -> None:
        with self.lock:
            self.process.kill()
            self.process.join(TAKES)


NO_WORK = 1 << 62
"""In place of the version that a process samples with: no newer one matters."""
TAKES = 10.0
"""Seconds in which a killed process is gone."""


def answered(answer: Found | str) -> Found:
    """Returns the rows; AssayError with the words of a gatherer that cannot sample."""
    if isinstance(answer, str):
        raise AssayError(f"a gatherer stopped: {answer}")
    return answer


# ---------------------------------------------------------------------------------------------------- Ray
class Actor:
    """A sampler inside a Ray actor."""

    def __init__(self, sources: Sequence[str], sent: bytes) -> None:
        self.answer = Answering(unpickled(sources, sent))

    def gather(self, asked: bytes) -> bytes:
        """Returns the rows of a piece of work, or an error in words."""
        return pickle.dumps(self.answer(pickle.loads(asked)))


class RayHand(Hand):
    """An actor of one core on a Ray cluster."""

    def __init__(self, ray: Any, sources: Sequence[str], sent: bytes) -> None:
        self.ray = ray
        self.actor = self.ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor).remote(sources, sent)

    def ask(self, asked: Asked, seconds: float) -> Found:
        """Sends the work and waits for its rows."""
        try:
            answer = self.ray.get(self.actor.gather.remote(pickle.dumps(asked)), timeout=seconds)
        except self.ray.exceptions.GetTimeoutError:
            raise Lost(f"it missed its deadline of {seconds:.3g} s") from None
        except self.ray.exceptions.RayError as error:
            raise Lost(f"its actor died, {first_line(error)}") from None
        return answered(pickle.loads(answer))

    def end(self) -> None:
        self.ray.kill(self.actor)


# ---------------------------------------------------------------------------------------------------- of a plan
@contextmanager
def gatherers_of(plan: Plan, loop: Loop, folder: Path, patience: Patience = Patience()) -> Iterator[Crew | None]:
    """Gives the loop the gatherers of its plan, if it has any, and ends them afterwards. No process is started before
    the first step. Call it with the folder locked.
    """
    options, recipe = plan.options.gathering, plan.recipe
    if not options.is_used:
        yield None
        return
    assert recipe.rollout is not None
    starts = recipe.rollout.num_starts
    shards = 1 if needs_one_piece(loop.states) else plan.placement.shards
    pieces = shards if plan.placement.shards > 1 else options.pieces
    schedule = WorkSchedule(plan.last_step, starts, lag=options.lag, piece=-(-starts // pieces))
    with ExitStack() as stack:
        if options.num:
            keep, device = options.lag + 1, plan.placement.device
            files = WeightFiles(folder.absolute() / FOLDER, keep, device=device)
            shutil.rmtree(files.folder, ignore_errors=True)  # left by a process that was killed
            stack.callback(shutil.rmtree, files.folder, ignore_errors=True)
            if options.server:
                published, start, ready = on_servers(plan, loop, files)
                crew = Crew(schedule, recipe, published, start, options.num, patience, ready)
            else:
                weights: Weights = SharedWeights(CudaMemory(device), keep) if options.ipc else files
                start = starter(plan, loop, weights, folder.absolute(), stack)
                crew = Crew(schedule, recipe, weights, start, options.num, patience, in_flight=options.in_flight)
        else:
            memory = SameMemory()
            here = Here(RolloutWorker(recipe, plan.task, loop.engine, plan.seed, memory))
            crew = Crew(schedule, recipe, memory, lambda name: here)
        crew.shards = shards
        stack.callback(crew.close)
        loop.gatherers = crew
        yield crew


def on_servers(plan: Plan, loop: Loop, files: WeightFiles) -> tuple[Weights, Callable[[str], Hand], Callable[[], None]]:
    """Returns the weights of servers, the function that makes one a worker by name, and one that checks them all."""
    recipe, vocabulary = plan.recipe, plan.task.spec.action
    if not isinstance(plan.task, PromptTask | DialogueTask) or not isinstance(vocabulary, Vocabulary):
        raise AssayError(f"--server answers prompts and dialogues; '{plan.task.name}' has none. Remove --server.")
    rows = as_rows(probes(vocabulary), vocabulary)

    def score() -> Tensor:
        with torch.no_grad():
            return loop.engine.over(recipe.behaviour, rows, logp_of)[:, 1:].float().cpu()

    published = Published(files, recipe.behaviour, score)
    servers = [Server(url, vocabulary) for url in plan.options.gathering.server]

    def ready() -> None:
        published.publish(0, {recipe.behaviour: loop.engine.flats[recipe.behaviour].snapshot()})
        for server in servers:
            server.check()
            if server.is_foreign:
                check_foreign(server.url, recipe)
            server.prepare(published.fetch(0))
        shutil.rmtree(files.folder)  # the first step publishes its own, under the same number

    def start(name: str) -> Hand:
        server = replace(servers[int(name[1:])], version="")
        return ServerHand(Served(server, recipe, plan.task, loop.engine, plan.seed, published))

    return published, start, ready


def starter(plan: Plan, loop: Loop, weights: Weights, folder: Path, stack: ExitStack) -> Callable[[str], Hand]:
    """Returns the function that starts a worker by name; AssayError if the task cannot be sent to one."""
    in_flight = plan.options.gathering.in_flight
    if in_flight and not isinstance(plan.task.spec.action, Vocabulary):
        raise AssayError(f"--in-flight, but '{plan.task.name}' has no answers of tokens. {NO_FLIGHT}.")
    num = sum(flat.num_parameters for flat in loop.engine.flats.values())
    where = replace(plan.placement, ranks=1, sharded=False)
    kit = Kit(for_sampling(plan.recipe), plan.task, plan.seed, where, num, weights, in_flight)
    try:
        sent: bytes = pickle.dumps(kit)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise AssayError(
            f"task '{plan.task.name}' cannot be sent to another process ({error}). Remove --gatherers."
        ) from None
    sources = tuple({**own_sources(plan.recipe), **own_sources(plan.task)})
    if not plan.options.gathering.on_:
        return lambda name: ProcessHand(name, sources, sent)
    ray, _ = stack.enter_context(cluster(plan.options.gathering.on_, folder))
    return lambda name: RayHand(ray, sources, sent)
