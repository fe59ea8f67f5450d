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
from assay.core.spaces import Box, Context, Spec
from assay.playing.deciding import deciding
from assay.playing.episodes import Recorder, Uniforms


def nothing_done(context: Context, spec: Spec, starts: np.ndarray) -> Experience:
    """Returns a record of one column, the first context, without a decision."""
    num, start = len(starts), torch.from_numpy(np.asarray(starts, dtype=np.int64))
    size = (spec.action.size,) if isinstance(spec.action, Box) else ()
    nothing = torch.zeros(num, 1, dtype=torch.bool)
    return Experience(
        context={name: value.unsqueeze(1) for name, value in context.items()},
        action=torch.zeros(num, 1, *size) if size else torch.zeros(num, 1, dtype=torch.long),
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


@torch.no_grad()
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
    given = begun.extra.get("answer", begun.mask)
    starts, length = begun.column("start").numpy(), given.sum(1)
    uniforms = Uniforms(draw, (starts, samples), actor.num_draws)
    context, recorder, decide = simulation.reset(seeds), Recorder(), deciding(actor)
    alive, answer = torch.ones(len(begun), dtype=torch.bool), []
    for time in range(horizon):
        action, logp, *path = decide(context, uniforms.at(time))
        if time < given.shape[1]:
            repeats = given[:, time].view(-1, *[1] * (action.dim() - 1))
            action = torch.where(repeats, begun.action[:, time].to(action.dtype), action)
        after, reward, terminal, truncated, cost = simulation.step(action)
        alive = alive & (time < length + limit)
        mine = alive & (time >= length)
        live = mine.to(reward.dtype)
        row = (action, mine, logp * live, reward * live, terminal & mine, truncated & mine, *path)
        recorder.add(context, row, None if cost is None else cost * live.unsqueeze(1))
        answer.append(alive)
        alive = alive & ~(terminal | truncated)
        context = after
        if not alive.any():
            break
    record = recorder.finish(context)
    start = torch.from_numpy(starts)
    told = torch.stack([*answer, torch.zeros_like(alive)], 1)
    columns = {"start": start, "sample": torch.from_numpy(samples), "answer": told, "elapsed": told.sum(1)}
    return replace(record, group=start).add(columns)
