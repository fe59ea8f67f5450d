"""Pairs of starts, against what is counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import Scene
from assay.methods.wgrpo_pairing.pairing import Pair
from assay.tasks.testbeds.language.sparse import levels

RIGHT = (1, 1, 7, 4, 5, 0, 8)
"""Right answers of eight at starts 10, 11, ...: none without the first row; hard, easy, two near half, none, all."""


def seen(*right: int) -> Experience:
    """Returns groups of eight from starts 10, 11, ...; the first row has no decision."""
    data, start = probes.groups_with_right(*right), torch.arange(len(right)).repeat_interleave(8) + 10
    return replace(data, mask=data.mask & (torch.arange(len(data)) != 0).unsqueeze(1)).add({"start": start})


def wrong_starts(recipe: Recipe, pool: int, once: bool, then: tuple[int, ...], *wanted: int) -> float:
    """Returns how many of the next five starts are not these by turns, after `RIGHT` and then other rates were seen."""
    assert isinstance(recipe.curriculum, Pair)
    curriculum, scene = replace(recipe.curriculum, pool=pool, once=once), Scene(levels(), num_starts=5)
    state = curriculum.init(scene)
    for right in (RIGHT, then):
        curriculum.observe(seen(*right), scene, state)
    return float((curriculum(scene, state) != np.resize(wanted, 5)).sum())
