"""The command line: assay list, show, train, resume, evaluate, check, claim, compare, report."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import assay

DEFAULT_METHOD = "grpo"
DEMONSTRATION = {"task": "sorting-5", "steps": 200, "warmup": 60}
"""What `assay train` without a method runs: minutes on two cores."""


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence with exit code 2."""

    def error(self, message: str) -> NoReturn:
        """One line on stderr."""
        print(f"assay: {message} (see '{self.prog} --help')", file=sys.stderr)
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = Parser(prog="assay", description="One reinforcement-learning library for tokens and torques.")
    root.add_argument("--version", action="version", version=f"assay {assay.__version__}")
    commands = root.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.set_defaults(run=run)
        one.add_argument("--json", action="store_true", help="print JSON for programs")
        return one

    command("list", list_methods, "all methods and tasks")
    command("show", show_method, "one method: formula, parts, departures, claims").add_argument("name")
    add_train_options(
        command("train", train, "train a method on a task (without arguments: the default demonstration)")
    )
    command("resume", resume, "go on with an interrupted run").add_argument("folder", type=Path)
    one = command("evaluate", evaluate, "score a trained policy on held-out starts")
    one.add_argument("folder", type=Path)
    one.add_argument("--starts", type=int, help="held-out starts (default 256 prompts or 20 episodes)")
    one.add_argument("--samples", type=int, default=1, help="samples of each start")
    one.add_argument("--greedy", action="store_true", help="score the policy's mode (control always does)")
    command("check", check, "run the laws on your own loss, credit, reward or environment").add_argument(
        "file", type=Path
    )
    one = command("claim", claim, "test what a method promises")
    one.add_argument("name")
    one.add_argument("--exact", action="store_true", help="only the identities (milliseconds)")
    one = command("compare", compare, "train several methods on the same seeds and compare them")
    one.add_argument("methods", nargs="+")
    add_run_options(one, seeds=3)
    one.add_argument("--task", required=True)
    one = command("report", report, "tables and curves of finished runs")
    one.add_argument("folders", nargs="+", type=Path)
    return root


def add_run_options(one: argparse.ArgumentParser, seeds: int) -> None:
    """What train and compare share."""
    one.add_argument("--steps", type=int, help="steps of the loop (default: the recipe's)")
    one.add_argument("--seeds", type=int, default=seeds, help="number of seeds")
    one.add_argument("--out", type=Path, help="folder for the run (default: runs/...)")
    one.add_argument(
        "--set", action="append", default=[], metavar="PART.FIELD=VALUE", help="change a setting; repeatable"
    )
    one.add_argument("--warmup", type=int, help="supervised steps before token methods (0: none)")
    one.add_argument(
        "--model", metavar="PATH", help="a pretrained language model: a folder, or a hub id owner/name[@revision]"
    )


def add_train_options(one: argparse.ArgumentParser) -> None:
    """The options of `train`."""
    one.add_argument("name", nargs="?", help=f"method (default {DEFAULT_METHOD})")
    one.add_argument("--task", help="task (default: the one that the method is shown on)")
    add_run_options(one, seeds=1)
    one.add_argument("--seed", type=int, default=0, help="first seed")
    one.add_argument("--device", default="cpu", help="cpu or cuda")
    one.add_argument(
        "--micro-batch", type=int, default=0, help="rows through the model at once (0: all); never changes the result"
    )
    one.add_argument("--tensorboard", action="store_true", help="also write TensorBoard files")
    one.add_argument("--wandb", metavar="PROJECT", help="also log to Weights & Biases")


# ---------------------------------------------------------------------------------------------------- commands
def list_methods(options: argparse.Namespace) -> int:
    """`assay list`."""
    from assay import catalogue
    from assay.report import tables

    rows = tables.method_rows()
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        tables.print_methods(rows, list(catalogue.tasks()))
    return 0


def show_method(options: argparse.Namespace) -> int:
    """`assay show`."""
    from assay.report import tables

    facts = tables.method_facts(options.name)
    if options.json:
        print(json.dumps(facts, indent=2))
    else:
        tables.print_method(facts)
    return 0


def parsed_settings(words: Sequence[str]) -> dict[str, str]:
    """`--set a.b=c` as a dict."""
    from assay.types import AssayError

    settings: dict[str, str] = {}
    for word in words:
        path, sign, value = word.partition("=")
        if not sign or not path or not value:
            raise AssayError(
                f"--set {word} is not of the form part.field=value, for instance --set optimizer.learning_rate=0.001"
            )
        settings[path.strip()] = value.strip()
    return settings


def default_task(name: str) -> str:
    """The task that a method is shown on."""
    from assay import catalogue

    return catalogue.find_method(name)[1].home


def make_plans(name: str, task: str, options: argparse.Namespace, first_seed: int) -> list[Any]:
    """One plan a seed."""
    from assay.engine import Placement
    from assay.plan import make_plan
    from assay.types import AssayError

    if options.seeds < 1:
        raise AssayError(f"--seeds is {options.seeds}; give at least 1")
    device, micro_batch = vars(options).get("device", "cpu"), vars(options).get("micro_batch", 0)
    settings = parsed_settings(options.set)
    return [
        make_plan(
            name,
            task,
            steps=options.steps,
            seed=seed,
            settings=settings,
            warmup=options.warmup,
            placement=Placement(device, micro_batch),
            model=options.model,
        )
        for seed in range(first_seed, first_seed + options.seeds)
    ]


def seed_folder(base: Path, seed: int, several: bool) -> Path:
    """The run folder of one seed."""
    return base / f"seed-{seed}" if several else base


def train(options: argparse.Namespace) -> int:
    """`assay train`."""
    from assay.report import tables
    from assay.report.progress import Mode
    from assay.run import execute

    name = options.name or DEFAULT_METHOD
    if options.name is None:
        for setting, value in DEMONSTRATION.items():
            if vars(options)[setting] is None:
                setattr(options, setting, value)
    task = options.task or default_task(name)
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
    return 0


def make_sinks(options: argparse.Namespace, folder: Path, plan: Any) -> tuple[Any, ...]:
    """TensorBoard and Weights & Biases, where asked for."""
    from assay.backends import sinks

    chosen: list[Any] = []
    if options.tensorboard:
        chosen.append(sinks.TensorBoardSink(folder / "tensorboard"))
    if options.wandb:
        chosen.append(sinks.WandbSink(options.wandb, plan.config()))
    return tuple(chosen)


def resume(options: argparse.Namespace) -> int:
    """`assay resume`."""
    from assay.report import tables
    from assay.report.progress import Mode
    from assay.run import resume as go_on

    run = go_on(options.folder, mode=Mode.SILENT if options.json else None)
    if options.json:
        print(json.dumps(tables.run_facts(run), indent=2))
    else:
        tables.print_results([run], options.folder)
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """`assay evaluate`."""
    from assay import evaluation
    from assay.evidence.intervals import formatted, mean_interval
    from assay.run import load
    from assay.types import AssayError

    for name in ("starts", "samples"):
        if (number := vars(options)[name]) is not None and number < 1:
            raise AssayError(f"--{name} is {number}; give at least 1")
    policy, plan, step = load(options.folder)
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
        }
        print(json.dumps(facts | {"high": estimate.high, "count": estimate.count}))
    else:
        print(
            f"{plan.recipe.name} on {plan.task.name} after {step} steps: {formatted(estimate)} over "
            f"{estimate.count} held-out episodes"
        )
    return 0


def check(options: argparse.Namespace) -> int:
    """`assay check`: exit code 1 where a law broke."""
    from assay.checks.file import check_file_apart
    from assay.report import tables
    from assay.types import AssayError

    if not options.file.is_file():
        raise AssayError(
            f"there is no file {options.file}; give a Python file with your loss, credit, reward or environment"
        )
    return tables.print_checks(check_file_apart(options.file), options.json)


def claim(options: argparse.Namespace) -> int:
    """`assay claim`: exit code 1 where a claim does not hold."""
    from assay import catalogue
    from assay.report import tables

    name, method = catalogue.find_method(options.name)
    findings = [one.run() for one in method.exact]
    if options.json:
        print(json.dumps({"method": name, "exact": [vars(finding) for finding in findings]}, indent=2))
    else:
        tables.print_claims(name, findings, [] if options.exact else method.measured)
    return 0 if all(finding.holds for finding in findings) else 1


def compare(options: argparse.Namespace) -> int:
    """`assay compare`."""
    from assay.report import tables
    from assay.report.progress import Mode
    from assay.run import execute

    plans = {name: make_plans(name, options.task, options, 0) for name in options.methods}
    base = options.out or Path("runs") / f"compare-{options.task}"
    arms = {}
    for name, own in plans.items():
        arms[name] = [
            execute(plan, base / name / f"seed-{plan.seed}", mode=Mode.SILENT if options.json else None) for plan in own
        ]
    return tables.print_comparison(arms, base, options.json)


def report(options: argparse.Namespace) -> int:
    """`assay report`."""
    from assay.report import tables

    return tables.print_report(options.folders, options.json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; what a user can mend is one sentence on stderr and exit code 2, never a traceback."""
    options = parser().parse_args(arguments)
    try:
        return run_command(options)  # torch is imported in there, so that --help is quick and Ctrl-C always clean
    except KeyboardInterrupt:
        print("assay: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where, what = error.filename or "a file", error.strerror or error
        print(f"assay: {where} could not be read or written ({what}); choose another place", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        asked = re.search(r"allocate ([\d.]+ ?\w+)", str(error))
        what = f" ({asked[1]} were asked for)" if asked else ""
        print(f"assay: not enough memory{what}; lower the sizes, or set --micro-batch", file=sys.stderr)
        return 2


def run_command(options: argparse.Namespace) -> int:
    """The command's exit code; warnings, and what the package refuses, in one line each."""
    from assay.store import CheckpointError, RunLocked
    from assay.types import AssayError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *place: print(f"assay: {message}", file=sys.stderr)
            code: int = options.run(options)
            return code
    except (AssayError, CheckpointError, RunLocked) as error:
        print(f"assay: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, AssayError) else 2


def is_out_of_memory(error: Exception) -> bool:
    """Whether numpy or torch asked for more than there is; torch says so in words only."""
    words = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


if __name__ == "__main__":
    raise SystemExit(main())
