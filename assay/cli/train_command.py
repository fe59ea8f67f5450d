"""`assay train` and `assay resume`: one run, several seeds in parallel, or more steps of a finished run."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.cli.options import plan_arguments
from assay.core import store
from assay.core.errors import AssayError
from assay.engine.placement import Placement
from assay.report import tables
from assay.runs import catalogue
from assay.runs import sinks as log_sinks
from assay.runs.checks import checked_seeds
from assay.runs.distributed.ranks import followed
from assay.runs.given import DEFAULT_METHOD, DEMONSTRATION, default_task
from assay.runs.jobs import Failure, run_jobs
from assay.runs.options import RunOptions
from assay.runs.plan import Plan, make_plan, plan_of
from assay.runs.pools import Job
from assay.runs.progress import Mode
from assay.runs.resolved import anchored
from assay.runs.run import Run, execute
from assay.runs.run import resume as resume_run

UNCERTIFIED = 4
"""Exit code of a training run whose certificate does not hold."""


def train(options: argparse.Namespace) -> int:
    """`assay train`."""
    if followed(options.ranks):
        return 0
    if options.more_steps is not None:
        return train_more(options)
    name = options.name or DEFAULT_METHOD
    if options.name is None:
        for setting, value in DEMONSTRATION.items():
            if vars(options)[setting] is None:
                setattr(options, setting, value)
    checked_seeds(options.seeds)
    if options.name == "" or options.wandb == "":
        raise AssayError(f"{'the method' if options.name == '' else '--wandb'} is empty. Leave it out, or name one.")
    task = default_task(name, options.data) if options.task is None else options.task
    chosen, seeds = plan_arguments(options), range(options.seed, options.seed + options.seeds)
    plans = [make_plan(name, task, seed=seed, **chosen) for seed in seeds]
    base = options.out or Path("runs") / f"{plans[0].recipe.name}-{plans[0].task.name}"
    if len(plans) > 1 and (base / "config.json").exists():
        raise AssayError(
            f"{base} holds one run, and --seeds {options.seeds} needs a folder of several. Use another --out."
        )
    folders = [seed_folder(base, plan.seed, len(plans) > 1) for plan in plans]
    workers = parallel_seeds(options, plans[0].placement, len(plans))
    if workers > 1:
        pairs = zip(plans, folders, strict=True)
        jobs = [Job(name, task, plan.seed, folder, name, {**chosen, "evaluations": None}) for plan, folder in pairs]
        train_together(jobs, workers, quiet=options.json)
    runs = []
    for plan, folder in zip(plans, folders, strict=True):  # what was trained in parallel is only read here
        with opened_sinks(options, folder, plan) as sinks:
            runs.append(execute(plan, folder, mode=Mode.SILENT if options.json or workers > 1 else None, sinks=sinks))
    return print_runs(runs, base, options)


def seed_folder(base: Path, seed: int, several: bool) -> Path:
    """Returns the run folder of one seed."""
    return base / f"seed-{seed}" if several else base


def print_runs(runs: Sequence[Run], base: Path, options: argparse.Namespace) -> int:
    """Prints the results; returns the exit code."""
    if options.json:
        print(json.dumps([tables.run_facts(run) for run in runs], indent=2))
    else:
        tables.print_results(runs, base)
    return UNCERTIFIED if any(run.certificate and not run.certificate.holds for run in runs) else 0


# ---------------------------------------------------------------------------------------------------- several seeds
def parallel_seeds(options: argparse.Namespace, where: Placement, seeds: int) -> int:
    """Returns how many seeds train at once: as asked, else one per core, or in turn on a GPU, with ranks or sinks."""
    if options.jobs is not None and options.jobs < 1:
        raise AssayError(f"--jobs is {options.jobs}. Use at least 1.")
    alone = where.is_on_gpu or options.tensorboard or bool(options.wandb) or options.ranks > 1
    if alone and (options.jobs or 1) > 1:
        when = "on a GPU, with --ranks, --tensorboard or --wandb"
        raise AssayError(f"--jobs is {options.jobs}. Seeds {when}, train in turn.")
    return min(seeds, options.jobs or (1 if alone else os.cpu_count() or 1))


def train_together(jobs: Sequence[Job], workers: int, *, quiet: bool) -> None:
    """Trains the seeds in parallel, each in a process of its own, and prints a line for each.

    A seed that had finished is not trained again, an interrupted one is resumed. AssayError if a seed failed.
    """
    failed: list[Failure] = []
    for place, outcome in enumerate(run_jobs(jobs, workers), 1):
        words = outcome.reason if isinstance(outcome, Failure) else f"held-out score {outcome.score:.4g}"
        failed += [outcome] if isinstance(outcome, Failure) else []
        if not quiet:
            tables.console().print(f"seed {outcome.job.seed}: {words} ({place} of {len(jobs)})", markup=False)
    if failed:
        which = ", ".join(str(failure.job.seed) for failure in failed)
        raise AssayError(f"seed {which} has no result: {failed[0].reason}. The same command resumes what is missing")


# ---------------------------------------------------------------------------------------------------- one run
def opened_sinks(options: argparse.Namespace, folder: Path, plan: Plan) -> log_sinks.Opened:
    """Opens the TensorBoard and Weights & Biases sinks that the options name; closes them at the end."""
    chosen: list[log_sinks.Sink] = []
    if options.tensorboard:
        steps = store.saved_steps(folder / "checkpoints")
        chosen.append(log_sinks.TensorBoardSink(folder / "tensorboard", first_step=steps[-1] + 1 if steps else 0))
    if options.wandb:
        chosen.append(log_sinks.WandbSink(options.wandb, plan.config()))
    return log_sinks.Opened(chosen)


def train_more(options: argparse.Namespace) -> int:
    """`assay train --out RUN --more-steps N`: trains a finished run further, with its own settings."""
    if options.out is None:
        raise AssayError("--more-steps needs --out, the folder of the finished run.")
    if options.more_steps < 1:
        raise AssayError(f"--more-steps is {options.more_steps}. Use at least 1.")
    plan, chosen = plan_of(options.out), plan_arguments(options)
    usual: dict[str, Any] = {"settings": {}, "placement": Placement(), "data": (), "options": RunOptions()}
    others = [word for word, value in chosen.items() if value != usual.get(word)]
    others += ["method"] if options.name and catalogue.find_method(options.name)[0] != plan.method else []
    others += ["task"] if options.task and options.task != plan.address != anchored(options.task) else []
    others += ["seeds"] if options.seeds != 1 or options.seed not in (0, plan.seed) else []
    if others and (options.seeds != 1 or not is_same_run(options, plan, chosen)):
        raise AssayError(f"--more-steps keeps the settings of {options.out}; leave out {', '.join(others)}.")
    with opened_sinks(options, options.out, plan) as sinks:
        mode = Mode.SILENT if options.json else None
        run = resume_run(options.out, more_steps=options.more_steps, sinks=sinks, mode=mode)
    return print_runs([run], options.out, options)


def is_same_run(options: argparse.Namespace, plan: Plan, chosen: Mapping[str, Any]) -> bool:
    """Returns whether the words are those that the run was started with."""
    name, task = options.name or plan.method, options.task or plan.address or plan.task.name
    if name is None:
        return False
    again = make_plan(name, task, seed=options.seed, **chosen)
    return replace(again, more_steps=plan.more_steps).config() == plan.config()


def resume(options: argparse.Namespace) -> int:
    """`assay resume`."""
    if followed(options.ranks):
        return 0
    how, changed = Mode.SILENT if options.json else None, options.accept_changed_code
    run = resume_run(
        options.folder,
        mode=how,
        accept_changed_code=changed,
        trust_code=options.trust_code,
        ranks=options.ranks,
        gatherers=options.gatherers,
    )
    if options.json:
        print(json.dumps(tables.run_facts(run), indent=2))
    else:
        tables.print_results([run], options.folder)
    return 0
