"""A recipe's rollout and rewards outside of a run, with a small random policy or a given model.

Axes: B sequences, T decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, State
from assay.core.slots import Scene, Task
from assay.core.slots.scene import OnRows
from assay.core.spaces import Discrete, Vocabulary
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.ops import random


def small_policy(task: Task, seed: int = 0) -> Any:
    """Returns a random policy of a few parameters: a transformer for tokens, a table for states, else a perceptron."""
    spec = task.spec
    tokens, numbered = isinstance(spec.action, Vocabulary), isinstance(spec.observation, Discrete)
    body = Transformer(16, 1, 2) if tokens else Table() if numbered else Perceptron((8,))
    with random.seeded(seed), torch.no_grad():
        actor = Policy(body).build(spec)
        for tensor in actor.parameters():
            tensor.add_(0.5 * torch.randn_like(tensor))
    return actor


@dataclass(frozen=True)
class Only:
    """The models of a scene: the same one under every name."""

    given: Any

    def model(self, name: str) -> Any:
        """Returns the model."""
        return self.given

    def over(self, name: str, experience: Experience, function: OnRows) -> Tensor:
        """Returns function(model, rows) of all rows at once."""
        with torch.no_grad():
            return function(self.given, experience)


def last_paid(recipe: Recipe, rows: Experience, model: Any) -> Tensor:
    """Returns the rewards [B, T] after the recipe's last reward part alone, if all models are this one."""
    return recipe.rewards[-1](rows, Scene(models=Only(model))).reward


def gathered(recipe: Recipe, task: Task, starts: int = 3, calls: int = 1) -> tuple[list[Experience], Any, State]:
    """Returns what the recipe's rollout gathers from starts 0, 1, ... in each of several calls, with the policy and
    the rollout's last state.
    """
    assert recipe.rollout is not None
    scene = Scene(task, actor=small_policy(task), starts=np.arange(starts), draw=Draw(0))
    state = recipe.rollout.init(scene)
    with torch.no_grad():
        found = [recipe.rollout(scene.given(draw=Draw(0, (call,))), state) for call in range(calls)]
    return found, scene.actor, state


def wrong_visits(recipe: Recipe, task: Task) -> float:
    """Returns how many rows of starts 3, 5, 3, gathered twice in groups of eight, have not the next sample of their
    start, and how many are in a group with rows of another visit.
    """
    assert recipe.rollout is not None
    scene, wrong = Scene(task, actor=small_policy(task), starts=np.array([3, 5, 3]), draw=Draw(0)), 0
    state = recipe.rollout.init(scene)
    for visit in ((0, 0, 1), (2, 1, 3)):
        played = recipe.rollout(scene, state)
        samples = [8 * one + member for one in visit for member in range(8)]
        assert played.group is not None
        same = (played.group.unsqueeze(0) == played.group.unsqueeze(1)).sum(1)
        wrong += int((played.column("sample") != torch.tensor(samples)).sum() + (same != 8).sum())
    return float(wrong)
