"""The commands of the command line; each takes the parsed options and returns the exit code."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from assay.app import claim_commands, data_commands
from assay.app.ablate_command import ablate
from assay.app.options import parsed_settings
from assay.app.report import claims as claim_tables
from assay.app.report import comparison as comparison_tables
from assay.app.report import methods, page, tables
from assay.app.report.watch import serve
from assay.core.errors import AssayError
from assay.core.spaces import Vocabulary
from assay.engine import evaluation
from assay.engine.placement import Placement
from assay.evidence.intervals import formatted, mean_interval
from assay.evidence.tuning import HyperbandSearch, RandomSearch, TuningPlan
from assay.evidence.tuning import tune as run_search
from assay.models.exported import export_policy
from assay.proof import verdicts
from assay.proof.laws.file import check_file_apart
from assay.runs import catalogue, comparison, search
from assay.runs import sinks as log_sinks
from assay.runs.options import run_options
from assay.runs.plan import make_plan
from assay.runs.progress import Mode
from assay.runs.run import execute, load
from assay.runs.run import resume as resume_run

DEFAULT_METHOD = "grpo"
MOST_VIDEOS = 100
UNCERTIFIED = 4
"""Exit code of a training run whose certificate does not hold."""
DEMONSTRATION = {"task": "sorting-5", "steps": 200, "warmup": 60}
"""Settings of `assay train` without a method: minutes on two cores."""


def list_methods(options: argparse.Namespace) -> int:
    """`assay list`."""
    chosen = methods.Filter(options.family, options.world, options.changes, options.verdict)
    rows = chosen(methods.method_rows())
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        methods.print_methods(rows, list(catalogue.tasks()) if chosen == methods.Filter() else [])
    return 0


def show_method(options: argparse.Namespace) -> int:
    """`assay show`."""
    facts = methods.method_facts(options.name)
    if options.json:
        print(json.dumps(facts, indent=2))
    else:
        changes = methods.changes_of(catalogue.find_method(options.name)[1])
        methods.print_method(facts, changes, options.all)
    return 0


def diff(options: argparse.Namespace) -> int:
    """`assay diff`: a method against its base, or against another method."""
    before, after, changes = methods.compared(options.name, options.other, options.world)
    if options.json:
        found = None if changes is None else methods.told(changes)
        print(json.dumps({"before": before or None, "after": after, "changes": found}, indent=2))
    else:
        methods.print_difference(before, after, changes)
    return 0


def default_task(name: str) -> str:
    """Returns the default task of a method."""
    return catalogue.find_method(name)[1].default_task


def make_plans(name: str, task: str, options: argparse.Namespace, first_seed: int) -> list[Any]:
    """Makes one plan per seed."""
    if options.seeds < 1:
        raise AssayError(f"--seeds is {options.seeds}. Use at least 1.")
    where = {field.name: vars(options)[field.name] for field in fields(Placement) if field.name in vars(options)}
    settings = parsed_settings(options.set)
    return [
        make_plan(
            name,
            task,
            steps=options.steps,
            seed=seed,
            settings=settings,
            warmup=options.warmup,
            placement=Placement(**where),
            model=options.model,
            data=options.data,
            preset=options.preset,
            options=run_options(vars(options)),
        )
        for seed in range(first_seed, first_seed + options.seeds)
    ]


def seed_folder(base: Path, seed: int, several: bool) -> Path:
    """Returns the run folder of one seed."""
    return base / f"seed-{seed}" if several else base


def train(options: argparse.Namespace) -> int:
    """`assay train`."""
    name = options.name or DEFAULT_METHOD
    if options.name is None:
        for setting, value in DEMONSTRATION.items():
            if vars(options)[setting] is None:
                setattr(options, setting, value)
    task = options.task or data_commands.task_of(options.data) or default_task(name)
    plans = make_plans(name, task, options, options.seed)
    base = options.out or Path("runs") / f"{plans[0].recipe.name}-{plans[0].task.name}"
    runs = []
    for plan in plans:
        folder = seed_folder(base, plan.seed, len(plans) > 1)
        sinks = make_sinks(options, folder, plan)
        runs.append(execute(plan, folder, mode=Mode.SILENT if options.json else None, sinks=sinks))
        for sink in sinks:
            sink.close()
    if options.json:
        print(json.dumps([tables.run_facts(run) for run in runs], indent=2))
    else:
        tables.print_results(runs, base)
    return UNCERTIFIED if any(run.certificate and not run.certificate.holds for run in runs) else 0


def make_sinks(options: argparse.Namespace, folder: Path, plan: Any) -> tuple[Any, ...]:
    """Opens the TensorBoard and Weights & Biases sinks that the options name."""
    chosen: list[Any] = []
    if options.tensorboard:
        chosen.append(log_sinks.TensorBoardSink(folder / "tensorboard"))
    if options.wandb:
        chosen.append(log_sinks.WandbSink(options.wandb, plan.config()))
    return tuple(chosen)


def resume(options: argparse.Namespace) -> int:
    """`assay resume`."""
    run = resume_run(options.folder, mode=Mode.SILENT if options.json else None)
    if options.json:
        print(json.dumps(tables.run_facts(run), indent=2))
    else:
        tables.print_results([run], options.folder)
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """`assay evaluate`."""
    for name in ("starts", "samples"):
        if (number := vars(options)[name]) is not None and number < 1:
            raise AssayError(f"--{name} is {number}. Use at least 1.")
    if not 0 <= options.video <= MOST_VIDEOS:
        raise AssayError(f"--video is {options.video}. Use a number of episodes from 0 to {MOST_VIDEOS}.")
    policy, plan, step = load(options.folder)
    films = filmed(policy, plan.task, options)
    values = evaluation.scores(
        policy, plan.task, num=options.starts, samples=options.samples, greedy=True if options.greedy else None
    )
    estimate = mean_interval(values)
    if options.json:
        facts = {
            "folder": str(options.folder),
            "task": plan.task.name,
            "step": step,
            "mean": estimate.value,
            "low": estimate.low,
        } | ({"videos": films} if films else {})
        print(json.dumps(facts | {"high": estimate.high, "count": estimate.count}))
    else:
        print(
            f"{plan.recipe.name} on {plan.task.name} after {step} steps: {formatted(estimate)} over "
            f"{estimate.count} held-out episodes"
        )
        for path, score in films.items():
            print(f"video of a held-out episode with return {score:g}: {path}")
    return 0


def filmed(policy: Any, task: Any, options: argparse.Namespace) -> dict[str, float]:
    """Films the first held-out episodes into the run folder; returns their returns by file."""
    from assay.tasks.adapters.video import film, write_video

    found: dict[str, float] = {}
    for start in range(options.video):
        pictures, score, rate = film(task, policy, start)
        found[str(write_video(pictures, options.folder / "video" / f"episode-{start}", rate))] = score
    return found


def export(options: argparse.Namespace) -> int:
    """`assay export`."""
    from assay.models.pretrained.transformers import export as write

    policy, plan, step = load(options.folder)
    if isinstance(plan.task.spec.action, Vocabulary):
        write(policy, plan.recipe.actor, options.target)
    else:
        export_policy(policy, plan.task.spec, options.target)
    if options.json:
        print(json.dumps({"folder": str(options.folder), "step": step, "target": str(options.target)}))
    else:
        print(f"exported {plan.recipe.name} after {step} steps to {options.target}")
    return 0


def check(options: argparse.Namespace) -> int:
    """`assay check`: exit code 1 if a law does not hold."""
    if not options.file.is_file():
        raise AssayError(
            f"{options.file} does not exist. Name a Python file that defines a loss, credit, reward or environment."
        )
    return tables.print_checks(check_file_apart(options.file), options.json)


def compare(options: argparse.Namespace) -> int:
    """`assay compare`: exit code 1 if a run failed."""
    arms = comparison.parsed_arms(options.methods)
    settings = {"steps": options.steps, "settings": parsed_settings(options.set), "warmup": options.warmup}
    name = f"compare-{'-'.join(map(comparison.plain_name, options.task))}"
    setup = comparison.Setup(
        arms,
        tuple(options.task),
        options.out or Path("runs") / name,
        None if options.seeds == "auto" else options.seeds,
        settings
        | {"model": options.model, "data": tuple(options.data), "preset": options.preset}
        | {"options": run_options(vars(options))},
        options.budget,
        options.jobs,
    )
    out = tables.console()
    with comparison_tables.Board(setup, out, quiet=options.json) as board:
        outcome = comparison.run(setup, board)
    paths = comparison_tables.save(outcome)
    if options.json:
        print(json.dumps({"folder": str(setup.folder)} | comparison.facts(outcome), indent=2))
    else:
        comparison_tables.show(outcome, out)
        for path in [*paths, setup.folder]:
            out.print(f"{'folder' if path == setup.folder else path.suffix[1:]:7} {path}", markup=False)
    return int(bool(outcome.failures))


def tune(options: argparse.Namespace) -> int:
    """`assay tune`: searches settings on some seeds and reports the score on fresh ones."""
    if options.tuning_seeds < 1 or options.seeds < 1:
        raise AssayError("--tuning-seeds or --seeds is less than 1. Use at least 1 of each.")
    space = search.parsed_space(options.search)
    folder = options.out or Path("runs") / f"tune-{options.name}-{comparison.plain_name(options.task)}"
    tell = (lambda line: None) if options.json else lambda line: tables.console().print(line, style="dim", markup=False)
    extra = {"warmup": options.warmup, "data": tuple(options.data), "options": run_options(vars(options))}
    training = search.Training(options.name, options.task, options.steps, folder, extra, tell)
    training.check(space)
    first = options.tuning_seeds
    plan = TuningPlan(options.trials, tuple(range(first)), tuple(range(first, first + options.seeds)), training.steps)
    how = HyperbandSearch() if options.hyperband else RandomSearch()
    found = run_search(space, training, plan, search=how, journal=folder / "trials.jsonl")
    if options.json:
        rows = [{"settings": dict(one.settings), "share": one.fraction, "score": one.score} for one in found.trials]
        facts = {"settings": dict(found.settings), "reported": vars(found.reported), "tuning": vars(found.tuning)}
        budget = {"tuning_runs": found.tuning_runs, "tuning_steps": found.tuning_steps}
        print(json.dumps(facts | budget | {"optimism": vars(found.optimism), "trials": rows}, indent=2))
    else:
        comparison_tables.show_search(found, tables.console())
    return 0


def data(options: argparse.Namespace) -> int:
    """`assay data`: make, convert, describe."""
    return data_commands.data(options, parsed_settings(vars(options).get("set", [])))


def report(options: argparse.Namespace) -> int:
    """`assay report`: a table in the terminal, and one HTML file."""
    if not options.folders and not options.verdicts:
        raise AssayError("there is nothing to report. Name run folders, or add --verdicts for the verdicts.")
    files = verdicts.files(options.verdict_folder) if options.verdicts else {}
    found = [claim_tables.with_states(verdicts.read(name, path), name) for name, path in files.items()]
    data = page.gather(options.folders, verdicts=[claim_tables.for_page(verdict) for verdict in found])
    path = page.write(data, options.out or Path("report.html"))
    if options.json:
        print(json.dumps({"page": str(path), "runs": data["runs"], "notes": data["notes"]}, indent=2))
        return 0
    out = tables.console()
    if options.folders:
        out.print(comparison_tables.run_table(data))
    if found:
        out.print(claim_tables.summary_table(found))
    for note in data["notes"]:
        out.print(note, style="yellow", markup=False)
    out.print(f"page  {path}", markup=False)
    return 0


def watch(options: argparse.Namespace) -> int:
    """`assay watch`: serves the live page until interrupted."""
    serve(options.folder, host=options.host, port=options.port)
    return 0


COMMANDS = {
    "list": list_methods, "show": show_method, "diff": diff, "train": train, "resume": resume, "evaluate": evaluate,
    "export": export, "check": check, "claim": claim_commands.claim, "compare": compare, "ablate": ablate, "tune": tune,
    "data": data, "report": report, "watch": watch,
}  # fmt: skip
