"""Laws of curricula: what is proposed, and that resuming reproduces it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from assay.core.record import Draw, Experience
from assay.core.slots import Scene
from assay.proof.laws.cases import RAGGED, TOKENS, Case, build
from assay.proof.laws.laws import Contract, Finding, law, other_streams
from assay.proof.laws.state import saved_and_loaded, untouched
from assay.tasks.language.mixture import easy_and_hard

NUM = 7
PLACE = Scene(easy_and_hard())
"""A task with two sources, so that curricula can choose between them."""


def outcome_cases(part: Any) -> list[Case]:
    """Returns experience for the curriculum to learn from."""
    return [Case(f"tokens: {RAGGED.name}", build(TOKENS, RAGGED))]


def seen(batch: Experience, starts: np.ndarray) -> Experience:
    """Returns the experience as if it had come from these starts."""
    start = torch.from_numpy(np.resize(starts, len(batch)).astype(np.int64))
    return batch.add({"start": start})


def steps(part: Any, batch: Experience, state: Any, first: int, num: int) -> list[np.ndarray]:
    """Returns the proposals of `num` steps from step `first` on, each observed."""
    proposed = []
    for step in range(first, first + num):
        starts = part(PLACE.given(draw=Draw(3, (step,)), num_starts=NUM), state)
        proposed.append(np.array(starts))
        part.observe(seen(batch, starts), PLACE, state)
    return proposed


@law("it proposes as many starts as it was asked for, each the ordinal of a start")
def ordinals(part: Any, case: Case) -> Iterator[str]:
    """Whole numbers from 0 on; none where none is asked for."""
    state = part.init(PLACE)
    for starts in steps(part, case.batch, state, 0, 3):
        if starts.shape != (NUM,) or starts.dtype.kind not in "iu":
            yield f"asked for {NUM}, it gave shape {starts.shape} of {starts.dtype}"
        elif bool((starts < 0).any()):
            yield f"it proposed {starts.tolist()}; ordinals start at 0"
    if len(part(PLACE.given(draw=Draw(3)), part.init(PLACE))):
        yield "asked for none, it proposed some"


@law("equal state and draw give equal starts")
def repeats(part: Any, case: Case) -> Iterator[str]:
    """Two runs, with the global random streams at different places."""
    runs = []
    for seed in (1, 2):
        with other_streams(seed):
            runs.append(steps(part, case.batch, part.init(PLACE), 0, 3))
    for step, (first, second) in enumerate(zip(*runs, strict=True)):
        if not np.array_equal(first, second):
            yield f"at step {step} it proposed {first.tolist()} and {second.tolist()}"


@law("resuming reproduces the order")
def resumes(part: Any, case: Case) -> Iterator[str]:
    """Saved after two steps, loaded into a new start; the next two steps are those of the uninterrupted run."""
    state = part.init(PLACE)
    steps(part, case.batch, state, 0, 2)
    loaded = saved_and_loaded(untouched(state), part.init(PLACE))
    through, resumed = steps(part, case.batch, state, 2, 2), steps(part, case.batch, loaded, 2, 2)
    for step, (first, second) in enumerate(zip(through, resumed, strict=True), start=2):
        if not np.array_equal(first, second):
            yield f"at step {step} it proposed {second.tolist()} after resuming, {first.tolist()} without"


@law("observing leaves the experience as it is")
def unmodified(part: Any, case: Case) -> Iterator[str]:
    """It learns from it and no more."""
    batch = case.batch.map(torch.clone)
    part.observe(batch, PLACE, part.init(PLACE))
    changed = [name for name, value in batch.extra.items() if not torch.equal(value, case.batch.extra[name])]
    if changed or not torch.equal(batch.reward, case.batch.reward) or not torch.equal(batch.mask, case.batch.mask):
        yield f"it changed {changed or 'reward or mask'}"


CURRICULUM = Contract("curriculum", (ordinals, repeats, resumes, unmodified), outcome_cases)


def check_curriculum(part: Any) -> list[Finding]:
    """Checks the laws of a curriculum."""
    return CURRICULUM.check(part)
