"""Random MDPs with exact Q*: the more noise in rewards and transitions, the more a maximum overestimates.

Each of 40 states and A actions has a normal mean reward and `branching` random successors, equally likely; an episode
ends with probability 1/10 at each decision. A random potential hides the values from immediate rewards. `noise` is the
standard deviation of rewards around their mean.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from assay.claims.testbeds.control.finite import Finite, shaped
from assay.claims.testbeds.control.regret import RegretTask, at_least, name_with_dials
from assay.core.record import Draw
from assay.ops import random
from assay.tasks.control.stepping import ArraySimulation

STATES, STOP, LIMIT = 40, 0.1, 100
POTENTIAL = 2.0


def random_finite(branching: int, noise: float, actions: int, instance: int) -> Finite:
    """Returns the arrays, a function of these numbers."""
    draw, shape = Draw(instance, (41,)), (STATES, actions)
    place = np.arange(STATES * actions).reshape(shape)
    successors = (random.uniform(draw, 0, place[..., None], np.arange(branching)) * STATES).astype(np.int64)
    reward, potential = normal(random.uniform(draw, 1, place)), normal(random.uniform(draw, 2, np.arange(STATES)))
    return shaped(Finite(successors, reward, STATES, LIMIT, STOP, noise), POTENTIAL * potential)


def normal(uniform: np.ndarray) -> np.ndarray:
    """Returns standard normal numbers by the inverse distribution function."""
    numbers: np.ndarray = torch.special.ndtri(torch.from_numpy(uniform)).numpy()
    return numbers


def random_mdp(branching: int = 2, noise: float = 0.0, actions: int = 8, instance: int = 0) -> RegretTask:
    """Returns the task; `instance` numbers independent processes."""
    at_least("random-mdp", 1, branching=branching)
    at_least("random-mdp", 2, actions=actions)
    at_least("random-mdp", 0, noise=noise, instance=instance)
    name = name_with_dials(
        "random-mdp", branching=(branching, 2), noise=(noise, 0.0), actions=(actions, 8), instance=(instance, 0)
    )
    finite = random_finite(branching, noise, actions, instance)
    make = partial(ArraySimulation, finite)
    return RegretTask(name, finite.spec, make, finite.best, finite, losses=finite.losses, scale=finite.scale)
