"""Learning rates of low-rank adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from assay.core.optimizers import Adam
from assay.core.recipe import Recipe, Stage
from assay.core.schedules import peak_of, with_peak
from assay.models.pretrained.transformers import Pretrained
from assay.runs.hardware import is_adapted
from assay.runs.options import RunOptions

ADAPTER_FACTOR = 10.0
"""Learning rate of low-rank adapters over that of whole weights: the best rates of both, supervised and by rewards, are
this far apart (Schulman et al. 2025, LoRA without regret)."""


def with_adapter_rates(
    recipe: Recipe, model: str | None, options: RunOptions, settings: Mapping[str, Any]
) -> Recipe:
    """Returns the recipe with the learning rates of adapters if these options and settings train some; else itself."""
    return with_faster_stages(recipe) if model is not None and is_adapted(model, options, settings) else recipe


def with_faster_stages(recipe: Recipe) -> Recipe:
    """Returns the recipe with `ADAPTER_FACTOR` times the learning rate in stages that train the pretrained actor, or
    critics on its network; phases before it that have the same actor too.
    """
    on_network = {name for name, critic in recipe.critics.items() if pretrained_below(critic)}

    def faster(stage: Stage) -> Stage:
        if not isinstance(stage.optimizer, Adam) or not {"actor", *on_network} & set(stage.trains):
            return stage
        rate = stage.optimizer.learning_rate
        rate = with_peak(rate, ADAPTER_FACTOR * peak_of(rate))
        return replace(stage, optimizer=replace(stage.optimizer, learning_rate=rate))

    before = tuple(
        replace(phase, recipe=with_faster_stages(phase.recipe)) if phase.recipe.actor == recipe.actor else phase
        for phase in recipe.before
    )
    return replace(recipe, stages=tuple(map(faster, recipe.stages)), before=before)


def pretrained_below(part: Any) -> bool:
    """Returns whether a part is a pretrained network or holds one."""
    if isinstance(part, Pretrained):
        return True
    below = [getattr(part, one.name) for one in fields(part)] if is_dataclass(part) else []
    return any(map(pretrained_below, below))


def adapter_note(recipe: Recipe, model: str | None, options: RunOptions, settings: Mapping[str, Any]) -> str:
    """Returns a sentence on the learning rates that adapters have by default; "" without adapters, and with a rate of
    the user's.
    """
    is_set = any(path.split(".")[-1] == "learning_rate" for path in settings)
    if model is None or is_set or not is_adapted(model, options, settings):
        return ""
    rates = {stage.name: peak_of(stage.optimizer.learning_rate) for stage in recipe.stages}
    shown = ", ".join(f"{rate:g} ({name})" for name, rate in rates.items())
    more = f"{ADAPTER_FACTOR:g} x that of whole weights; change with --set learning_rate="
    return f"adapters: learning rate {shown}, {more}"
