"""`assay compare` and `assay tune`: many runs, and what they say together."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from assay.cli.options import opened_pool, parallel_runs, plan_arguments
from assay.report import comparison as comparison_tables
from assay.report import tables
from assay.runs import catalogue, comparison, search
from assay.runs.arms import Setup, parsed_arms, plain_name
from assay.statistics.tuning import HyperbandSearch, RandomSearch


def compare(options: argparse.Namespace) -> int:
    """`assay compare`: exit code 1 if a run failed."""
    arms, chosen = parsed_arms(options.methods), plan_arguments(options)
    name = f"compare-{'-'.join(map(plain_name, options.task))}"
    setup = Setup(
        arms,
        tuple(catalogue.matching(options.task)),
        options.out or Path("runs") / name,
        None if options.seeds == "auto" else options.seeds,
        chosen,
        options.budget,
        parallel_runs(options.jobs, chosen),
        equal_decisions=options.equal_decisions,
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
    space = search.parsed_space(options.search)
    folder = options.out or search.folder_of(options.name, options.task)
    tell = (lambda line: None) if options.json else lambda line: tables.console().print(line, style="dim", markup=False)
    chosen = plan_arguments(options)
    extra = {name: value for name, value in chosen.items() if name != "steps"}
    jobs = parallel_runs(options.jobs, chosen)
    training = search.Training(options.name, options.task, options.steps, folder, extra, tell, jobs)
    how = HyperbandSearch() if options.hyperband else RandomSearch()
    with opened_pool(options, folder) as training.pool:
        found = search.tuned(training, space, options.trials, options.tuning_seeds, options.seeds, how)
    if options.json:
        rows = [{"settings": dict(one.settings), "share": one.fraction, "score": one.score} for one in found.trials]
        facts = {"settings": dict(found.settings), "reported": vars(found.reported), "tuning": vars(found.tuning)}
        budget = {"tuning_runs": found.tuning_runs, "tuning_steps": found.tuning_steps}
        print(json.dumps(facts | budget | {"optimism": vars(found.optimism), "trials": rows}, indent=2))
    else:
        comparison_tables.show_search(found, tables.console())
    return 0
