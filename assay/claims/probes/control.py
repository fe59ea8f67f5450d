"""Random experience of control tasks. Axes: B sequences, T columns."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from assay.claims.probes.formulas import BOX_SPEC, CHOICE_SPEC, fragments, transitions
from assay.core.record import Experience, Origin
from assay.core.spaces import Box, Spec

PLACES = Box((-1.0, -2.0), (1.0, 4.0))
GOAL_CHOICE, GOAL_BOX = replace(CHOICE_SPEC, goal=PLACES), replace(BOX_SPEC, goal=PLACES)
"""Tasks of `goal_transitions`: 3 observations, 2 numbers of a goal with uneven bounds."""


def goal_transitions(spec: Spec = GOAL_CHOICE, num: int = 64, dtype: torch.dtype = torch.float64) -> Experience:
    """Returns `transitions` with what each state achieves and one random goal for each row."""
    draw, data = torch.Generator().manual_seed(1), transitions(spec, num=num, dtype=dtype)
    achieved, goal = torch.randn(2, num, 2, 2, generator=draw, dtype=dtype)
    context = {**data.context, "achieved": achieved, "goal": goal[:, :1].expand(-1, 2, -1)}
    return of_origins(replace(data, context=context), Origin.DATASET)


def far_transitions() -> Experience:
    """Returns transitions with observations far from 0: some weights exceed 100."""
    data = transitions(num=64)
    return data.with_columns(context={"observation": 6.0 * data.context["observation"]})


def of_origins(data: Experience, *origins: Origin) -> Experience:
    """Returns the experience with rows of these origins, round and round."""
    return replace(data, source=torch.tensor([int(one) for one in origins]).repeat(len(data))[: len(data)])


def box_fragments(lower: float = 0.0) -> Experience:
    """Returns `fragments` of the continuous task BOX_SPEC; some actions exceed the bounds."""
    data, draw = fragments(lower=lower), torch.Generator().manual_seed(2)
    observation = torch.randn(*data.mask.shape, 3, generator=draw, dtype=torch.float64)
    action = torch.randn(*data.mask.shape, 2, generator=draw, dtype=torch.float64)
    return replace(data, context={"observation": observation}, action=action)


def recorded_near(data: Experience, logp: Tensor, seed: int) -> Experience:
    """Returns the experience with recorded log-densities near `logp`, those of an actor: some ratios are clipped."""
    moved = torch.randn(data.mask.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return replace(data, logp=logp.detach() + 0.3 * moved)
