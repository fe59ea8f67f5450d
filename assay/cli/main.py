"""The command line: all commands and options."""

from __future__ import annotations

import argparse
import gc
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import assay
from assay.cli.arguments import (
    add_code_option,
    add_data_commands,
    add_former_name,
    add_list_options,
    add_plan_options,
    add_policy_commands,
    add_rebuilt_options,
    add_report_options,
    add_reproduce_options,
    add_trust_option,
)
from assay.cli.parsing import Parser, add_serve_options
from assay.cli.remembered import remembered
from assay.cli.training_arguments import (
    add_ablate_options,
    add_claim_options,
    add_compare_options,
    add_train_options,
    add_tune_options,
)

Command = Callable[[str, str], argparse.ArgumentParser]
"""Adds the parser of a command: its name and what it does."""


def parser() -> argparse.ArgumentParser:
    """Builds the parser of all commands."""
    root = Parser(
        prog="assay", description="One reinforcement-learning library for tokens and torques.",
        epilog="Begin with: assay train (a demonstration of a few minutes), assay list, assay show grpo",
    )  # fmt: skip
    root.add_argument("--version", action="version", version=f"assay {assay.__version__}")
    commands = root.add_subparsers(
        dest="command", required=True, parser_class=Parser, metavar="COMMAND", title="commands"
    )

    def command(name: str, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="print JSON for programs")
        return one

    add_reading_commands(command)
    add_train_options(command("train", "train a method on a task (without a method: a short demonstration)"))
    one = command("resume", "resume an interrupted run")
    one.add_argument("folder", metavar="RUN", type=Path, help="run folder")
    one.add_argument("--ranks", type=int, metavar="N", help="processes that share the shards (default: as before)")
    one.add_argument("--gatherers", type=int, metavar="N", help="processes that sample (default: as before)")
    add_code_option(one)
    add_plan_options(command("plan", "plan which GPUs compute which call of an update, with seconds and memory"))
    add_reproduce_options(command("reproduce", "run a finished run again and compare scores, metrics and tensors"))
    text = "export a trained language model (transformers format), its LoRA adapter (peft format), or a control policy"
    add_policy_commands(
        command("evaluate", "score a trained policy on held-out starts"),
        command("export", text),
    )
    one = command("check", "test your own loss, credit, reward, environment or other part against the laws of its kind")
    one.add_argument("file", metavar="FILE", type=Path, help="Python file that defines it")
    add_claim_options(command("claim", "test the claims of a method and write its verdict"))
    add_compare_options(command("compare", "train several methods on the same tasks and seeds, and compare them"))
    add_ablate_options(command("ablate", "find which parts carry the difference between two methods"))
    add_tune_options(command("tune", "search hyperparameters on some seeds, report the score on fresh seeds"))
    add_data_commands(commands.add_parser("data", help="make, convert and describe offline datasets"))
    add_report_options(command("report", "write runs as an HTML page, and as tables and figures for a paper"))
    add_serving_commands(command)
    return root


def add_reading_commands(command: Command) -> None:
    """Adds the commands that show methods: list, show, diff."""
    add_list_options(command("list", "list methods to start with, families, or the methods of a family"))
    one = command("show", "show a method: formula, changes to its base, departures from the paper, claims, verdicts")
    one.add_argument("name", metavar="METHOD", help="a method, an alias, METHOD:VARIANT, or a file FILE.py")
    one.add_argument("--all", action="store_true", help="also list all settings")
    one.add_argument("--task", help="show the preset and the settings that it has on this task")
    one = command("diff", "show the parts and settings in which a method differs from its base or another method")
    one.add_argument("name", metavar="METHOD", help="a method, an alias, METHOD:VARIANT, or a file FILE.py")
    one.add_argument("other", nargs="?", metavar="OTHER", help="another method (default: the base of METHOD)")
    one.add_argument("--kind", help="kind of task to compare on (default: the first that both work on)")
    add_former_name(one, "--world", "kind")


def add_serving_commands(command: Command) -> None:
    """Adds the commands that answer over HTTP: watch, serve."""
    one = command("watch", "serve the same page in a browser, updated while runs are training")
    one.add_argument("folder", metavar="FOLDER", type=Path, help="run folder, or a folder that contains some")
    one.add_argument(
        "--host", default="127.0.0.1", help="address to bind; any but 127.0.0.1 makes the page visible on the network"
    )
    one.add_argument("--port", type=int, default=8000, help="port (default: 8000; 0: any free port)")
    one = command("serve", "answer requests for tokens of a language policy over HTTP, for 'train --server'")
    one.add_argument("address", metavar="RUN|MODEL", help="run folder, or a pretrained model: a folder or hub id")
    add_trust_option(one)
    add_serve_options(one)
    add_rebuilt_options(one)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. An error that the user can fix is one sentence on stderr and exit code 2, not a traceback."""
    options = parser().parse_args(arguments)
    try:
        if arguments is None and options.command in READING:
            read_and_exit(options)
        # run_command imports torch, so that --help is fast and Ctrl-C leaves no traceback
        return run_command(options)
    except KeyboardInterrupt:
        print("assay: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where, what = error.filename or "a file", error.strerror or error
        print(f"assay: cannot read or write {where} ({what}). Choose another path.", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        from assay.core.faults import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        asked = re.search(r"allocate ([\d.]+ ?\w+)", str(error))
        what = f" (tried to allocate {asked[1]})" if asked else ""
        print(f"assay: out of memory{what}. Use smaller sizes or a smaller --micro-batch.", file=sys.stderr)
        return 2


def run_command(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; prints warnings and errors of the package in one line each."""
    from assay.cli.commands import command_function
    from assay.cli.early import refuse_unknown
    from assay.core.errors import AssayError, DataWarning
    from assay.core.faults import TRACEBACK, own_fault, sentence

    try:
        with warnings.catch_warnings():
            told = dict[str, None]()
            warnings.showwarning = lambda message, *place: told_once(str(message), told)
            if options.command in READ_AGAIN:
                warnings.simplefilter("ignore", DataWarning)
            refuse_unknown(options)
            return command_function(options.command)(options)
    except AssayError as error:
        print(f"assay: {' '.join(sentence(error).split())}", file=sys.stderr)  # one of own code may have many lines
        return error.exit_code
    except Exception as error:
        if own_fault(error) is None:
            raise
        if not any(TRACEBACK in note for note in getattr(error, "__notes__", ())):  # not in the folder of a run
            traceback.print_exception(error)
        print(f"assay: {sentence(error)}", file=sys.stderr)
        return 2


def read_and_exit(options: argparse.Namespace) -> NoReturn:
    """Runs a command that only shows methods, and ends the process at once: a quarter of its time went into collecting
    the garbage of imports and into taking torch apart again.
    """
    gc.disable()
    code = remembered(options, run_command)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


READING = ("list", "show", "diff")
"""Commands that show methods: they start no thread or process and leave no file open."""
READ_AGAIN = ("evaluate", "export", "resume", "reproduce", "serve", "plan")
"""Commands on a run whose training said what is odd about its data."""


def told_once(message: str, told: dict[str, None]) -> None:
    """Prints a warning unless it was printed before."""
    if message not in told:
        told[message] = None
        print(f"assay: {message}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
