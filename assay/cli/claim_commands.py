"""`assay claim`: measures, checks, stamps or replays. Functions take the parsed options and return the exit code."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from assay.claims import measuring, shipped, stamps, verdicts, whole
from assay.claims.claim import Measured
from assay.claims.find import find_claims
from assay.claims.mutants import trial
from assay.claims.records import has_verdict
from assay.cli.options import opened_pool, parallel_runs, plan_arguments
from assay.core.errors import AssayError
from assay.engine.placement import Placement
from assay.report import claims as claim_tables
from assay.report import tables
from assay.runs import catalogue
from assay.runs.options import RunOptions
from assay.runs.pools import Pool


def claim(options: argparse.Namespace) -> int:
    """`assay claim`: exit code 1 if a claim fails or a verdict file has problems."""
    if options.name:
        options.name = catalogue.method_key(catalogue.find_method(options.name)[0])
    for name in ("verdicts", "work"):
        if (folder := vars(options)[name]) is not None and folder.exists() and not folder.is_dir():
            raise AssayError(f"--{name} {folder} is a file. Name a folder.")
    if options.check:
        return check_verdicts(options)
    if options.stamp:
        return stamp_verdicts(options)
    if options.settings:
        return write_settings(options)
    if not options.name and not options.all:
        raise AssayError("no method is named. Name one, or use --all; assay list shows the methods.")
    if options.mutants:
        return try_mutants(options)
    if options.budget is not None and not options.budget > 0:
        raise AssayError(f"--budget is {options.budget:g}. Use a positive number of minutes.")
    how = changed_plans(options)
    if how and not options.replicate:
        raise AssayError(
            f"a claim is stated for its own {', '.join(how)}, and its verdict is measured with them. Add --replicate, "
            "which measures it as you say beside the verdict."
        )
    deadline = None if options.budget is None else time.monotonic() + 60 * options.budget
    if options.replicate:
        return replicate(options, deadline)
    out = tables.console()
    with opened_pool(options, options.work) as pool:
        reports = claim_each(options, deadline, pool)
    if options.json:
        print(json.dumps(reports if options.all else reports[0] if reports else {}, indent=2))
    elif options.all and not reports:
        out.print("every verdict is up to date")
    return int(any(report["verdict"] == "fails" for report in reports))


def claim_each(options: argparse.Namespace, deadline: float | None, pool: Pool) -> list[dict[str, Any]]:
    """Runs the claims of the named method, or of all whose verdict is stale or missing; prints each report."""
    reports: list[dict[str, Any]] = []
    for name in [options.name] if options.name else verdicts.stalest_first(options.verdicts):
        if not options.name and not verdicts.needs_measuring(name, options.verdicts):
            continue
        if options.replay and replay_verdict(name, options):
            continue
        reports.append(claim_one(name, options, deadline, pool))
        if not options.json:
            tables.console().print(claim_tables.verdict_table(reports[-1]))
        if deadline is not None and time.monotonic() > deadline:
            break
    return reports


def replay_verdict(name: str, options: argparse.Namespace) -> bool:
    """Returns whether seed 0 reproduces the recorded scores; if so, stamps the verdict for the current recipes."""
    path = verdicts.path_of(name, options.verdicts)
    if not has_verdict(path) or not measuring.replayed(name, options.work, options.verdicts):
        return False
    if not options.json:
        words = f"{path}: seed 0 of every claim reproduces the recorded scores; stamped for the current recipes"
        tables.console().print(words, markup=False)
    return True


def claim_one(name: str, options: argparse.Namespace, deadline: float | None, pool: Pool) -> dict[str, Any]:
    """Runs a method's claims and shows the progress; see `run_claims`."""

    def measure(one: Measured) -> dict[str, Any] | None:
        return measure_claim(name, one, options, deadline, pool)

    return whole.run_claims(name, measure, exact=options.exact, again=options.again, folder=options.verdicts)


def measure_claim(
    name: str, one: Measured, options: argparse.Namespace, deadline: float | None, pool: Pool, first_seed: int = 0
) -> dict[str, Any] | None:
    """Measures a claim and shows the progress; returns its entry, None if time was up."""
    with claim_tables.Watch(name, one, tables.console(), quiet=options.json) as watch:
        return measuring.measure(
            name, one, options.work, first_seed=first_seed, deadline=deadline, pool=pool, watch=watch,
            workers=parallel_runs(options.jobs, plan_arguments(options)), how=changed_plans(options),
        )  # fmt: skip


def changed_plans(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of plans that the options give: placement, options, model and settings; empty without."""
    chosen = plan_arguments(options)
    usual: dict[str, Any] = {"settings": {}, "model": None, "placement": Placement(), "options": RunOptions()}
    return {name: chosen[name] for name, value in usual.items() if chosen[name] != value}


def replicate(options: argparse.Namespace, deadline: float | None) -> int:
    """`assay claim --replicate`: measured claims by their rule with other seeds, beside what is recorded; writes no
    verdict.

    Exit code 1 if a claim that is recorded as decided is decided the other way.
    """
    rows: list[dict[str, Any]] = []
    with opened_pool(options, options.work) as pool:
        for name in [options.name] if options.name else verdicts.with_measured():
            path = verdicts.path_of(name, options.verdicts)
            recorded = verdicts.entries_of(verdicts.read(name, path)) if has_verdict(path) else {}
            for one in find_claims(name).measured:
                kept = recorded.get(one.name)
                found = measure_claim(name, one, options, deadline, pool, OTHER_SEEDS) or whole.unfinished(one)
                rows.append({"method": name, "recorded": kept, "other_seeds": found})
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        tables.console().print(claim_tables.replication_table(rows))
    pairs = [{row["recorded"]["verdict"], row["other_seeds"]["verdict"]} for row in rows if row["recorded"]]
    return int({"holds", "fails"} in pairs)


OTHER_SEEDS = 5000
"""The first seed of a replication: no claim of the package was measured or tried out with these."""


def try_mutants(options: argparse.Namespace) -> int:
    """`assay claim --mutants`: exit code 1 if a mutant survives the exact claims."""
    out, found = tables.console(), {}
    for key in [options.name] if options.name else catalogue.methods():
        results: list[trial.Result] = []
        with out.status(f"{key}: mutants") as status:
            for result in trial.all_trials(key, options.jobs or 1):
                results.append(result)
                status.update(f"{key}: {len(results)} mutants, {result.name}")
        path, found[key] = trial.write(key, results), trial.summary(results)
        if not options.json:
            out.print(claim_tables.mutant_table(key, results, shows_caught=bool(options.name)))
            out.print(claim_tables.cover_table(key, results))
            out.print(f"written to {path}", style="dim", markup=False)
    if options.json:
        print(json.dumps(found, indent=2))
    return int(any(one["survived"] for one in found.values()))


def write_settings(options: argparse.Namespace) -> int:
    """`assay claim --settings`: writes the settings of the recipes into the records; prints what changed."""
    changed: dict[str, list[str]] = {}
    for key in [options.name] if options.name else sorted(catalogue.methods()):
        changed[key] = shipped.changes_since_record(key)
        if changed[key]:
            shipped.record_settings(key)
    changed = {key: found for key, found in changed.items() if found}
    if options.json:
        print(json.dumps(changed, indent=2))
        return 0
    out = tables.console()
    for key, found in changed.items():
        out.print(f"{key}: {len(found)} settings recorded", markup=False)
        for line in found[:SHOWN]:
            out.print(f"  {line}", style="dim", markup=False)
    if not changed:
        out.print("every recipe has the settings that were recorded")
    return 0


SHOWN = 8
"""Changed settings that are printed of one method."""


# ---------------------------------------------------------------------------------------------------- files
def chosen_files(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the verdict file of the named method, or all verdict files."""
    if options.name:
        return {options.name: verdicts.path_of(options.name, options.verdicts)}
    return dict(verdicts.files(options.verdicts))


def check_verdicts(options: argparse.Namespace) -> int:
    """`assay claim --check`: prints problems of verdict files, which are errors, and states, which are not.

    For one named method the state is computed by running its recipes for three steps; for all methods it is read from
    the files.
    """
    if options.verdicts is not None and not options.verdicts.is_dir():
        raise AssayError(f"--verdicts: there is no folder '{options.verdicts}'. Name a folder of KEY.json files.")
    files = chosen_files(options)
    missing = [] if options.name else [name for name in verdicts.with_measured() if name not in files]
    wrong = {name: found for name, path in files.items() if (found := verdicts.problems(name, path))}
    states = {
        name: verdicts.states(name, verdicts.read(name, path), run=bool(options.name))
        for name, path in files.items()
        if name not in wrong
    }
    if options.json:
        problems = [problem for found in wrong.values() for problem in found]
        facts = {"checked": len(files), "problems": problems, "not_measured": missing, "states": states}
        print(json.dumps(facts, indent=2))
    else:
        out = tables.console()
        for problem in (problem for found in wrong.values() for problem in found):
            out.print(problem, style="red", markup=False)
        for name in missing:
            out.print(f"{name} has measured claims but no verdict. Run: assay claim {name}", style="yellow")
        claim_tables.print_states(out, states)
        out.print(f"{len(files)} verdicts checked, {sum(map(len, wrong.values()))} problems", markup=False)
    return int(bool(wrong))


def stamp_verdicts(options: argparse.Namespace) -> int:
    """`assay claim --stamp`: stamps verdicts for this kind of machine and marks those that no longer fit as stale."""
    memo: dict[str, str] = {}
    begin = time.process_time()
    states = {name: verdicts.stamp(name, options.verdicts, memo) for name in chosen_files(options)}
    seconds = time.process_time() - begin
    if options.json:
        facts = {"machine": stamps.machine_kind(), "cpu_seconds": round(seconds, 1), "states": states}
        print(json.dumps(facts, indent=2))
    else:
        out = tables.console()
        claim_tables.print_states(out, states)
        total = sum(map(len, states.values()))
        out.print(
            f"{total} claims of {len(states)} verdicts stamped for {stamps.machine_kind()} in {seconds:.0f} cpu-s"
        )
    return 0
