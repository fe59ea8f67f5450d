"""How well a harm critic identifies the states of `steered-hazards` that can be kept safe."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.core.recipe import Recipe
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.methods.fisor.reach import overlap
from assay.parts.sources.logged import Log
from assay.tasks.control.steered import avoidable, steered_hazards

NEAR = 0.2
"""Distance from a disc's edge within which states are tested; farther away every state is safe."""


def seen_near_discs() -> tuple[dict[str, Tensor], Tensor]:
    """Returns contexts of recorded decisions near discs, of episodes unused by any recipe, and whether each is safe."""
    task = steered_hazards()
    logs = [Log(100, noise=0.4, first=5_000, reckless=which) for which in (False, True)]
    seen = torch.cat([log.columns(task)["context.observation"][:, 0] for log in logs])
    seen = seen[seen[:, 4:].amin(1) < NEAR]
    state = torch.cat((seen[:, :2], 0.1 * seen[:, 2:4]), 1).double().numpy().T
    return {"observation": seen}, torch.from_numpy(avoidable(state))


def feasible_overlap(recipe: Recipe, seed: int) -> float:
    """Returns the intersection over union of {V_h <= 0} and the states from which test manoeuvres stay clear, after
    training the recipe's stages on its own data.
    """
    task, source = steered_hazards(), recipe.source
    engine, state = Engine(recipe, task.spec, seed, Placement()), source.init(Scene(task))
    for step in range(recipe.steps):
        for batch in source(Scene(task, draw=Draw(seed, (step,))), state):
            batch = engine.annotate(batch, recipe.needs)
            for stage in recipe.stages:
                engine.update(stage, batch)
            engine.follow(recipe.copies)
    context, safe = seen_near_discs()
    critic: Any = engine.models["harm"]
    with torch.no_grad():
        return overlap(critic(context) <= 0, safe)
