"""What can be sampled by separate processes, checked before compute is spent."""

from __future__ import annotations

import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe, Stage
from assay.decoding.sampling_parameters import Narrowing
from assay.engine.placement import Placement
from assay.parts.credit.off_policy import SamplerWeight
from assay.parts.curricula.in_order import InOrder
from assay.runs.checks import walked
from assay.runs.options.gathering import GatherOptions

TRUNCATED = "Set objective=PolicyGradient(trust=Clip()) there (as grpo and dapo), add --correct-sampling token"


def check_gathering(options: GatherOptions, recipe: Recipe, placement: Placement) -> None:
    """Raises AssayError for a recipe whose rows cannot be sampled apart, or not with older weights."""
    if not options.is_used:
        return
    asked = f"--gatherers is {options.gatherers}" if options.gatherers else f"--pieces is {options.pieces}"
    asked = f"--server is {options.server[0]}" if options.server else asked
    rollout, select = recipe.rollout, recipe.select
    if rollout is None:
        raise AssayError(f"{asked}, but {recipe.name} trains on given data and samples nothing. Remove the option.")
    if not rollout.by_start or recipe.curriculum is None:
        raise AssayError(
            f"{asked}, but what {type(rollout).__name__} gathers depends on more than its starts (running simulations, "
            "other rows, a state). Use a method with rollout Episodes, or remove the option."
        )
    if select is not None and select.max_rounds > 1:
        raise AssayError(
            f"{asked}, but {type(select).__name__} gathers again when it keeps too few groups. Add --set "
            "select.max_rounds=1, or remove the option."
        )
    if options.pieces > rollout.num_starts:
        raise AssayError(f"--pieces is {options.pieces}, but a step has {rollout.num_starts} starts. Use at most that.")
    if options.ipc and torch.device(placement.device).type != "cuda":
        raise AssayError(
            f"--ipc shares the memory of a GPU, but the device is {placement.device}. Add --device cuda, or remove "
            "--ipc."
        )
    if not options.server and placement.precision is not None:
        raise AssayError(f"{asked}, but separate samplers sample in float32 only. Remove --precision or the option.")
    if placement.is_on_gpu and not options.server and (options.on_ or not options.gatherers):
        raise AssayError(
            f"{asked} and the device is {placement.device}, which only gatherers of this machine share. Use "
            "--gatherers without --on, or --device cpu."
        )
    check_pieces(options, placement, rollout.num_starts)
    if options.server:
        check_served(asked, options.lag, recipe)
    if options.in_flight and any(part.models for part in recipe.rewards):
        raise AssayError("--in-flight, but a reward reads a model, which has one version. Remove --in-flight.")
    if options.lag:
        check_lag(options.lag, recipe)


def check_pieces(options: GatherOptions, placement: Placement, starts: int) -> None:
    """Raises AssayError for samplers without work, and for shards that are not equal pieces of a step."""
    name, pieces = ("shards", placement.shards) if placement.shards > 1 else ("pieces", options.pieces)
    if placement.shards > 1 and options.pieces > 1:
        raise AssayError(f"--pieces is {options.pieces}, but --shards {pieces} cuts a step already. Remove --pieces.")
    if placement.shards > 1 and starts > pieces and starts % pieces:
        raise AssayError(
            f"--shards is {pieces} and a step has {starts} starts, which gatherers sample in equal parts. Add --set "
            f"rollout.num_starts={-(-starts // pieces) * pieces}."
        )
    if options.num > (most := pieces * (options.lag + 1)):
        more = -(-options.num // (options.lag + 1))
        more = 1 << (more - 1).bit_length() if placement.shards > 1 else more
        what = f"--gatherers is {options.gatherers}" if options.gatherers else f"there are {options.num} servers"
        raise AssayError(
            f"{what}, but --{name} {pieces} and --lag {options.lag} leave work for {most} at a time. "
            f"Add --{name} {more}, or use fewer."
        )


def check_served(asked: str, lag: int, recipe: Recipe) -> None:
    """Raises AssayError for a recipe whose rows a server cannot sample."""
    if lag and (read := [name for part in recipe.rewards for name in part.models]):
        raise AssayError(f"{asked} and --lag is {lag}, but a reward reads '{read[0]}' while it trains. Use --lag 0.")


def check_foreign(url: str, recipe: Recipe) -> None:
    """Raises AssayError for a recipe without a correction for a server whose kernels are not the learner's, and for one
    whose sampling parameters change the distribution: such a server tells the model's log-probabilities alone.
    """
    if any(isinstance(part, Narrowing) and part.changes for part in walked(recipe.rollout)):
        raise AssayError(
            f"--server {url} is not 'assay serve', which alone tells log-probabilities after temperature, top-k, top-p "
            "and min-p. Serve with it, or use temperature 1 and all tokens."
        )
    for stage in recipe.stages:
        if stage.objective and not is_corrected(recipe, stage):
            raise AssayError(
                f"--server {url} is not 'assay serve': its log-probabilities are not exactly the policy's, and stage "
                f"'{stage.name}' of {recipe.name} has no truncated importance ratio. {TRUNCATED}, or use 'assay serve'."
            )


def check_lag(lag: int, recipe: Recipe) -> None:
    """Raises AssayError for a recipe that would take samples of older weights for the policy's own, or whose curriculum
    must see the results of a step before the next one begins.
    """
    for stage in recipe.stages:
        if stage.objective and not is_corrected(recipe, stage):
            raise AssayError(
                f"--lag is {lag}, but stage '{stage.name}' of {recipe.name} has no importance ratio: samples of older "
                f"weights would count as the policy's own. {TRUNCATED}, or use --lag 0."
            )
    if not isinstance(recipe.curriculum, InOrder):
        raise AssayError(
            f"--lag is {lag}, but {type(recipe.curriculum).__name__} chooses starts by the results of the step before. "
            "Use curriculum=InOrder(), or --lag 0."
        )


def is_corrected(recipe: Recipe, stage: Stage) -> bool:
    """Returns whether samples of another policy are weighed by its ratio to this one: in the credit, or by the stage's
    objectives.
    """
    return any(isinstance(part, SamplerWeight) for part in recipe.credit) or has_ratio(stage)


def has_ratio(stage: Stage) -> bool:
    """Returns whether every objective of a stage has a ratio to the policy that sampled, and uses it."""
    for objective in stage.objective:
        parts = walked(objective)
        if not any(getattr(part, "slot", "") == "ratio" for part in parts):
            return False
        if any("old_policy" in getattr(part, "breaks", {}) for part in parts):  # a trust region that ignores it
            return False
    return True
