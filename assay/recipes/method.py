"""What a method's file says about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.recipe import Recipe
from assay.recipes.families import FAMILIES as FAMILIES
from assay.recipes.presets import EVERY, Preset


@dataclass(frozen=True)
class Method:
    """One method: its paper, recipe and departures from the paper. Its claims are `assay/claims/KEY.py`.

    `departures` are differences from the paper and its code, also what it measures and the claims here do not, with
    the reason; `pilots` say what was tried before a claim was stated, and on which seeds; `results` say what was found
    beside the claims, and why a verdict fell as it did.

    `presets` are the kinds of task it works with, the four of EVERY unless given; `default_task` is the task it is
    shown on. The formula is in the module's docstring. `key` is its name if that is not the module's with '-' for '_'.
    `base` makes the recipe that it is derived from, normally one of `assay.recipes`; None for a recipe that is itself a
    base. `aliases` are further names of the method, `variants` further recipes of the paper, each a function of the
    preset.

    `start_for` marks one of the few methods to start with, and says in a few words what for; a method that it does not
    name is as good, only later.

    `studied` says what of the paper does not act in a run: then the method is listed as studied, and not counted.

    A system changes how a recipe runs: `options` are the options of a run that it takes where the user gives none, by
    the names of their fields (`gatherers`, `lag`, `env_workers`).
    """

    paper: str
    recipe: Callable[..., Recipe]
    presets: tuple[Preset, ...] = EVERY
    default_task: str = "countdown"
    departures: tuple[str, ...] = ()
    key: str = ""
    family: str = ""
    base: Callable[..., Recipe] | None = None
    aliases: tuple[str, ...] = ()
    variants: Mapping[str, Callable[..., Recipe]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    pilots: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    start_for: str = ""
    studied: str = ""
