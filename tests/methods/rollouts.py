"""What rollouts are tried on: tasks of each world, starts, and a way to call them."""

from __future__ import annotations

import numpy as np

from assay.claims.laws.rollout import built, small_actor
from assay.core.record import Draw, Experience
from assay.core.slots import Scene
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.language.countdown import countdown
from assay.tasks.tabular.table import chain
from tests.scenes import gathering

DRAW = Draw(3, (0,))
TASKS = {"tokens": countdown(2), "choices": cartpole(), "torques": pendulum(), "numbered": chain(4, slip=0.2)}
STARTS = np.array([5, 1, 8])


def actor_of(task):
    return built(small_actor(task.spec), task.spec)


def gathered(part, task, starts=STARTS, state=None):
    state = part.init(Scene(task)) if state is None else state
    return part(gathering(task, actor_of(task), starts if part.num_starts else np.empty(0, np.int64), DRAW), state)


def decisions(experience: Experience, row: int) -> list:
    return experience.action[row][experience.mask[row]].tolist()
