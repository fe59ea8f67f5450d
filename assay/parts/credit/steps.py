"""Steps of answers, as segments of a text. Axes: B rows, T columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from assay.core.record import Experience, State
from assay.core.slots import Prepare, Scene, TextTask
from assay.parts.credit.segments import Spans
from assay.rollouts.text import Tokenizer


@runtime_checkable
class WrittenTask(TextTask, Protocol):
    """A task whose answers are tokens of a text.

    Source: by definition. Assumes a tokenizer. Degenerate: an empty text has no token.
    """

    tokenizer: Tokenizer


@dataclass(frozen=True)
class TextSteps(Prepare):
    """Segments that are steps of a text: one ends with the separator, and blank text after it belongs to it too.

    Writes `segment`. A token that holds the end of a step and the beginning of the next belongs to the one that ends.
    Where the task cannot write the separator, or has no text, a step is a span of `length` decisions. Degenerate: an
    answer without a separator is one step. Source: arXiv:2305.20050. Assumes that a separator ends a step.
    """

    separator: str = "\n"
    length: int = 5

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Numbers the steps of each row from 1."""
        task, mask = scene.task, experience.mask
        if not isinstance(task, WrittenTask) or not can_write(task, self.separator):
            return Spans(self.length)(experience, scene, state)
        said = {one: task.tokenizer.decode([one]) for one in experience.action[mask].unique().tolist()}
        begins = torch.zeros_like(mask)
        for row in range(len(mask)):
            pieces = (said[one] for one in experience.action[row][mask[row]].tolist())
            begins[row, mask[row]] = torch.tensor([*step_begins(pieces, self.separator)], dtype=torch.bool).to(
                mask.device
            )
        return replace(experience, segment=begins.long().cumsum(1))


def can_write(task: WrittenTask, said: str) -> bool:
    """Returns whether the task's tokens can write a text."""
    try:
        task.tokenizer.encode(said)
    except ValueError:
        return False
    return True


def step_begins(pieces: Iterable[str], separator: str) -> Iterator[bool]:
    """Yields whether each piece of a text begins a step: the first does, and the first that is not blank after a step
    with its separator.
    """
    step = ""
    for place, piece in enumerate(pieces):
        begins = place == 0 or (separator in step.lstrip() and bool(piece.strip()))
        step = piece if begins else step + piece
        yield begins


def steps_of(experience: Experience) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Yields each row that has a decision, with the columns of each of its steps in order; without the column `segment`
    a row is one step.
    """
    mask = experience.mask.cpu().numpy()
    segment = mask if experience.segment is None else experience.segment.cpu().numpy()
    for row in np.flatnonzero(mask.any(1)).tolist():
        columns = np.flatnonzero(mask[row])
        ends = (np.flatnonzero(np.diff(segment[row, columns])) + 1).tolist()
        yield row, [columns[first:end] for first, end in pairwise((0, *ends, len(columns)))]
