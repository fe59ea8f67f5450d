"""Checks of a plan before compute is spent: values of settings, device and sizes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.recipe import Recipe
from assay.core.settings import settings
from assay.core.slots import DeviceTask, Rollout, Source, Task
from assay.core.spaces import Discrete, Vocabulary
from assay.engine.gloo import SHARE
from assay.engine.placement import Placement
from assay.parts.credit.outcome import GroupDeviation, GroupMean, LeaveOneOut
from assay.parts.credit.shaping import Informative, PairUp
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.file_rows import Rows
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.redteam_chat import SeedGame
from assay.tasks.language.sessions import Sessions

LONGEST_NAME = 255
"""Characters of the longest name that a file can have."""
SIZES = {
    "num_starts", "group_size", "num_envs", "steps", "batch", "capacity", "updates", "episodes", "minibatches",
    "epochs", "max_rounds", "width", "layers", "heads", "num", "hidden", "every",
}  # fmt: skip
COUNTS, MOST_UPDATES = ("minibatches", "epochs", "updates"), 1_000_000
"""Settings that repeat an update within one step, and their largest value."""
IN_GROUPS = (GroupMean, GroupDeviation, LeaveOneOut, Informative, PairUp)


def check_values(recipe: Recipe) -> None:
    """Refuses settings out of range, before compute is spent."""
    for phase in recipe.before:
        check_values(phase.recipe)
    for path, value in settings(replace(recipe, before=())).items():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, int | float) and (rule := broken_rule(path, item)):
                raise AssayError(f"{'.'.join(path)} is {value}. It must be {rule}.")
    for stage in recipe.stages:
        if not stage.trains or not stage.terms:
            raise AssayError(f"stage '{stage.name}' has no model or no loss. Give it both.")
        if isinstance(stage.optimizer, Adam) and len(stage.optimizer.betas) != 2:
            raise AssayError(f"stage '{stage.name}' has {len(stage.optimizer.betas)} betas. Adam needs two.")
    listed = (recipe.rewards, recipe.credit, recipe.constraints, *(stage.terms for stage in recipe.stages))
    for part in (part for parts in listed for part in parts):
        if isinstance(part, str | int | float):
            raise AssayError(f"{part!r} is not a part. Replace rewards, credit, constraints and losses in Python.")
    members = vars(recipe.rollout).get("group_size") if recipe.rollout is not None else None
    compares = [type(part).__name__ for part in walked(recipe) if isinstance(part, IN_GROUPS)]
    if members == 1 and compares:
        raise AssayError(f"rollout.group_size is 1, but {compares[0]} compares the members of a group. Use at least 2.")


MOST_STEPS = 10**9
"""Largest number of training steps: more is a slip of the hand."""
MOST_SHARDS = 4096
"""Largest number of shards of a batch, for the same reason."""
MOST_RATE = 1e4
"""Largest learning rate, for the same reason."""
LARGEST_SEED = 2**63 - 1
"""The largest seed of a run."""
MOST_SEEDS = 10_000
"""Largest number of seeds of one command."""


def checked_warmup(warmup: int | None, task: Task, usual: int) -> int:
    """Returns the number of supervised steps, the usual one for None; AssayError if it is negative or huge, or if the
    task has no demonstrations in tokens.
    """
    if warmup and not isinstance(task.spec.action, Vocabulary | Discrete):
        raise AssayError(f"--warmup is {warmup}, but '{task.name}' is no language task. Remove it.")
    if warmup is not None and warmup < 0:
        raise AssayError(f"warmup is {warmup}. Use 0 (none) or a number of supervised steps.")
    if warmup is not None and warmup > MOST_STEPS:
        raise AssayError(f"warmup is {warmup}. Use at most {MOST_STEPS:,}.")
    return usual if warmup is None else warmup


def checked_steps(steps: int) -> int:
    """Returns a number of training steps; AssayError if it is not a whole number from 1 to `MOST_STEPS`."""
    if type(steps) is not int:
        raise AssayError(f"steps is {steps!r}. Use a whole number.")
    if not 1 <= steps <= MOST_STEPS:
        raise AssayError(f"steps is {steps}. Use {'at least 1' if steps < 1 else f'at most {MOST_STEPS:,}'}.")
    return steps


def checked_seed(seed: int) -> int:
    """Returns a seed; AssayError if it is not a whole number from 0 to `LARGEST_SEED`: others repeat one of these."""
    if type(seed) is not int:
        raise AssayError(f"seed is {seed!r}. Use a whole number.")
    if not 0 <= seed <= LARGEST_SEED:
        raise AssayError(f"seed is {seed}. Use {'at least 0' if seed < 0 else f'at most {LARGEST_SEED:,}'}.")
    return seed


def checked_seeds(seeds: int, name: str = "--seeds", *, more: str = "") -> int:
    """Returns a number of seeds; AssayError if it is not from 1 to `MOST_SEEDS`."""
    if not isinstance(seeds, int):
        raise AssayError(f"{name} is {seeds!r:.60}. Use a whole number.")
    if not 1 <= seeds <= MOST_SEEDS:
        rule = f"at least 1{more}" if seeds < 1 else f"at most {MOST_SEEDS:,}"
        raise AssayError(f"{name} is {seeds}. Use {rule}.")
    return seeds


def checked_folder(folder: Path, known: Sequence[str]) -> Path:
    """Returns a folder for several runs; AssayError if it is a file, or holds other things than such runs, which have
    one of the `known` files.
    """
    if folder.exists() and not folder.is_dir():
        raise AssayError(f"{folder} is a file, not a folder. Choose another --out.")
    held = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if held and not any(name in held for name in known):
        raise AssayError(f"{folder} holds other things ({', '.join(held[:3])}). Choose another --out.")
    return folder


def check_rows(task: Task) -> None:
    """Raises AssayError for a file without a row to train on, or without a held-out one; and for a game over its rows
    that has no judge.
    """
    prompts = task.prompts if isinstance(task, PairsTask | SeedGame) else task
    if isinstance(task, SeedGame):
        task.check_judge()
    if isinstance(prompts, PromptTask) and isinstance(prompts.items, Rows):
        for split in (0, 1):
            prompts.items.item(0, split)


def broken_rule(path: tuple[str, ...], value: float) -> str:
    """Returns the rule that a number breaks, or ""; applies to Assay's parts only, since users may reuse the names."""
    slot, name = path[0], path[-1]
    is_size = name in SIZES and slot in ("rollout", "source", "select", "actor", "critics", "copies", "stages", "steps")
    if math.isnan(value):
        return "a number"
    if is_size and value < 1:
        return "at least 1"
    if is_size and name in COUNTS and value > MOST_UPDATES:
        return f"at most {MOST_UPDATES:,}"
    if "optimizer" in path and (not math.isfinite(value) or value < 0 or (name == "epsilon" and value == 0)):
        return "more than 0" if name == "epsilon" else "finite and not negative"
    if name == "learning_rate" and value > MOST_RATE:
        return f"at most {MOST_RATE:g}"
    if "trust" in path and name in ("low", "high") and value < 0:
        return "not negative"
    if ((slot, name) == ("copies", "rate") or name in ("discount", "betas")) and not 0 <= value <= 1:
        return "between 0 and 1"
    if ((slot, name) == ("critics", "initial") or name == "share") and not 0 < value < math.inf:
        return "finite and more than 0"
    return ""


def walked(value: Any) -> list[Any]:
    """Returns all parts of a tree."""
    below = list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else []
    if is_dataclass(value):
        below = list(vars(value).values())
    return [value, *(part for item in below for part in walked(item))]


def check_placement(placement: Placement, task: Task) -> None:
    """Refuses a device that does not exist or that the task cannot use, and sizes out of range."""
    check_shards(placement)
    if placement.micro_batch < 0:
        raise AssayError(f"micro-batch is {placement.micro_batch}. Use 0 (no limit) or a number of rows.")
    if placement.tokens < 0:
        raise AssayError(f"tokens is {placement.tokens}. Use 0 (no limit) or the maximum tokens per micro-batch.")
    check_device(placement.device)
    if placement.is_on_gpu and not isinstance(task.spec.action, Vocabulary):
        check_portable(task)


def check_device(name: str) -> None:
    """Refuses a device that does not exist here."""
    try:
        torch.zeros((), device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        known = ", ".join(["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
        raise AssayError(f"device '{name}' is not available here. Use {known}.") from None


def check_portable(task: Task) -> None:
    """Refuses a control task that steps its simulations on the CPU alone."""
    if not (isinstance(task, DeviceTask) and task.is_portable):
        raise AssayError(
            f"task '{task.name}' steps its simulations on the CPU. On a GPU run language tasks, cartpole, pendulum and "
            "warp:NAME; here use --device cpu."
        )


ON_DEVICE = ("Fragments", "Episodes", "Standardising", "FreshDecisions", "FreshSequences", "Replay")
"""Rollouts and sources that stay on the device of their simulations."""


def check_parts_on_device(recipe: Recipe, placement: Placement, task: Task) -> None:
    """Refuses parts that keep control's experience on the CPU, on a GPU."""
    if not placement.is_on_gpu or isinstance(task.spec.action, Vocabulary):
        return
    if placement.ranks > 1:
        raise AssayError(f"ranks is {placement.ranks}, but simulations on a GPU run in one process. Use --ranks 1.")
    gathers = (recipe.rollout, *(feed.source for feed in recipe.feeds))
    for part in (one for gather in gathers for one in walked(gather)):
        if {Rollout, Source}.intersection(type(part).__mro__) and type(part).__name__ not in ON_DEVICE:
            raise AssayError(
                f"{type(part).__name__} of '{recipe.name}' keeps experience on the CPU. On a GPU control is trained by "
                "ppo, a2c, dqn, sac, td3 and others that gather with Fragments; here use --device cpu."
            )
    if recipe.before:
        raise AssayError(f"'{recipe.name}' has phases before it, which run on the CPU. Use --device cpu.")


def check_shards(placement: Placement) -> None:
    """Refuses shards that are not a power of two, and ranks that do not divide them or have too few GPUs."""
    shards, ranks = placement.shards, placement.ranks
    if not 1 <= shards <= MOST_SHARDS or shards & (shards - 1):
        near = 1 << max(0, min(shards, MOST_SHARDS).bit_length() - 1) if shards > 0 else 1
        raise AssayError(f"shards is {shards}. Use a power of two up to {MOST_SHARDS:,}, such as --shards {near}.")
    if ranks < 1 or shards % ranks:
        fits = 1 << max(0, ranks - 1).bit_length()
        fix = f"--ranks {fits} --shards {max(fits, shards)}" if ranks > 1 else "--ranks 1"
        raise AssayError(f"ranks is {ranks} and shards is {shards}: the ranks must divide the shards. Use {fix}.")
    if ranks > 1 and placement.is_on_gpu:
        check_gpus(ranks, torch.device(placement.device))
    if placement.sharded:
        wrong = [name for name in ("precision", "recompute", "compiled") if getattr(placement, name)]
        wrong += ["device cuda, a GPU for each rank"] if torch.device(placement.device) == torch.device("cuda") else []
        if ranks == 1:
            raise AssayError("--sharded splits layers among ranks, and there is one. Use --ranks 2 or more.")
        if wrong:
            raise AssayError(f"--sharded was not tried together with --{wrong[0]}. Remove one of them.")


def check_gpus(ranks: int, device: torch.device) -> None:
    """Raises AssayError if this machine has fewer GPUs than ranks, unless one is named for all of them."""
    if device.type != "cuda":
        raise AssayError(f"ranks is {ranks}, but ranks compute on CPUs or with CUDA, not on '{device}'. Use --ranks 1.")
    here, there = int(os.environ.get("LOCAL_WORLD_SIZE", ranks)), torch.cuda.device_count()
    if device.index is None and 0 < there < here:
        raise AssayError(f"ranks is {here}, and each needs a GPU, but this machine has {there}. {SHARE}.")


def has_demonstrations(task: Task) -> bool:
    """Returns whether there is anything to imitate; not in a file of prompts alone, nor in conversations without a
    solution.
    """
    if isinstance(task, DialogueTask):
        is_single = isinstance(task.partner, Sessions) and not task.partner.is_repeatable
        return not is_single and bool(task.partner.item(0, 0).demonstration)
    return not isinstance(task, PromptTask) or bool(task.items.item(0, 0).demonstration)


def check_arguments(task: Any, settings: Any, placement: Any, model: Any) -> None:
    """Refuses arguments of Python, or entries of config.json, that have another type than they need."""
    if settings is not None and not (isinstance(settings, Mapping) and all(isinstance(name, str) for name in settings)):
        raise AssayError(f"settings is {settings!r:.60}. Use a dict from names to values, such as {{'lr': 1e-4}}.")
    if not isinstance(placement, Placement):
        raise AssayError(f"placement is {placement!r:.60}. Use a Placement, such as Placement(device='cpu').")
    check_device(placement.device)  # before files and models are read
    if model is not None and not isinstance(model, str):
        raise AssayError(f"model is {model!r:.60}. Use the folder or hub id of a pretrained model.")
    if isinstance(task, str) and max(map(len, task.split("/"))) > LONGEST_NAME:
        raise AssayError(f"task '{task[:40]}...' has {len(task):,} characters. Use a task's name, or a file.")


def checked_path(value: Any, name: str) -> Path:
    """Returns the path that an argument names; AssayError for anything else."""
    if not isinstance(value, str | os.PathLike):
        raise AssayError(f"{name} is {value!r:.60}. Use a path, as text or a Path.")
    path = Path(value)
    if "\0" in str(path) or any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
        raise AssayError(f"{name} is {str(path)!r:.60}, which can be no path. Use a shorter name of plain characters.")
    return path
