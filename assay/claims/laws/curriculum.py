"""Laws of curricula: what is proposed, and that resuming reproduces it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from assay.claims.laws.cases import RAGGED, TOKENS, Case, build
from assay.claims.laws.handed import Handed, reads_models
from assay.claims.laws.invariance import keeps_inputs
from assay.claims.laws.laws import Contract, law
from assay.claims.laws.state import continuing
from assay.core.record import Draw, Experience
from assay.core.slots import Scene
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


def step(part: Any, case: Case, state: Any, time: int) -> np.ndarray:
    """Returns the proposal of a step, observed."""
    here = PLACE.given(models=Handed(part.models, PLACE.task.spec))
    starts = np.array(part(here.given(draw=Draw(3, (time,)), num_starts=NUM), state))
    part.observe(seen(case.batch, starts), here, state)
    return starts


@law("it proposes as many starts as it was asked for, each the ordinal of a start")
def ordinals(part: Any, case: Case) -> Iterator[str]:
    """Whole numbers from 0 on; none where none is asked for."""
    state = part.init(PLACE)
    for starts in (step(part, case, state, time) for time in range(3)):
        if starts.shape != (NUM,) or starts.dtype.kind not in "iu":
            yield f"asked for {NUM}, it gave shape {starts.shape} of {starts.dtype}"
        elif bool((starts < 0).any()):
            yield f"it proposed {starts.tolist()}; ordinals start at 0"
    if len(part(PLACE.given(models=Handed(part.models, PLACE.task.spec), draw=Draw(3)), part.init(PLACE))):
        yield "asked for none, it proposed some"


def observe(part: Any, case: Case, batch: Experience) -> Handed:
    """Shows the part the experience; returns the models that were handed."""
    models = Handed(part.models, PLACE.task.spec)
    part.observe(batch, PLACE.given(models=models), part.init(PLACE))
    return models


def used(part: Any, case: Case) -> Handed:
    """Proposes and observes; returns the models that were handed."""
    models = Handed(part.models, PLACE.task.spec)
    here, state = PLACE.given(models=models, draw=Draw(3), num_starts=NUM), part.init(PLACE)
    part.observe(seen(case.batch, np.array(part(here, state))), here, state)
    return models


KEPT = keeps_inputs(observe, "observing leaves the experience as it is")
LAWS = (ordinals, *continuing(lambda part, case: part.init(PLACE), step), KEPT, reads_models(used))
CURRICULUM = Contract("curriculum", LAWS, outcome_cases)
check_curriculum = CURRICULUM.check
"""Checks the laws of a curriculum."""
