"""Runs a recipe: a self-describing folder, checkpoints, signals, and exact resume.

A run is recipe + task + seed + steps. Killed at any moment and resumed, it equals the uninterrupted run bitwise (CPU).

Weights have the shapes of parameters.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError, DataWarning
from assay.core.faults import TRACEBACK
from assay.engine import evaluation
from assay.engine.engine import Engine
from assay.engine.gloo import RankLost
from assay.engine.loop import Loop
from assay.engine.machine import repeatable, tuned
from assay.engine.placement import Placement
from assay.runs import hardware
from assay.runs.agents import run_folder
from assay.runs.argument_kinds import kinds_checked
from assay.runs.checks import check_shards, checked_path, checked_steps
from assay.runs.deploy import with_predict
from assay.runs.distributed.checks import check_gathering
from assay.runs.distributed.ledger import WorkStopped
from assay.runs.distributed.ranks import Team
from assay.runs.distributed.worker_pool import gatherers_of
from assay.runs.folder import CONTENTS, README, Journal
from assay.runs.given import (
    DEFAULT_METHOD,
    DEMONSTRATION,
    MethodLike,
    default_task,
    given_data,
    given_method,
    given_task,
)
from assay.runs.given_model import given_model
from assay.runs.keywords import Keywords, with_keywords
from assay.runs.library_versions import check_base
from assay.runs.options import RunOptions
from assay.runs.phases import before
from assay.runs.plan import WARMUP, Plan, make_plan, plan_of
from assay.runs.progress import Mode
from assay.runs.restoring import fitting, restore
from assay.runs.result import Run as Run
from assay.runs.signals import Stopped, resume_command, stop_signals
from assay.runs.sinks import Sink
from assay.runs.user_code.known_runs import trust
from assay.runs.user_code.objects import remember
from assay.runs.user_code.running import kept_traceback, own_code
from assay.runs.user_code.workers.crew import crew_of
from assay.runs.user_code.workers.parts import in_workers
from assay.runs.warm_start import chosen, weights_from
from assay.runs.worker import Callback, Listeners, Worker

PHASE = "phase-1-" + WARMUP
"""The folder of the supervised phase inside a run's; the k-th phase NAME is in phase-k-NAME."""
OWN_NAMES = {*CONTENTS, "tensorboard"} - {README}
"""Files that may exist in the folder of a new run."""


# ---------------------------------------------------------------------------------------------------- executing
@contextmanager
def within_memory(placement: Placement, folder: Path) -> Iterator[None]:
    """Turns an out-of-memory error into one that names the options that need less memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        rows, tokens = f"--micro-batch, now {placement.micro_batch}", f"--tokens, now {placement.at_once:,}"
        raise AssayError(
            f"out of memory on '{placement.device}' ({str(error).split('. ')[0]}). Restart with a smaller micro-batch "
            f"({tokens if placement.at_once else rows}), gradient checkpointing (--recompute), or LoRA "
            f"(--set lora.rank=16). The last checkpoint is in {folder}"
        ) from error


def execute(
    plan: Plan,
    folder: Path,
    *,
    mode: Mode | None = None,
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Callback] = (),
    weights: Mapping[str, Tensor] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Run:
    """Starts the plan in `folder`, or resumes from the folder's last checkpoint. Models start from `weights`, parts
    from the states in `data` that they request by name. `callbacks` and `sinks` are told of every step.
    """
    for one in callbacks:
        if not callable(one):
            raise AssayError(f"callback {one!r:.60} cannot be called. Give a function of step, metrics and policy.")
    for sink in sinks:
        if not all(callable(getattr(sink, name, None)) for name in ("write", "close")):
            raise AssayError(f"sink {sink!r:.60} has no write and close. Give one of assay.runs.sinks.")
    listeners = Listeners(tuple(callbacks), tuple(sinks))
    try:
        with kept_traceback(folder), repeatable(plan.placement.deterministic), Team(plan.placement.ranks) as team:
            run = executed(plan, folder, team, mode=mode, listeners=listeners, weights=weights, data=data)
            (folder / TRACEBACK).unlink(missing_ok=True)  # of an error before it was resumed
            return run
    except (RankLost, WorkStopped) as error:
        raise type(error)(f"{str(error).rstrip('.')}. Resume with: {resume_command(folder)}") from error


def executed(
    plan: Plan,
    folder: Path,
    team: Team,
    *,
    mode: Mode | None = None,
    listeners: Listeners = Listeners(),
    weights: Mapping[str, Tensor] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Run:
    """Does what `execute` does, on the ranks of a team, which the phases of a run share."""
    check_folder(folder)
    with within_memory(plan.placement, folder):
        recipe = in_workers(plan.recipe, plan.options.own.limits, plan.options.own.reward_timeout)
        loop = Loop(recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=plan.placement)
    if plan.recipe.certificate is not None:  # refuses a task with too few held-out prompts
        evaluation.certified_starts(plan.task, plan.recipe.certificate.num_starts)
    memory = within_memory(plan.placement, folder)
    own = own_code(plan.accepted, folder)
    gatherers, workers = gatherers_of(plan, loop, folder), crew_of(folder)
    with (
        memory, store.lock(folder), own, gatherers as crew, stop_signals() as signal_seen, workers,
        Journal(folder) as journal,
    ):  # fmt: skip
        try:
            worker = Worker(plan, folder, loop, journal, lambda: signal_seen() or loop.engine.ranks.signal)
            if crew is not None and not worker.is_over:
                crew.ready()
            handed = {} if worker.scores else started(plan, folder, loop, mode, weights, data, team)
            with tuned(worker.num_parameters, bfloat16=loop.engine.bfloat16, shards=plan.placement.shards):
                if team.num > 1 and not worker.is_over:
                    team.lead(plan, loop, {**(data or {}), **handed}, folder)
                run = worker.work(mode, listeners)
        except KeyboardInterrupt:
            how = "interrupted; steps after the last checkpoint will be repeated"
            raise Stopped(folder, signal_seen() or signal.SIGINT, how) from None
        if signal_seen():  # a signal during the last writes also stops the runs that follow
            raise Stopped(folder, signal_seen(), "stopped after it had finished")
        return run


def started(
    plan: Plan,
    folder: Path,
    loop: Loop,
    mode: Mode | None,
    weights: Mapping[str, Tensor] | None,
    data: Mapping[str, Any] | None,
    team: Team,
) -> dict[str, Any]:
    """Runs the phases before a recipe and loads the weights that it starts with; returns what the phases hand on."""
    warm = weights_from(plan.start, loop.engine, plan.recipe.copies) if plan.start else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # what is odd about the run's data was said before its phases
        begun, handed = before(plan, folder, mode, {**warm, **(weights or {})}, partial(executed, team=team))
    loop.engine.load(begun, plan.recipe)
    if data or handed:
        loop.begin({**(data or {}), **handed})
    return handed


def check_folder(folder: Path) -> None:
    """Refuses a folder with other files, which a run would overwrite."""
    try:
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise AssayError(f"{folder} is a file, not a folder. Choose another --out.") from None
    others = {name for name in names - OWN_NAMES if not name.startswith("phase-")}
    if "config.json" not in names and others:
        other = ", ".join(sorted(others)[:3])
        raise AssayError(f"{folder} is not a run folder and not empty (it holds {other}). Choose another --out.")


# ---------------------------------------------------------------------------------------------------- public functions
@kinds_checked
def train(
    method: MethodLike | None = None,
    task: Any = None,
    *,
    steps: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    warmup: int | None = None,
    evaluations: int | None = None,
    placement: Placement | None = None,
    model: Any = None,
    data: Any = (),
    preset: str | None = None,
    options: RunOptions = RunOptions(),
    callbacks: Sequence[Callback] = (),
    sinks: Sequence[Sink] = (),
    mode: Mode | None = None,
    **keywords: Unpack[Keywords],
) -> Run:
    """Trains a method on a task and returns the run; without a method, as `assay train` alone, a demonstration of a few
    minutes. A method is a name, a `Recipe`, a `METHOD`, or a function `recipe(preset)`. A task is a name, a file, a
    `Task`, a class of Gymnasium environments, a function that makes one, or rows: a list of dicts, a
    `datasets.Dataset`, a table of pandas, or a pair (training, held-out) of them; None is the method's default task.

    `out` defaults to runs/<method>-<task>-<seed>. If the folder holds an unfinished run with the same settings, it is
    resumed; with other settings it is an error. On language tasks, training starts with `warmup` supervised steps on
    the task's demonstrations; `model`, a folder, a hub id or (model, tokenizer) of transformers, replaces the small
    transformer by a pretrained language model. `data` are files (see `assay.datasets.files`), datasets or dicts of
    arrays that replace the recipe's own offline datasets. `preset` names a set of default settings: classic, mujoco
    or d4rl; None takes that of the task. Without a `placement` a pretrained model is trained on a GPU if there is
    one (see `assay.runs.hardware`), anything else on the CPU. The other options of the command line are keywords of
    the same name, `max_tokens=300, reward=f` (see `assay.runs.keywords`), or stand in `options`; a reward or tool
    is an address or a function, several, or a mapping from each to its weight, a judge, loss, advantage, body or
    wrapper is an address or an object.

    A callback is called after every step with (step, metrics, policy); the text that it returns, or True, ends the run
    for that reason. A sink gets the metrics, times and alarms of every step (see `assay.runs.sinks`).
    """
    if method is None:
        method = DEFAULT_METHOD
        asked = {"task": task, "steps": steps, "warmup": warmup}
        task, steps, warmup = (DEMONSTRATION[name] if value is None else value for name, value in asked.items())
    method, model, data = given_method(method), given_model(model), given_data(data)
    task = default_task(method, data) if task is None else given_task(task)
    options, placement, given = with_keywords(options, placement, keywords, ("callbacks", "sinks"))
    if placement is None or given:
        placement, options = hardware.chosen(model, options, settings or {}, placement or Placement(), **given)
    plan = make_plan(
        method, task, steps=steps, seed=seed, settings=settings, warmup=warmup, evaluations=evaluations,
        placement=placement, model=model, data=data, preset=preset, options=options,
    )  # fmt: skip
    named = Path("runs") / f"{plan.recipe.name}-{plan.task.name}-{seed}"
    folder = named if out is None else checked_path(out, "out")
    return execute(plan, folder, mode=mode, callbacks=callbacks, sinks=sinks)


@kinds_checked
def resume(
    folder: str | Path,
    *,
    more_steps: int = 0,
    callbacks: Sequence[Callback] = (),
    sinks: Sequence[Sink] = (),
    mode: Mode | None = None,
    accept_changed_code: bool = False,
    trust_code: bool = False,
    ranks: int | None = None,
    gatherers: int | None = None,
    functions: Sequence[Any] | Mapping[str, Any] = (),
) -> Run:
    """Resumes an interrupted run, with changed own code only if that is accepted; loads a finished one, or trains it
    for `more_steps`. `ranks` and `gatherers` replace the numbers of processes that the run had. `functions` are the
    Python objects that the run was made with (functions, classes, objects by name), if this process does not know them.
    `trust_code` allows, from now on, the code that a folder names which this user did not start on this machine.

    Schedules (learning rates, exploration) have ended with the planned steps and stay at their last value: a rate that
    went to 0 stays 0.
    """
    remember(functions)
    if trust_code:
        trust(checked_path(folder, "folder"))
    plan = extended(plan_of(folder, accept_changed_code=accept_changed_code), Path(folder), more_steps)
    if ranks is not None:
        sharded = plan.placement.sharded and ranks > 1
        plan = replace(plan, placement=replace(plan.placement, ranks=ranks, sharded=sharded))
        check_shards(plan.placement)
    if gatherers is not None:
        plan = with_gatherers(plan, gatherers)
    return execute(plan, Path(folder), mode=mode, callbacks=callbacks, sinks=sinks)


def with_gatherers(plan: Plan, num: int) -> Plan:
    """Returns the plan with this many processes that sample; lag and pieces, which decide numbers, stay."""
    gathering = replace(plan.options.gathering, gatherers=num)
    gathering.check()
    check_gathering(gathering, plan.recipe, plan.placement)
    return replace(plan, options=replace(plan.options, gathering=gathering))


def extended(plan: Plan, folder: Path, more_steps: int) -> Plan:
    """Returns the plan of a finished run with more steps after its last one."""
    if not more_steps:
        return plan
    steps, there = checked_steps(more_steps), store.load(folder / "checkpoints")
    if there is None or (there.step < plan.last_step and "ended" not in there.tree):
        done = 0 if there is None else there.step
        raise AssayError(
            f"--more-steps is {steps}, but {folder} is at step {done} of {plan.last_step}. Finish it first: "
            f"{resume_command(folder)}"
        )
    return replace(plan, more_steps=there.step + steps - plan.steps)


@dataclass(frozen=True)
class Loaded:
    """The models of a checkpoint, without the simulations, data and states that only training needs."""

    policy: Any
    reference: Any
    step: int


class Kept(NamedTuple):
    """What `load` reads of a checkpoint: the policy to act with, the plan of its run, and the step."""

    policy: Any
    plan: Plan
    step: int


def load(
    folder: str | Path,
    checkpoint: str | int | None = None,
    *,
    accept_changed_code: bool = False,
    trust_code: bool = False,
) -> Kept:
    """Returns (policy, plan, step) of a checkpoint, by these names too: of the newest, of that of a step, or of "best",
    the one with the best held-out score of those that are kept. A control policy has `predict(observation)`.
    `folder` is a run's, an exported agent's, or a hub id `owner/name[@revision]` of one. `trust_code` as in `resume`.
    """
    path = run_folder(checked_path(folder, "folder"))
    if trust_code:
        trust(path)
    plan = plan_of(path, accept_changed_code=accept_changed_code, device=hardware.device_here(path, None))
    found = loaded(plan, path, checkpoint)
    return Kept(with_predict(found.policy, plan.task), plan, found.step)


def loaded(plan: Plan, folder: Path, which: str | int | None = None) -> Loaded:
    """Returns the policies of a checkpoint of a plan's run; see `load`."""
    engine, step = loaded_engine(plan, folder, which)
    reference = engine.models["reference"] if "reference" in plan.recipe.copies else None
    return Loaded(plan.recipe.policy(engine.models), reference, step)


def loaded_engine(plan: Plan, folder: Path, which: str | int | None = None) -> tuple[Engine, int]:
    """Returns (engine, step) of a checkpoint of a plan's run; see `load`."""
    checkpoint = chosen(folder, which)
    engine = Engine(plan.recipe, plan.task.spec, plan.seed, plan.placement)
    check_base(folder, plan, engine)
    with fitting(checkpoint, folder):
        engine.restore_models(checkpoint.tree["loop"]["engine"])
    return engine, checkpoint.step


def restored(plan: Plan, folder: Path, which: str | int | None = None) -> tuple[Loop, int]:
    """Returns (loop, step) of a checkpoint of a plan's run, with the states of its parts; see `load`."""
    checkpoint = chosen(folder, which)
    loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=plan.placement)
    check_base(folder, plan, loop.engine)
    restore(loop, checkpoint, folder)
    return loop, checkpoint.step
