"""The command line: what every command and option is called."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import assay


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

    def command(name: str, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="print JSON for programs")
        return one

    add_list_options(command("list", "all methods and tasks"))
    one = command("show", "one method: formula, what it changes, departures, claims, verdicts")
    one.add_argument("name", help="a method, an alias, or METHOD:VARIANT")
    one.add_argument("--all", action="store_true", help="all settings too")
    one = command("diff", "the parts and settings in which a method differs from its base, or from another method")
    one.add_argument("name", help="a method, an alias, or METHOD:VARIANT")
    one.add_argument("other", nargs="?", help="the method to compare with (default: compare NAME's base with NAME)")
    one.add_argument("--world", help="the world to compare in (default: the first that both work in)")
    add_train_options(command("train", "train a method on a task (without arguments: the default demonstration)"))
    command("resume", "go on with an interrupted run").add_argument("folder", type=Path)
    one = command("evaluate", "score a trained policy on held-out starts")
    one.add_argument("folder", type=Path)
    one.add_argument("--starts", type=int, help="held-out starts (default 256 prompts or 20 episodes)")
    one.add_argument("--samples", type=int, default=1, help="samples of each start")
    one.add_argument("--greedy", action="store_true", help="score the policy's mode (control always does)")
    one = command("export", "write a trained language model, or its adapter, as files of transformers and peft")
    one.add_argument("folder", type=Path, help="run folder")
    one.add_argument("target", type=Path, help="a new folder")
    command("check", "run the laws on your own loss, credit, reward or environment").add_argument("file", type=Path)
    add_claim_options(command("claim", "test what a method promises, and write its verdict"))
    add_compare_options(command("compare", "train several methods on the same seeds and tasks, and compare them"))
    add_tune_options(command("tune", "search settings on some seeds, report on others"))
    add_data_commands(commands.add_parser("data", help="make, convert and describe data sets of recorded decisions"))
    one = command("report", "one HTML page of runs: curves, tables, samples")
    one.add_argument("folders", nargs="*", type=Path, help="run folders, or folders of them")
    one.add_argument("--verdicts", action="store_true", help="the committed verdicts")
    one.add_argument("--verdict-folder", type=Path, metavar="DIR", help="KEY.json files (default: beside the methods)")
    one.add_argument("--out", type=Path, help="the file (default report.html)")
    one = command("watch", "the same page in a browser, live while runs go on")
    one.add_argument("folder", type=Path)
    one.add_argument("--host", default="127.0.0.1", help="another address than this machine's own lets others look in")
    one.add_argument("--port", type=int, default=8000)
    return root


def add_list_options(one: argparse.ArgumentParser) -> None:
    """The filters of `list`."""
    one.add_argument("--family", help="only this family, for instance offline or 'policy gradient'")
    one.add_argument("--world", help="only methods that work in this world: language, control, continuous-control, ...")
    one.add_argument(
        "--changes", metavar="SLOT", help="only methods that change it in their base: credit, rollout, ..."
    )
    one.add_argument("--verdict", help="holds, fails, inconclusive, stale or 'no verdict'")


def add_run_options(one: argparse.ArgumentParser) -> None:
    """What train and compare share."""
    one.add_argument("--steps", type=int, help="steps of the loop (default: the recipe's)")
    one.add_argument("--out", type=Path, help="folder for the run (default: runs/...)")
    one.add_argument(
        "--set", action="append", default=[], metavar="PART.FIELD=VALUE", help="change a setting; repeatable"
    )
    one.add_argument("--warmup", type=int, help="supervised steps before token methods (0: none)")
    add_data_option(one)
    one.add_argument(
        "--model", metavar="PATH", help="a pretrained language model: a folder, or a hub id owner/name[@revision]"
    )
    one.add_argument("--preset", metavar="NAME", help="defaults: classic, mujoco, d4rl (default: those of the task)")


def add_data_option(one: argparse.ArgumentParser) -> None:
    """What a method that learns from a log learns from."""
    text = "recorded decisions to learn from: .safetensors, .npz, .hdf5, a Minari folder, or minari:ID; repeatable"
    one.add_argument("--data", action="append", default=[], metavar="FILE", help=text)


def add_data_commands(one: argparse.ArgumentParser) -> None:
    """`assay data make, convert, describe`."""
    what = one.add_subparsers(dest="data_command", required=True, parser_class=Parser, metavar="COMMAND")
    text = "make data sets of a task with our own agents, from a seed"
    make = what.add_parser("make", help=text, description=text)
    make.add_argument("task", help="task")
    kinds = "random, scripted, medium, medium-replay, expert, medium-expert"
    make.add_argument("kinds", nargs="+", metavar="KIND", help=f"{kinds}; several share one training")
    make.add_argument("--method", help="the agent's method (default: sac for torques, ppo for choices)")
    make.add_argument("--steps", type=int, default=0, help="the agent's training (default: its recipe's)")
    make.add_argument("--set", action="append", default=[], metavar="PART.FIELD=VALUE", help="a setting of the agent")
    make.add_argument("--episodes", type=int, default=50, help="episodes of each kind (medium-replay has its own)")
    make.add_argument("--noise", type=float, default=0.1, help="share of uniform actions of kind scripted")
    make.add_argument("--seed", type=int, default=0)
    make.add_argument("--out", type=Path, default=Path("runs/data"), help="folder for the files (default runs/data)")
    text = "write a data set in another layout; the ending says which, none means Minari's folder"
    convert = what.add_parser("convert", help=text, description=text)
    convert.add_argument("source", help=".safetensors, .npz, .hdf5, a Minari folder, or minari:ID")
    convert.add_argument("target", type=Path, help=".safetensors, .npz, .hdf5, or a new folder")
    text = "rows, episodes, returns and hash of data sets"
    show = what.add_parser("describe", help=text, description=text)
    show.add_argument("files", nargs="+", metavar="FILE")
    for command in (make, convert, show):
        command.add_argument("--json", action="store_true", help="print JSON for programs")


def add_train_options(one: argparse.ArgumentParser) -> None:
    """The options of `train`."""
    one.add_argument("name", nargs="?", help="method or METHOD:VARIANT (default grpo)")
    one.add_argument("--task", help="task (default: the one that the method is shown on)")
    add_run_options(one)
    one.add_argument("--seeds", type=int, default=1, help="number of seeds")
    one.add_argument("--seed", type=int, default=0, help="first seed")
    one.add_argument("--device", default="cpu", help="cpu or cuda")
    one.add_argument(
        "--micro-batch", type=int, default=0, help="rows through the model at once (0: all); never changes the result"
    )
    one.add_argument(
        "--tokens", type=int, default=0, help="columns x rows through the model at once (0: any), rows by length"
    )
    one.add_argument("--recompute", action="store_true", help="layers run again in the backward pass: less memory")
    one.add_argument("--compiled", action="store_true", help="layers are compiled: faster after a minute")
    one.add_argument("--tensorboard", action="store_true", help="also write TensorBoard files")
    one.add_argument("--wandb", metavar="PROJECT", help="also log to Weights & Biases")


def add_compare_options(one: argparse.ArgumentParser) -> None:
    """The options of `compare`."""
    one.add_argument(
        "methods", nargs="+", metavar="METHOD", help="METHOD, METHOD:VARIANT, or with settings: grpo:group_size=16"
    )
    one.add_argument("--task", nargs="+", required=True, help="one task or several")
    add_run_options(one)
    one.add_argument(
        "--seeds", type=number_or_auto, default=3, help="number of seeds, or auto: a sequential test decides"
    )
    one.add_argument("--decisions", type=int, help="as many decisions for every run, instead of as many steps")
    one.add_argument("--budget", type=float, metavar="MINUTES", help="no run starts after so many minutes")
    one.add_argument("--jobs", type=int, help="runs at a time (default: the cores)")


def add_tune_options(one: argparse.ArgumentParser) -> None:
    """The options of `tune`."""
    one.add_argument("name", help="method")
    one.add_argument("--task", required=True)
    one.add_argument("search", nargs="+", metavar="PATH=LOW:HIGH[:log]", help="a setting and its range, or PATH=A,B,C")
    one.add_argument("--trials", type=int, default=16, help="settings to try")
    one.add_argument("--tuning-seeds", type=int, default=2, help="seeds of each trial")
    one.add_argument("--seeds", type=int, default=5, help="fresh seeds on which the chosen settings are reported")
    one.add_argument("--hyperband", action="store_true", help="short runs first, whole ones for the better (Optuna)")
    one.add_argument("--steps", type=int, help="steps of a whole run (default: the recipe's)")
    one.add_argument("--warmup", type=int, help="supervised steps before token methods (0: none)")
    add_data_option(one)
    one.add_argument("--out", type=Path, help="folder for the runs (default: runs/tune-...); the same one goes on")


def number_or_auto(text: str) -> int | str:
    """What --seeds of compare takes."""
    return text if text == "auto" else int(text)


number_or_auto.__name__ = "number of seeds, or auto"  # argparse says it in its error


def add_claim_options(one: argparse.ArgumentParser) -> None:
    """The options of `claim`."""
    one.add_argument("name", nargs="?", help="method")
    one.add_argument("--all", action="store_true", help="every method whose verdict does not stand, stalest first")
    one.add_argument("--exact", action="store_true", help="only the identities (milliseconds)")
    one.add_argument("--check", action="store_true", help="are verdict files unedited, and do methods still fit them")
    one.add_argument("--stamp", action="store_true", help="stamp verdicts for this kind of machine, mark stale ones")
    one.add_argument("--replay", action="store_true", help="stamp a stale verdict if seed 0 still gives its scores")
    one.add_argument("--budget", type=float, metavar="MINUTES", help="stop after so many minutes; call again to resume")
    one.add_argument("--verdicts", type=Path, metavar="DIR", help="KEY.json files (default: methods/KEY/verdict.json)")
    one.add_argument("--work", type=Path, default=Path("runs/claims"), metavar="DIR", help="where their runs are kept")


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
    from assay.app import commands
    from assay.core.errors import AssayError
    from assay.core.store import CheckpointError, RunLocked

    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *place: print(f"assay: {message}", file=sys.stderr)
            return commands.COMMANDS[options.command](options)
    except (AssayError, CheckpointError, RunLocked) as error:
        print(f"assay: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, AssayError) else 2


def is_out_of_memory(error: Exception) -> bool:
    """Whether numpy or torch asked for more than there is; torch says so in words only."""
    words = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


if __name__ == "__main__":
    raise SystemExit(main())
