"""The commands of the command line; each takes the parsed options and returns the exit code."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from assay.app import claim_commands, data_commands, policy_commands
from assay.app.ablate_command import ablate
from assay.app.options import opened_pool, plan_arguments
from assay.app.report import comparison as comparison_tables
from assay.app.report import methods, tables
from assay.app.report.watch import serve
from assay.app.report_command import report
from assay.app.serve import serve as serve_tokens
from assay.app.train_command import resume, train
from assay.core.errors import AssayError
from assay.evidence.tuning import HyperbandSearch, RandomSearch, TuningPlan
from assay.evidence.tuning import tune as run_search
from assay.proof.laws.file import check_file_apart
from assay.runs import catalogue, comparison, search
from assay.runs.checks import checked_folder, checked_seeds
from assay.runs.options.training import parse_settings

MOST_TRIALS = 100_000


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
    name = f"compare-{'-'.join(map(comparison.plain_name, options.task))}"
    setup = comparison.Setup(
        arms,
        tuple(options.task),
        options.out or Path("runs") / name,
        None if options.seeds == "auto" else options.seeds,
        plan_arguments(options),
        options.budget,
        options.jobs,
    )
    if options.on is not None:
        setup.check()  # before Ray is started
    out = tables.console()
    with opened_pool(options, setup.folder) as pool, comparison_tables.Board(setup, out, quiet=options.json) as board:
        outcome = comparison.run(replace(setup, pool=pool), board)
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
    checked_seeds(options.tuning_seeds, "--tuning-seeds")
    checked_seeds(options.seeds)
    if not 1 <= options.trials <= MOST_TRIALS:
        raise AssayError(f"--trials is {options.trials}. Use a number from 1 to {MOST_TRIALS:,}.")
    space = search.parsed_space(options.search)
    folder = options.out or Path("runs") / f"tune-{'-'.join(map(comparison.plain_name, (options.name, options.task)))}"
    checked_folder(folder, ("trials.jsonl",))
    tell = (lambda line: None) if options.json else lambda line: tables.console().print(line, style="dim", markup=False)
    extra = {name: value for name, value in plan_arguments(options).items() if name in ("warmup", "data", "options")}
    training = search.Training(options.name, options.task, options.steps, folder, extra, tell, options.jobs)
    training.check(space)
    first = options.tuning_seeds
    plan = TuningPlan(options.trials, tuple(range(first)), tuple(range(first, first + options.seeds)), training.steps)
    how = HyperbandSearch() if options.hyperband else RandomSearch()
    with opened_pool(options, folder) as training.pool:
        journal = folder / "trials.jsonl"
        found = run_search(space, training, plan, search=how, journal=journal, ahead=training.ahead)
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
    return data_commands.data(options, parse_settings(vars(options).get("set_", [])))


def watch(options: argparse.Namespace) -> int:
    """`assay watch`: serves the live page until interrupted."""
    serve(options.folder, host=options.host, port=options.port)
    return 0


def serve_policy(options: argparse.Namespace) -> int:
    """`assay serve`: answers requests for tokens until interrupted."""
    serve_tokens(options.address, options.host, options.port, announce=partial(print, flush=True))
    return 0


COMMANDS = {
    "list": list_methods, "show": show_method, "diff": diff, "train": train, "resume": resume,
    "evaluate": policy_commands.evaluate, "export": policy_commands.export,
    "check": check, "claim": claim_commands.claim, "compare": compare, "ablate": ablate, "tune": tune,
    "data": data, "report": report, "watch": watch, "serve": serve_policy,
}  # fmt: skip
