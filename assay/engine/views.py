"""What a term may use besides its batch: the models, the actor's scores of the batch, random numbers.

Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need, Scored
from assay.core.slots import Annotation, View
from assay.ops import random


def own_decisions(view: View, batch: Experience) -> tuple[Tensor, Tensor]:
    """Computes `View.sampled`: the actor's reparameterised decisions in the columns of `batch.now`."""
    actor, now = view.model("actor"), batch.now
    action, logp = actor.sample(now.context, view.uniform((*now.mask.shape, actor.num_draws), tag=1))
    return action, logp


@dataclass
class StageView:
    """The models, and the actor's scores of the batch, computed once: everything that a term may use."""

    models: Mapping[str, nn.Module]
    batch: Experience
    needs: frozenset[Need | Annotation]
    draw: Draw

    @cached_property
    def scored(self) -> Scored:
        """The actor's scores of the batch."""
        scored: Scored = self.model("actor").score(self.batch, self.needs)
        return scored

    @cached_property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """The actor's own decisions in all columns but the last."""
        return own_decisions(self, self.batch)

    def model(self, name: str) -> Any:
        """Returns a model by name."""
        return model_named(self.models, name)

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Returns uniform numbers of this update and tag; a row has the same numbers in every micro-batch split."""
        # By the row's index in the whole batch, not in the micro-batch: micro-batches must not change an update.
        rows, count = self.batch.column("row"), int(np.prod(shape[1:]))
        if not rows.is_cpu:
            return uniform_on_device(self.draw.at(tag), rows, count).reshape(tuple(shape))
        numbers = random.uniform(self.draw.at(tag), rows.numpy().reshape(-1, 1), np.arange(count)[None])
        return random.as_open_float32(numbers).reshape(tuple(shape)).to(self.batch.mask.device)


def uniform_on_device(draw: Draw, rows: Tensor, count: int) -> Tensor:
    """Returns uniform numbers [B, count] of rows on their device, the same as on the CPU."""
    from assay.ops import random_torch  # here: a run on the CPU does not need it

    word = random_torch.folded(random_torch.words((draw.seed,), draw.path, rows.device), rows.view(-1, 1))
    return random_torch.as_open_float32(random_torch.folded(word, torch.arange(count, device=rows.device)))


def model_named(models: Mapping[str, nn.Module], name: str) -> nn.Module:
    """Returns a model by name; raises AssayError with the names of the existing models if it is missing."""
    if name not in models:
        raise AssayError(f"a part asks for the model '{name}', but this recipe has only {', '.join(models)}")
    return models[name]
