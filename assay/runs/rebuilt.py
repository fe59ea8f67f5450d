"""The plan of a run with another device, dtype, place of its pretrained model, or setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.runs.checks import check_placement
from assay.runs.language import with_dtype
from assay.runs.options.scoring import RebuiltOptions
from assay.runs.plan import Plan


def rebuilt_plan(plan: Plan, rebuilt: RebuiltOptions, settings: Mapping[str, Any]) -> Plan:
    """Returns the plan with what is given in place of the run's own, recorded as if the run had been started with it.

    Layers are compiled on the run's own kind of device alone, unless the options say so.
    """
    placement, recipe, options = plan.placement, plan.recipe, plan.options
    if rebuilt.device is not None:
        same = rebuilt.device.partition(":")[0] == placement.device.partition(":")[0]
        placement = replace(placement, device=rebuilt.device, compiled=placement.compiled and same)
    if rebuilt.compiled is not None:
        placement = replace(placement, compiled=rebuilt.compiled)
    if rebuilt.micro_batch is not None:
        placement = replace(placement, micro_batch=rebuilt.micro_batch)
    check_placement(placement, plan.task)
    if rebuilt.dtype is not None:
        recipe = with_dtype(recipe, rebuilt.dtype)
        options = replace(options, language=replace(options.language, dtype=rebuilt.dtype))
    changes = {**rebuilt.settings(), **settings}
    for path, value in changes.items():
        recipe = recipe.set(path, value)
    return replace(plan, placement=placement, recipe=recipe, options=options, settings={**plan.settings, **changes})
