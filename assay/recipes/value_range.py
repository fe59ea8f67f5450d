"""The range of a task's values, for critics that classify over bins. Axes: M bins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.slots import Scene, Task
from assay.core.spaces import Box, Context, Discrete, MultiDiscrete, Spec, Vocabulary
from assay.models.heads.bins import Bins
from assay.models.heads.spaces import need_bounds
from assay.ops import returns
from assay.parts.rollouts.episodes import Fragments

SPARE, ANSWERS = 1.25, 1.5
"""Range of the bins in units of the largest |value| that is expected, and of the largest |score| of an answer."""

UNKNOWN = "Set the largest value that a return can have: --set bins.low=-X --set bins.high=X"


class Uniform:
    """Uniform actions within the task's bounds, or among the allowed options of each choice."""

    def __init__(self, spec: Spec) -> None:
        self.space = spec.action
        self.sizes = self.space.sizes if isinstance(self.space, MultiDiscrete) else ()
        self.num_draws = self.space.size if isinstance(self.space, Box) else max(1, len(self.sizes))

    def act(self, context: Context, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0."""
        if isinstance(self.space, Box):
            low, high = torch.tensor(self.space.low), torch.tensor(self.space.high)
            return low + (high - low) * uniform, uniform.new_zeros(len(uniform))
        sizes = [self.space.n] if isinstance(self.space, Discrete) else list(self.sizes)
        allowed = context.get("action_mask", torch.ones(len(uniform), sum(sizes), dtype=torch.bool))
        chosen = [allowed_choice(one, uniform[:, place]) for place, one in enumerate(allowed.split(sizes, -1))]
        return torch.stack(chosen, -1) if self.sizes else chosen[0], uniform.new_zeros(len(uniform))


def allowed_choice(allowed_NM: Tensor, uniform_N: Tensor) -> Tensor:
    """Returns the option of each row that the uniform number falls on, among the allowed ones."""
    place = (uniform_N * allowed_NM.sum(-1)).long() + 1
    return (allowed_NM.cumsum(-1) < place.unsqueeze(-1)).sum(-1)


def played_uniformly(task: Task, num_envs: int = 8, steps: int = 256) -> Experience:
    """Returns what uniform actions experience on the task's training starts; raises AssayError where actions have no
    bounds or are tokens, or the task cannot be stepped.
    """
    if isinstance(task.spec.action, Box):
        need_bounds(task.spec, "the range of values")
    elif not isinstance(task.spec.action, Discrete | MultiDiscrete):
        raise AssayError(f"the rewards of task '{task.name}' cannot be tried by uniform actions. {UNKNOWN}")
    rollout, scene = Fragments(num_envs, steps), Scene(task, actor=Uniform(task.spec), draw=Draw(0))
    return rollout(scene, rollout.init(scene))


def reach_of(task: Task, discount: float) -> float:
    """Returns the largest |value| that is expected of a task, from 2,048 uniform decisions or the scores of answers.

        1.25 * max(largest |discounted return| seen, H * q),  H = (1 - discount^horizon) / (1 - discount)

    q is the 95 % quantile of |reward|: what most decisions pay counts for the whole horizon, a rare bonus once. Answers
    in tokens: 1.5 times their largest |score|, 1 where the task states no range. A task that pays nothing raises
    AssayError. Rewards that grow with skill are not seen: the guard `inside bins` tells.
    """
    if isinstance(task.spec.action, Vocabulary):
        return ANSWERS * max(map(abs, task.spec.scores or (0.0, 1.0)))
    seen = played_uniformly(task)
    found = returns.discounted_returns(seen.reward, seen.mask, seen.terminal, seen.truncated, discount)
    length = task.spec.horizon if discount == 1.0 else (1.0 - discount**task.spec.horizon) / (1.0 - discount)
    usual = float(seen.reward[seen.mask].abs().quantile(0.95))
    if not (reach := SPARE * max(float(found.abs().max()), length * usual)):
        raise AssayError(f"2,048 uniform decisions in task '{task.name}' were paid nothing. {UNKNOWN}")
    return reach


@dataclass(frozen=True)
class BinsOfTask(Bins):
    """Bins between -reach and reach, the task's (`reach_of`) unless `low` and `high` are set.

    The range is symmetric as the authors', so that logits of 0 decode to 0, where a regression starts too.
    """

    low: float = 0.0
    high: float = 0.0
    num: int = 101
    discount: float = 0.99
    not_a_part: ClassVar[str] = "a setting of the head, read from the task"

    def with_task(self, task: Task) -> BinsOfTask:
        """Returns the bins with their range; raises AssayError if the task cannot say it."""
        if self.low < self.high:
            return self
        reach = reach_of(task, self.discount)
        return replace(self, low=-reach, high=reach)
