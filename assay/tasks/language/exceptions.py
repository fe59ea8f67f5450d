"""A rule with exceptions: six codes are observed, one of four actions is correct; reward 1 for it, one decision.

    if code 0 is 5: the action that code 1 stands for;  else if code 2 is 3: that of code 3;  else that of code 4

Codes are drawn evenly from 0 to 7 and have no order: which action a code stands for is a fixed shuffle. Code 5 never
matters. The best guess without the codes is right in one of four episodes. Codes are numbers, or one-hot (48 numbers).

Axes: N instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Discrete, Spec
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

FEATURES, CODES, ACTIONS = 6, 8, 4
MEANING = np.array([2, 0, 3, 1, 1, 3, 0, 2])
"""The action that a code stands for; no threshold on the code separates two actions."""


def right_action(codes: np.ndarray) -> np.ndarray:
    """Returns the rewarded action, [N], for codes [6, N]."""
    deciding = np.where(codes[0] == 5, codes[1], np.where(codes[2] == 3, codes[3], codes[4]))
    action: np.ndarray = MEANING[deciding]
    return action


@dataclass(frozen=True)
class Exceptions:
    """Rows of a state: the six codes. With `one_hot`, each is observed as eight zeros and ones."""

    one_hot: bool = False
    num_start_draws: ClassVar[int] = FEATURES
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = 2  # never reached: the first decision ends the episode

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws codes 0 to 7 uniformly."""
        return (CODES * uniform).astype(np.int64)

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns rewards the correct action and ends the episode."""
        is_right = action == right_action(state)
        return state.copy(), is_right.astype(np.float32), np.ones(state.shape[1], bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns the codes as numbers, [N, 6], or one-hot, [N, 48]."""
        codes = torch.from_numpy(state.T.copy())
        seen = torch.nn.functional.one_hot(codes, CODES).flatten(1) if self.one_hot else codes
        return {"observation": seen.float()}

    def best(self, context: Context) -> Tensor:
        """Returns the correct action."""
        seen = context["observation"]
        codes = seen.view(len(seen), FEATURES, CODES).argmax(-1) if self.one_hot else seen.long()
        return torch.from_numpy(right_action(codes.T.numpy()))


def exceptions(one_hot: bool = False) -> SteppedTask:
    """Returns the codes as numbers, or one-hot."""
    dynamics = Exceptions(one_hot)
    size, largest = (FEATURES * CODES, 1.0) if one_hot else (FEATURES, CODES - 1.0)
    spec = Spec(Box((0.0,) * size, (largest,) * size), Discrete(ACTIONS), 1)
    name = "exceptions-one-hot" if one_hot else "exceptions"
    return SteppedTask(name, spec, partial(ArraySimulation, dynamics), dynamics.best, dynamics)


LEVELS = {"exceptions": exceptions, "exceptions-one-hot": partial(exceptions, one_hot=True)}
