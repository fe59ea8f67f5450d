"""Arguments of the commands on plans, runs, policies, datasets and reports."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

from assay.cli.parsing import Parser
from assay.runs.options.group import add_group
from assay.runs.options.scoring import RebuiltOptions, ScoringOptions
from assay.runs.options.training import TrainingOptions


def add_plan_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `plan`."""
    one.add_argument("name", metavar="METHOD", help="a method of language tasks")
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
    one.add_argument("folder", metavar="RUN", type=Path, help="run folder of a finished run")
    one.add_argument("--out", type=Path, metavar="DIR", help="folder of the second run (default: RUN-again)")
    text = "relative difference of weights and score that counts as within (default: 0.0001)"
    one.add_argument("--tolerance", type=float, default=1e-4, metavar="X", help=text)
    add_group(one, RebuiltOptions)
    add_code_option(one)


def add_rebuilt_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of how a saved policy is built again."""
    add_group(one, RebuiltOptions)


def add_report_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `report`."""
    one.add_argument("folders", metavar="FOLDER", nargs="*", type=Path, help="runs, or folders that contain some")
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
    one.add_argument("--kind", help="only methods for this kind of task: language, control, continuous-control, ...")
    add_former_name(one, "--world", "kind")
    one.add_argument(
        "--changes", metavar="SLOT", help="only methods that change this slot of their base: credit, rollout, ..."
    )
    one.add_argument("--verdict", help="only this verdict: holds, fails, inconclusive, stale or 'no verdict'")


def add_policy_commands(evaluate: argparse.ArgumentParser, export: argparse.ArgumentParser) -> None:
    """Adds the options of both commands."""
    evaluate.add_argument("folder", metavar="RUN", type=Path, help="run folder")
    add_group(evaluate, ScoringOptions)
    add_group(evaluate, RebuiltOptions)
    export.add_argument("folder", metavar="RUN", type=Path, help="run folder")
    text = "folder to create, with a model card for a control policy; or policy.pt, policy.pt2, policy.onnx"
    export.add_argument("target", metavar="TARGET", type=Path, help=text)
    add_group(export, ScoringOptions, only={"checkpoint": ""})
    export.add_argument("--merge", action="store_true", help="merge a LoRA adapter into its base model")
    text = "write the weights as a folder of torch.distributed.checkpoint"
    export.add_argument("--dcp", action="store_true", help=text)
    for one in (evaluate, export):
        add_code_option(one)


def add_former_name(one: argparse.ArgumentParser, former: str, now: str) -> None:
    """Adds the former name of an option, which warns and is not in the help."""

    class Former(argparse.Action):
        """Sets the option under its present name."""

        def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
            warnings.warn(f"{former} is now --{now}", DeprecationWarning, stacklevel=2)
            setattr(namespace, now, values)

    one.add_argument(former, action=Former, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_code_option(one: argparse.ArgumentParser) -> None:
    """Adds the options that allow own code to have changed, and to be named by a folder from elsewhere."""
    text = "use your own code (rewards, method, environment) although it has changed since the run was started"
    one.add_argument("--accept-changed-code", action="store_true", help=text)
    add_trust_option(one)


def add_trust_option(one: argparse.ArgumentParser) -> None:
    """Adds the option that allows the code which a run folder from elsewhere names."""
    text = "run the code that this folder names although you did not start it on this machine; remembered"
    one.add_argument("--trust-code", action="store_true", help=text)


def add_making(make: argparse.ArgumentParser) -> None:
    """Adds what `assay data make` takes."""
    make.add_argument("task", metavar="TASK", help="task")
    kinds = "random, scripted, demonstrated, play (tasks with goals), own (tasks with data), "
    kinds += "medium, medium-replay, expert, medium-expert"
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
    for name, text in (("action", "which is recorded with the action"), ("system", "which only the system adds")):
        text = f"normal noise of the expert's actions in demonstrated, in half-ranges, {text} (default: 0)"
        make.add_argument(f"--{name}-noise", type=float, default=0.0, metavar="SIGMA", help=text)
    make.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    text = "folder, or a new file .safetensors for one kind (default: runs/data)"
    make.add_argument("--out", type=Path, default=Path("runs/data"), metavar="PATH", help=text)


def add_data_commands(one: argparse.ArgumentParser) -> None:
    """Adds `assay data make, convert, describe, alter`."""
    what = one.add_subparsers(dest="data_command", required=True, parser_class=Parser, metavar="COMMAND")
    text = "generate offline datasets of a task from a seed, with agents trained here"
    make = what.add_parser("make", help=text, description=text)
    add_making(make)
    text = "convert an offline dataset; the suffix of TARGET names the format, no suffix means a Minari folder"
    convert = what.add_parser("convert", help=text, description=text)
    convert.add_argument("source", metavar="SOURCE", help=".safetensors, .npz, .hdf5, a Minari folder, or minari:ID")
    convert.add_argument("target", metavar="TARGET", type=Path, help=".safetensors, .npz, .hdf5, or a new folder")
    text = "print rows, episodes, returns, quality (TQ), coverage (SACo), what favours cloning, and hash of datasets"
    show = what.add_parser("describe", help=text, description=text)
    show.add_argument("files", nargs="+", metavar="FILE")
    show.add_argument(
        "--task", help="task whose uniform actions are TQ 0 and whose expert, if it has one, is TQ 1 (32 episodes each)"
    )
    show.add_argument(
        "--reference", metavar="FILE", help="dataset whose state-action pairs are SACo 1, such as the replay of a run"
    )
    text = "write a dataset altered by rules, which the new file names with the hash of the old one"
    alter = what.add_parser("alter", help=text, description=text)
    alter.add_argument("file", metavar="FILE", help=".safetensors, .npz, .hdf5, a folder, or minari:ID")
    rules = "corrupted:what=reward,share=0.3,size=1; filtered:share=0.1,of=best; action-free:share=0.9,of=best; "
    rules += "completed; mixed:other=FILE,share=0.5; delayed:steps=10"
    alter.add_argument("rules", nargs="+", metavar="RULE", help=f"{rules}; several are applied in order")
    alter.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    alter.add_argument("--out", type=Path, required=True, metavar="TARGET", help="the new file")
    for command in (make, convert, show, alter):
        command.add_argument("--json", action="store_true", help="print JSON for programs")
