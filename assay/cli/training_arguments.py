"""Arguments of the commands that train: train, compare, ablate, tune, claim."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.runs.options import GatherOptions, LanguageOptions, add_run_groups
from assay.runs.options.group import add_group
from assay.runs.options.placement import PlacementOptions
from assay.runs.options.training import LoggerOptions, PoolOptions, SeedOptions, TrainingOptions

WHERE = dict.fromkeys(("device", "micro_batch", "tokens", "recompute", "compiled", "deterministic"), "")
"""Options of a placement that commands of many runs have too."""


def add_run_options(one: argparse.ArgumentParser) -> None:
    """Adds the options that train and compare share."""
    add_group(one, TrainingOptions)
    add_run_groups(one)



def add_train_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `train`."""
    one.add_argument("name", metavar="METHOD", nargs="?", help="a method, METHOD:VARIANT or FILE.py (default: grpo)")
    one.add_argument("--task", help="task: a name, a Gymnasium id, FILE.jsonl, or FILE.py:NAME (default: the method's)")
    add_run_options(one)
    for group in (SeedOptions, PlacementOptions, GatherOptions, LoggerOptions):
        add_group(one, group)


def add_compare_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of `compare`."""
    one.add_argument(
        "methods", nargs="+", metavar="METHOD", help="method, METHOD:VARIANT, or with settings: grpo:group_size=16"
    )
    one.add_argument("--task", nargs="+", required=True, help="one task or several; 'mini-*': all that begin so")
    add_run_options(one)
    one.add_argument(
        "--seeds",
        type=number_or_auto,
        default=3,
        metavar="N",
        help="number of seeds (default: 3), or auto: a sequential test decides",
    )
    one.add_argument(
        "--equal-decisions",
        action="store_true",
        help="read scores where all have taken as many decisions (tokens, thrown-away ones too) as the shortest run",
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
    one.add_argument("name", metavar="METHOD", help="method")
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
    one.add_argument("name", metavar="METHOD", nargs="?", help="method")
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
