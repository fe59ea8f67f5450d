"""Pairs and visits of starts, against what is counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience
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


def wrong_rows(recipe: Recipe) -> float:
    """Returns how many rows of starts 3, 5, 3, gathered twice, have not the next sample of their start, and how many
    are in a group with rows of another visit.
    """
    task, wrong = levels(), 0
    scene = Scene(task, actor=probes.small_policy(task), starts=np.array([3, 5, 3]), draw=Draw(0))
    assert recipe.rollout is not None
    state = recipe.rollout.init(scene)
    for visit in ((0, 0, 1), (2, 1, 3)):
        played = recipe.rollout(scene, state)
        samples = [8 * one + member for one in visit for member in range(8)]
        assert played.group is not None
        same = (played.group.unsqueeze(0) == played.group.unsqueeze(1)).sum(1)
        wrong += int((played.column("sample") != torch.tensor(samples)).sum() + (same != 8).sum())
    return float(wrong)
