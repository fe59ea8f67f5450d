"""Replay buffer of whole sequences. Axes: B sequences, T columns."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from assay.method import Draw, Experience, Scene, Source, State, Task, Vocabulary, complete, decided_again, model_name
from assay.method import random
from assay.methods.archer import turns
from assay.parts import PLAIN, Replay, check_warmup, from_columns

PADDED_TO = 16
"""Widths are multiples of this, so that the buffer is seldom widened."""


@dataclass(frozen=True)
class ReplaySequences(Source):
    """Stores the last `capacity` rows as gathered; each step yields `updates` batches of `batch` rows.

    For losses that need whole rows: conversations with all their turns, or fragments. A batch is cut to its longest
    row. Columns added by parts are not stored, since they become stale. Yields nothing until `warmup` rows are
    stored.
    """

    capacity: int = 4096
    batch: int = 64
    updates: int = 8
    warmup: int = 1

    def __post_init__(self) -> None:
        check_warmup(self.warmup, self.capacity)

    def init(self, scene: Scene) -> State:
        """Returns an empty buffer."""
        return {"columns": {}, "next": 0, "size": 0}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Stores the fresh rows that have a decision, then yields batches once `warmup` rows are stored."""
        fresh, draw = scene.fresh, scene.draw
        if fresh is not None:
            rows = columns_of_rows(fresh.rows(fresh.mask.any(1)))
            width = max([column.shape[1] for column in (*rows.values(), *state["columns"].values())])
            state["columns"] = {name: widened(ring, width) for name, ring in state["columns"].items()}
            Replay(self.capacity, warmup=0).store({name: widened(row, width) for name, row in rows.items()}, state)
        if state["size"] < max(self.warmup, 1):
            return
        for update in range(self.updates):
            index = torch.from_numpy(random.integers(draw.at(4, update), state["size"], self.batch))
            columns = {name: ring.index_select(0, index) for name, ring in state["columns"].items()}
            yield replace(from_columns(columns), turn=columns.get("turn")).trim()


@runtime_checkable
class Talks(Protocol):
    """A task of conversations, with a limit for each utterance."""

    @property
    def max_tokens(self) -> int:
        """The most tokens of an utterance."""


@dataclass(frozen=True)
class NewTurns(Source):
    """Replays rows, and at their states the current policy decides again: the batches of `replay`, each with new turns.

    Of a conversation one turn, drawn uniformly from the row's, is written again after what was said before it; without
    the column `turn` every decision is taken again, in its own context. Nothing is played on, so rewards are 0: this
    trains values and policies with a critic, at no cost in the environment (ArCHer, arXiv:2402.19446). The metric
    `new_decisions` counts what was sampled.
    """

    replay: ReplaySequences = ReplaySequences()
    actor: str = model_name("actor")
    not_a_part: ClassVar[str] = "the laws of sources have no policy: the method's claims run it"

    def init(self, scene: Scene) -> State:
        """Returns an empty buffer."""
        return self.replay.init(scene)

    @torch.no_grad()
    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the batches of the buffer with new turns."""
        for update, batch in enumerate(self.replay(scene, state)):
            actor, draw = scene.models.model(self.actor), scene.draw.at(5, update)
            is_text = isinstance(scene.task.spec.action, Vocabulary)
            fresh = utterances_again(scene.task, actor, batch, draw) if is_text else decided_again(actor, batch, draw)
            scene.log("new_decisions", float(fresh.mask.sum()))
            yield fresh


def utterances_again(task: Task, actor: Any, batch: Experience, draw: Draw) -> Experience:
    """Returns one new utterance for each row, after the tokens before one of its turns."""
    begins = turns.turn_begins(batch)
    uniform = torch.from_numpy(random.uniform(draw, np.arange(len(batch))))
    chosen = (uniform * begins.sum(1)).long()
    first = (begins & (begins.long().cumsum(1) - 1 == chosen.unsqueeze(1))).long().argmax(1)
    prompts = [batch.context["tokens"][row, :column].tolist() for row, column in enumerate(first.tolist())]
    most = task.max_tokens if batch.turn is not None and isinstance(task, Talks) else 1
    assert isinstance(task.spec.action, Vocabulary)
    rows, one = np.arange(len(batch)), np.zeros(len(batch), dtype=np.int64)
    fresh = complete(
        actor, prompts, rows, one, draw.at(1), max_tokens=most, vocabulary=task.spec.action, greedy=False
    )
    return replace(fresh, turn=torch.zeros_like(fresh.action), group=None, extra={})


def columns_of_rows(experience: Experience) -> dict[str, Tensor]:
    """Returns the record's own columns by name, [B, T, ...], T a multiple of PADDED_TO."""
    columns = {name: getattr(experience, name) for name in PLAIN}
    optional = {"cost": experience.cost, "turn": experience.turn}
    columns |= {name: value for name, value in optional.items() if value is not None}
    columns |= {f"context.{name}": value for name, value in experience.context.items()}
    width = -(-experience.num_columns // PADDED_TO) * PADDED_TO
    return {name: widened(value, width) for name, value in columns.items()}


def widened(column: Tensor, width: int) -> Tensor:
    """Pads the column with zeros at the end of the axis T."""
    missing = width - column.shape[1]
    if missing <= 0:
        return column
    return torch.cat([column, column.new_zeros(column.shape[0], missing, *column.shape[2:])], 1)
