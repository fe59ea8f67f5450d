"""Resumes episodes in the middle: given decisions first, then the actor's. Axes: B rows, T columns.

Time is the column: decision t of a stepping task is in column t.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.core.slots import Simulation
from assay.core.spaces import Box, Context, MultiDiscrete, Spec
from assay.rollouts.episodes import played


def nothing_done(context: Context, spec: Spec, starts: np.ndarray) -> Experience:
    """Returns a record of one column, the first context, without a decision."""
    num, start = len(starts), torch.from_numpy(np.asarray(starts, dtype=np.int64))
    size = (spec.action.size,) if isinstance(spec.action, Box) else ()
    several = (len(spec.action.sizes),) if isinstance(spec.action, MultiDiscrete) else ()
    nothing = torch.zeros(num, 1, dtype=torch.bool)
    return Experience(
        context={name: value.unsqueeze(1) for name, value in context.items()},
        action=torch.zeros(num, 1, *size) if size else torch.zeros(num, 1, *several, dtype=torch.long),
        mask=nothing,
        logp=torch.zeros(num, 1),
        reward=torch.zeros(num, 1),
        terminal=nothing,
        truncated=nothing,
        group=start,
        extra={"start": start, "sample": torch.zeros_like(start)},
    )


def first_decisions(experience: Experience, num_B: Tensor) -> Experience:
    """Returns the first `num_B` decisions of each row with their contexts; the column `answer` is true on them."""
    later = experience.mask.long().cumsum(1) > num_B.unsqueeze(1)
    context = dict(experience.context)
    if "valid" in context:
        context["valid"] = context["valid"] & ~later
    mask = experience.mask & ~later
    return replace(experience, context=context, mask=mask, source=None).add({"answer": mask})


def play_on(
    actor: Any,
    simulation: Simulation,
    seeds: np.ndarray,
    begun: Experience,
    samples: np.ndarray,
    draw: Draw,
    horizon: int,
    limit: int,
) -> Experience:
    """Replays the decisions of `begun`, then plays at most `limit` of the actor's; see `ResumableTask.resume`."""
    rows, given = (begun.column("start").numpy(), samples), begun.extra.get("answer", begun.mask)
    record, told = played(actor, simulation, seeds, rows, draw, horizon, False, given, begun.action, limit)
    return record.add({"answer": told, "elapsed": told.sum(1)})
