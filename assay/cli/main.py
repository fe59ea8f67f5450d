"""The command line: all commands and options."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

import assay
from assay.cli.parsing import Parser
from assay.cli.remembered import remembered
from assay.runs.options import GatherOptions, LanguageOptions, add_run_groups
from assay.runs.options.group import add_group
from assay.runs.options.placement import PlacementOptions
from assay.runs.options.scoring import RebuiltOptions, ScoringOptions
from assay.runs.options.training import LoggerOptions, PoolOptions, SeedOptions, TrainingOptions

WHERE = dict.fromkeys(("device", "micro_batch", "tokens", "recompute", "compiled", "deterministic"), "")
"""Options of a placement that commands of many runs have too."""


def parser() -> argparse.ArgumentParser:
    """Builds the parser of all commands."""
    root = Parser(prog="assay", description="One reinforcement-learning library for tokens and torques.")
    root.add_argument("--version", action="version", version=f"assay {assay.__version__}")
    commands = root.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="print JSON for programs")
        return one

    add_list_options(command("list", "list methods to start with, families, or the methods of a family"))
    one = command("show", "show a method: formula, changes to its base, departures from the paper, claims, verdicts")
    one.add_argument("name", help="a method, an alias, METHOD:VARIANT, or a file FILE.py")
    one.add_argument("--all", action="store_true", help="also list all settings")
    one.add_argument("--task", help="show the preset and the settings that it has on this task")
    one = command("diff", "show the parts and settings in which a method differs from its base or another method")
    one.add_argument("name", help="a method, an alias, METHOD:VARIANT, or a file FILE.py")
    one.add_argument("other", nargs="?", help="the method to compare with (default: the base of NAME)")
    one.add_argument("--world", help="world to compare in (default: the first that both work in)")
    add_train_options(command("train", "train a method on a task (without a method: a short demonstration)"))
    one = command("resume", "resume an interrupted run")
    one.add_argument("folder", type=Path, help="run folder")
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
    one.add_argument("file", type=Path, help="Python file that defines it")
    add_claim_options(command("claim", "test the claims of a method and write its verdict"))
    add_compare_options(command("compare", "train several methods on the same tasks and seeds, and compare them"))
    add_ablate_options(command("ablate", "find which parts carry the difference between two methods"))
    add_tune_options(command("tune", "search hyperparameters on some seeds, report the score on fresh seeds"))
    add_data_commands(commands.add_parser("data", help="make, convert and describe offline datasets"))
    add_report_options(command("report", "write runs as an HTML page, and as tables and figures for a paper"))
    one = command("watch", "serve the same page in a browser, updated while runs are training")
    one.add_argument("folder", type=Path, help="run folder, or a folder that contains some")
    one.add_argument(
        "--host", default="127.0.0.1", help="address to bind; any but 127.0.0.1 makes the page visible on the network"
    )
    one.add_argument("--port", type=int, default=8000, help="port (default: 8000; 0: any free port)")
    one = command("serve", "answer requests for tokens of a language policy over HTTP, for 'train --server'")
    one.add_argument("address", metavar="RUN|MODEL", help="run folder, or a pretrained model: a folder or hub id")
    add_trust_option(one)
    text = "address to bind; on any but 127.0.0.1 other machines can replace the weights"
    one.add_argument("--host", default="127.0.0.1", help=text)
    one.add_argument("--port", type=int, default=8000, help="port (default: 8000; 0: any free port)")
    return root


def add_plan_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `plan`."""
    one.add_argument("name", help="a method of language tasks")
    one.add_argument("--model", required=True, metavar="FOLDER|SIZE", help="a pretrained model, or a size such as 7B")
    one.add_argument("--gpus", type=int, required=True, metavar="N", help="number of GPUs, a power of two")
    one.add_argument("--gpu-memory", type=float, default=80.0, metavar="GB", help="memory of one GPU (default: 80)")
    text = "measured seconds: JSON {call: {gpus: seconds}}, or a run folder (default: estimated from the parameters)"
    one.add_argument("--step-times", type=Path, metavar="FILE|RUN", help=text)
    one.add_argument("--rows", type=int, metavar="N", help="sequences of one update (default: the recipe's)")
    one.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="tokens of a prompt (default: 512)")
    one.add_argument("--answer-tokens", type=int, default=1024, metavar="N", help="tokens of an answer (default: 1024)")


def add_reproduce_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `reproduce`."""
    one.add_argument("folder", type=Path, help="run folder of a finished run")
    one.add_argument("--out", type=Path, metavar="DIR", help="folder of the second run (default: RUN-again)")
    text = "relative difference of weights and score that counts as within (default: 0.0001)"
    one.add_argument("--tolerance", type=float, default=1e-4, metavar="X", help=text)
    add_group(one, RebuiltOptions)
    add_code_option(one)


def add_report_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `report`."""
    one.add_argument("folders", nargs="*", type=Path, help="run folders, or folders that contain some")
    one.add_argument("--out", type=Path, metavar="FILE", help="page to write (default: report.html)")
    one.add_argument(
        "--csv", type=Path, metavar="FILE", help="also write the table as CSV: a row for each arm and task"
    )
    one.add_argument("--latex", type=Path, metavar="FILE", help="also write the table for LaTeX (booktabs)")
    one.add_argument("--pdf", type=Path, metavar="FILE", help="also write the figures as PDF, one on each page")
    one.add_argument(
        "--methods-text", type=Path, metavar="FILE", help="also write a paragraph on seeds, budget, statistics, machine"
    )
    one.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="TASK=LOW:HIGH",
        help="lowest and highest possible score of a task, to normalise by; repeatable",
    )
    one.add_argument("--verdicts", action="store_true", help="include the verdicts of the methods")
    one.add_argument(
        "--verdict-folder", type=Path, metavar="DIR", help="folder of KEY.json verdicts (default: those of the package)"
    )


def add_list_options(one: argparse.ArgumentParser) -> None:
    """Adds the filters of `list`."""
    one.add_argument("only", nargs="?", metavar="FAMILY", help="only this family, e.g. offline or 'policy gradient'")
    one.add_argument("--all", action="store_true", help="every method and task, with verdicts and effects")
    one.add_argument("--family", help="the same as FAMILY")
    one.add_argument("--world", help="only methods for this kind of task: language, control, continuous-control, ...")
    one.add_argument(
        "--changes", metavar="SLOT", help="only methods that change this slot of their base: credit, rollout, ..."
    )
    one.add_argument("--verdict", help="only this verdict: holds, fails, inconclusive, stale or 'no verdict'")


def add_policy_commands(evaluate: argparse.ArgumentParser, export: argparse.ArgumentParser) -> None:
    """Adds the options of both commands."""
    evaluate.add_argument("folder", type=Path, help="run folder")
    add_group(evaluate, ScoringOptions)
    add_group(evaluate, RebuiltOptions)
    export.add_argument("folder", type=Path, help="run folder")
    text = "folder to create, or policy.pt, policy.pt2, policy.onnx for a control policy"
    export.add_argument("target", type=Path, help=text)
    add_group(export, ScoringOptions, only={"checkpoint": ""})
    export.add_argument("--merge", action="store_true", help="merge a LoRA adapter into its base model")
    text = "write the weights as a folder of torch.distributed.checkpoint"
    export.add_argument("--dcp", action="store_true", help=text)
    for one in (evaluate, export):
        add_code_option(one)


def add_code_option(one: argparse.ArgumentParser) -> None:
    """Adds the options that allow own code to have changed, and to be named by a folder from elsewhere."""
    text = "use your own code (rewards, method, environment) although it has changed since the run was started"
    one.add_argument("--accept-changed-code", action="store_true", help=text)
    add_trust_option(one)


def add_trust_option(one: argparse.ArgumentParser) -> None:
    """Adds the option that allows the code which a run folder from elsewhere names."""
    text = "run the code that this folder names although you did not start it on this machine; remembered"
    one.add_argument("--trust-code", action="store_true", help=text)


def add_run_options(one: argparse.ArgumentParser) -> None:
    """Adds the options that train and compare share."""
    add_group(one, TrainingOptions)
    add_run_groups(one)


def add_data_commands(one: argparse.ArgumentParser) -> None:
    """Adds `assay data make, convert, describe`."""
    what = one.add_subparsers(dest="data_command", required=True, parser_class=Parser, metavar="COMMAND")
    text = "generate offline datasets of a task from a seed, with agents trained here"
    make = what.add_parser("make", help=text, description=text)
    make.add_argument("task", help="task")
    kinds = "random, scripted, play (tasks with goals), medium, medium-replay, expert, medium-expert"
    make.add_argument("kinds", nargs="+", metavar="KIND", help=f"{kinds}; several kinds use one trained agent")
    make.add_argument("--method", help="method of the agent (default: sac for continuous actions, ppo for discrete)")
    make.add_argument(
        "--steps", type=int, default=0, metavar="N", help="training steps of the agent (default: its recipe's)"
    )
    add_group(make, TrainingOptions, only={"set_": "change a setting of the agent; repeatable"})
    make.add_argument(
        "--episodes", type=int, default=50, metavar="N", help="episodes per kind except medium-replay (default: 50)"
    )
    make.add_argument(
        "--noise", type=float, default=0.1, metavar="P", help="share of uniform actions in scripted and play"
    )
    make.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    make.add_argument("--out", type=Path, default=Path("runs/data"), metavar="DIR", help="folder (default: runs/data)")
    text = "convert an offline dataset; the suffix of TARGET names the format, no suffix means a Minari folder"
    convert = what.add_parser("convert", help=text, description=text)
    convert.add_argument("source", help=".safetensors, .npz, .hdf5, a Minari folder, or minari:ID")
    convert.add_argument("target", type=Path, help=".safetensors, .npz, .hdf5, or a new folder")
    text = "print rows, episodes, returns, quality (TQ), coverage (SACo) and hash of offline datasets"
    show = what.add_parser("describe", help=text, description=text)
    show.add_argument("files", nargs="+", metavar="FILE")
    show.add_argument(
        "--task", help="task whose uniform actions are TQ 0 and whose expert, if it has one, is TQ 1 (32 episodes each)"
    )
    show.add_argument(
        "--reference", metavar="FILE", help="dataset whose state-action pairs are SACo 1, such as the replay of a run"
    )
    for command in (make, convert, show):
        command.add_argument("--json", action="store_true", help="print JSON for programs")


def add_train_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `train`."""
    one.add_argument("name", nargs="?", help="method, METHOD:VARIANT or a file FILE.py (default: grpo)")
    one.add_argument("--task", help="task: a name, a Gymnasium id, FILE.jsonl, or FILE.py:NAME (default: the method's)")
    add_run_options(one)
    for group in (SeedOptions, PlacementOptions, GatherOptions, LoggerOptions):
        add_group(one, group)


def add_compare_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `compare`."""
    one.add_argument(
        "methods", nargs="+", metavar="METHOD", help="method, METHOD:VARIANT, or with settings: grpo:group_size=16"
    )
    one.add_argument("--task", nargs="+", required=True, help="one task or several")
    add_run_options(one)
    one.add_argument(
        "--seeds",
        type=number_or_auto,
        default=3,
        metavar="N",
        help="number of seeds (default: 3), or auto: a sequential test decides",
    )
    one.add_argument("--budget", type=float, metavar="MINUTES", help="start no run after this time")
    add_group(one, PlacementOptions, only=WHERE)
    add_group(one, PoolOptions)


def add_ablate_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `ablate`."""
    one.add_argument("first", metavar="A", help="method or METHOD:VARIANT")
    one.add_argument("second", metavar="B", help="the method to compare with, e.g. the base of A")
    one.add_argument("--task", required=True, help="task")
    add_run_options(one)
    one.add_argument("--seeds", type=int, default=5, metavar="N", help="number of seeds (default: 5)")
    one.add_argument("--budget", type=float, metavar="MINUTES", help="start no run after this time")
    add_group(one, PlacementOptions, only=WHERE)
    add_group(one, PoolOptions)
    one.add_argument("--dry", action="store_true", help="only list the parts that would be swapped, and the runs")


def add_tune_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `tune`."""
    one.add_argument("name", help="method")
    one.add_argument("--task", required=True, help="task")
    one.add_argument("search", nargs="+", metavar="PATH=LOW:HIGH[:log]", help="a setting and its range, or PATH=A,B,C")
    one.add_argument("--trials", type=int, default=16, metavar="N", help="number of trials (default: 16)")
    one.add_argument("--tuning-seeds", type=int, default=2, metavar="N", help="seeds per trial (default: 2)")
    one.add_argument(
        "--seeds", type=int, default=5, metavar="N", help="fresh seeds to score the chosen settings (default: 5)"
    )
    one.add_argument("--hyperband", action="store_true", help="Hyperband: stop bad trials early (needs Optuna)")
    steps = "training steps of a full run (default: the recipe's)"
    add_group(
        one, TrainingOptions, only={"steps": steps, "set_": "", "warmup": "", "data": "", "model": "", "preset": ""}
    )
    add_run_groups(one)
    add_group(one, PlacementOptions, only=WHERE)
    add_group(one, PoolOptions)
    one.add_argument(
        "--out", type=Path, metavar="DIR", help="folder (default: runs/tune-...); an existing search is resumed"
    )


def number_or_auto(text: str) -> int | str:
    """Returns the value of `compare --seeds`: a number, or "auto"."""
    return text if text == "auto" else int(text)


number_or_auto.__name__ = "number of seeds, or auto"  # argparse prints this name in its error


def add_claim_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `claim`."""
    one.add_argument("name", nargs="?", help="method")
    one.add_argument(
        "--all", action="store_true", help="measure all methods with a stale or missing verdict, oldest first"
    )
    one.add_argument(
        "--exact", action="store_true", help="only the exact claims, which need no training (milliseconds)"
    )
    one.add_argument(
        "--check", action="store_true", help="train nothing; check that verdict files are unedited and up to date"
    )
    one.add_argument(
        "--stamp", action="store_true", help="compute stamps from short runs on this machine; mark stale verdicts"
    )
    one.add_argument(
        "--mutants",
        action="store_true",
        help="run the exact claims against wrong versions of the method; writes what became of them into its record",
    )
    one.add_argument("--settings", action="store_true", help="record the settings of the method's recipes, or of all")
    one.add_argument("--again", action="store_true", help="also measure claims whose recorded result still fits")
    one.add_argument(
        "--replicate", action="store_true", help="measure with other seeds, beside the verdict, which is kept"
    )
    one.add_argument("--replay", action="store_true", help="renew a stale verdict if seed 0 reproduces its scores")
    one.add_argument("--budget", type=float, metavar="MINUTES", help="stop after this time; run again to resume")
    one.add_argument(
        "--verdicts", type=Path, metavar="DIR", help="folder of KEY.json verdicts (default: those of the package)"
    )
    one.add_argument(
        "--work",
        type=Path,
        default=Path("runs/claims"),
        metavar="DIR",
        help="folder of the runs (default: runs/claims)",
    )
    add_group(one, PlacementOptions, only=WHERE)
    add_group(one, TrainingOptions, only=dict.fromkeys(("model", "set_"), "with --replicate, for both sides"))
    add_group(one, LanguageOptions, only={"dtype": "with --replicate, numbers of a pretrained model"})
    add_group(one, PoolOptions)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. An error that the user can fix is one sentence on stderr and exit code 2, not a traceback."""
    options = parser().parse_args(arguments)
    try:
        # run_command imports torch, so that --help is fast and Ctrl-C leaves no traceback
        return run_command(options) if arguments is not None else remembered(options, run_command)
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


READ_AGAIN = ("evaluate", "export", "resume", "reproduce", "serve", "plan")
"""Commands on a run whose training said what is odd about its data."""


def told_once(message: str, told: dict[str, None]) -> None:
    """Prints a warning unless it was printed before."""
    if message not in told:
        told[message] = None
        print(f"assay: {message}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
