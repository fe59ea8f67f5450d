"""Descriptions of offline datasets, and the expert with a share of random actions. Axes: N instances."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Choice, Task
from assay.core.spaces import Box, Context, Discrete, Spec


class Recording(Protocol):
    """A description of an offline dataset, from which its transitions can be generated or read again.

    Source: arXiv:2004.07219. Assumes a seed or a file. Degenerate: no episodes give no rows.
    """

    @property
    def reward_scale(self) -> float:
        """Returns the factor of the rewards."""

    @property
    def origin(self) -> int:
        """Returns the value of the column `source` for these rows."""

    def columns(self, task: Task) -> dict[str, Tensor]:
        """Returns the transitions in the layout of `sources.replay.transitions`; equal descriptions give equal ones."""


class NoisyExpert:
    """The task's scripted expert, replaced by a uniformly random action with probability `noise`. Degenerate: noise 0,
    or a greedy call without random numbers, is the expert itself; noise 1 otherwise takes random actions only.

    Source: arXiv:2004.07219, mixtures. Assumes a scripted expert.
    """

    def __init__(self, expert: Any, spec: Spec, noise: float) -> None:
        if not isinstance(spec.action, Box | Discrete):
            what = f"an offline dataset needs discrete or continuous actions; the task has {spec.action}"
            raise AssayError(f"{what}. Use a control task, or a file of prompts (--task FILE.jsonl)")
        self.expert, self.space, self.noise = expert, spec.action, noise
        self.num_draws = 1 + (self.space.size if isinstance(self.space, Box) else 1)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0; the first uniform number picks expert or random, the others the
        random action.
        """
        good: Tensor = self.expert(context)
        if uniform is None:
            return good, torch.zeros(len(good))
        if isinstance(self.space, Box):
            low, high = torch.tensor(self.space.low), torch.tensor(self.space.high)
            anything = low + (high - low) * uniform[:, 1:]
        else:
            anything = (uniform[:, 1] * self.space.n).long().clamp(max=self.space.n - 1)
        lucky = (uniform[:, 0] < self.noise).view(-1, *[1] * (good.dim() - 1))
        return torch.where(lucky, anything.to(good.dtype), good), torch.zeros(len(good))


class Described(Choice, Protocol):
    """A description from which a dataset can be generated again.

    Source: by definition. Assumes that equal descriptions give equal data. Degenerate: no episodes give no rows.
    """

    def columns(self, task: Task) -> dict[str, Tensor]:
        """Returns the data; equal descriptions give equal data."""



@runtime_checkable
class Layout(Protocol):
    """A description that can also lay out episodes that exist already.

    Source: by definition. Assumes whole episodes. Degenerate: no episodes give no rows.
    """

    def laid_out(self, played: Experience) -> dict[str, Tensor]:
        """Returns the columns of these episodes."""
