"""A rollout that also plays greedily, against greedy answers that are played one by one. Axes: B rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from assay.claims.probes.rollouts import small_policy
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience
from assay.core.slots import Scene
from assay.core.slots.scene import DISCARDED
from assay.tasks.language.addition import addition


def said(rows: Experience) -> list[list[int]]:
    """Returns the decisions of each row."""
    return [action[mask].tolist() for action, mask in zip(rows.action, rows.mask, strict=True)]


def greedy_gap(recipe: Recipe, outcomes: Sequence[float], kept: Sequence[int]) -> float:
    """Returns how far the recipe's rollout is from what it says, if the greedy answer to start i has outcomes[i] and
    any other answer 0.25: the rows of the inner rollout on the starts `kept` alone, each with its start's greedy
    outcome and its own reward, and the greedy decisions counted as spent; no decision if no start is kept.
    """
    task, draw = addition(1), Draw(0)
    rollout: Any = recipe.rollout
    actor, none = small_policy(task), np.zeros(1, dtype=np.int64)
    played = [task.play(actor, none + one, none, draw, split=0, greedy=True) for one in range(len(outcomes))]
    answers = [said(one)[0] for one in played]

    def reward(rows: Experience) -> Experience:
        pairs = zip(rows.column("start").tolist(), said(rows), strict=True)
        value = torch.tensor([outcomes[start] if told == answers[start] else 0.25 for start, told in pairs])
        return replace(rows, reward=value.unsqueeze(1) * rows.terminal)

    scene = Scene(task, actor=actor, draw=draw, starts=np.arange(len(outcomes)), reward=reward)
    found = rollout(scene, rollout.init(scene))
    spent = sum(value for value, _ in scene.metrics[DISCARDED])
    wrong = abs(spent - sum(len(answer) for answer in answers))
    if not kept:
        return wrong + float(found.mask.sum())
    alone = reward(rollout.gather(scene.given(starts=np.array(kept)), rollout.gather.init(scene)))
    assert alone.group is not None
    wrong += said(found) != said(alone) or found.group.tolist() != alone.group.tolist()
    right = torch.tensor([outcomes[start] for start in alone.column("start").tolist()])
    return wrong + float(
        (found.column("greedy_outcome") - right).abs().sum() + (found.reward - alone.reward).abs().sum()
    )
