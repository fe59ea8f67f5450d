"""The record of experience, and the small values that parts exchange.

Axes: B sequences, T decisions, A action dimensions, K costs.

A column with `mask` false is not a decision of this actor: a prompt token, padding, a tool's output, the column with
an episode's final observation. The context after decision t is column t + 1, in every world: a replay transition is a
sequence of two columns, the decision and its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.spaces import Context

Sums = dict[str, list[tuple[Tensor, Tensor]]]
"""(sum, count) of each metric, one entry per loss; summed at the end of the step."""

State = dict[str, Any]
"""The state of a part: a tree of dicts, lists, tensors, numbers and text. It is saved with the run."""


class Need(Enum):
    """Inputs that a part declares besides the record; the engine computes only those that some part declares."""

    LOGP = "log-probability of each recorded decision under the current policy"
    ENTROPY = "entropy of each decision's distribution"
    LOGITS = "the whole distribution of each decision"
    CANDIDATES = "log-probabilities of the actions in the column `candidates`, [B, T, K]"
    UNIFORM = "mean log-probability over all possible actions, without gradient"
    HIDDEN = "last hidden state of each decision"
    VALUE = "column `value`: the state value before each decision, from the critic `value`"
    REFERENCE = "column `logp_ref`: log-probability under the frozen model `reference`"


class Origin(IntEnum):
    """Origin of a sequence: the values of the column `source`."""

    POLICY = 0
    OLDER_SELF = 1
    TEACHER = 2
    HUMAN = 3
    DATASET = 4
    HINTED = 5


# ---------------------------------------------------------------------------------------------------- outcomes
@dataclass(frozen=True)
class Score:
    """The score a verifier gave."""

    value: float


@dataclass(frozen=True)
class PolicyFault:
    """A failure of the policy (no answer, too long, its code timed out); trains with reward `value`."""

    kind: str
    value: float = 0.0


@dataclass(frozen=True)
class InfraFault:
    """A failure of the infrastructure, never a number: the sequence is excluded from training and counted."""

    kind: str


Outcome = Score | PolicyFault | InfraFault


# ---------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True)
class Experience:
    """B sequences of up to T decisions, with the same columns for language and control.

    `logp` is under the acting policy, as recorded when acting. A scalar outcome is on the last decision of `reward`.
    Terminal steps do not bootstrap, truncated ones do; if both are set, the task itself ended the episode (terminal)
    by cutting it (truncated). Columns that are None are absent: without `group`, each row is its own group. In a game
    a row holds one player's decisions: `player` [B] is its number, and the rows of a game share `episode`. `extra`
    holds columns that parts add under their own names, each [B] or [B, T, ...].
    """

    context: Context
    action: Tensor
    mask: Tensor
    logp: Tensor
    reward: Tensor
    terminal: Tensor
    truncated: Tensor
    cost: Tensor | None = None
    group: Tensor | None = None
    episode: Tensor | None = None
    turn: Tensor | None = None
    segment: Tensor | None = None
    player: Tensor | None = None
    parent: Tensor | None = None
    branch: Tensor | None = None
    source: Tensor | None = None
    version: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.mask.shape[0]

    @property
    def num_columns(self) -> int:
        """T, padding included."""
        return self.mask.shape[1]

    @cached_property
    def num_decisions(self) -> Tensor:
        """The number of decisions (cached)."""
        return self.mask.sum()

    @cached_property
    def weight(self) -> Tensor:
        """The mask as numbers: 1 for a decision, 0 elsewhere (cached)."""
        return self.mask.to(self.reward.dtype)

    @cached_property
    def now(self) -> Experience:
        """Columns 0..T-2, the `s` of each transition (cached); `after` holds the matching `s'`."""
        return self.columns(0, self.num_columns - 1)

    @cached_property
    def after(self) -> Experience:
        """Columns 1..T-1, the `s'` of each transition in `now` (cached)."""
        return self.columns(1, self.num_columns)

    def column(self, name: str) -> Tensor:
        """Returns a column of `extra`; the error for a missing one lists the columns there are."""
        if name not in self.extra:
            there = ", ".join(sorted(self.extra)) or "none"
            raise AssayError(
                f"this experience has no column '{name}' (columns so far: {there}). Put the part that writes it earlier"
            )
        return self.extra[name]

    def add(self, columns: Mapping[str, Tensor]) -> Experience:
        """Returns the record with these extra columns."""
        return self.with_columns(extra={**self.extra, **columns})

    def map(self, change: Callable[[Tensor], Tensor]) -> Experience:
        """Returns the record with `change` applied to every tensor."""
        changed: dict[str, Any] = {}
        for name in COLUMNS:
            value = self.__dict__[name]
            if isinstance(value, Tensor):
                changed[name] = change(value)
            elif value:
                changed[name] = {key: change(column) for key, column in value.items()}
        return self.with_columns(**changed)

    def with_columns(self, **columns: Any) -> Experience:
        """Returns the record with these fields replaced: a fast `dataclasses.replace` for the hot path."""
        new = object.__new__(Experience)
        new.__dict__.update({name: self.__dict__[name] for name in COLUMNS}, **columns)
        return new

    def rows(self, index: Tensor | slice) -> Experience:
        """Returns the sequences at `index`."""
        if isinstance(index, Tensor) and index.dtype == torch.int64:
            place = index.to(self.mask.device)
            return self.map(lambda column: column.index_select(0, place))
        return self.map(lambda column: column[index])

    def own(self) -> Experience:
        """Returns the sequences sampled by the policy itself: all of them if there is no column `source`."""
        return self if self.source is None else self.rows(self.source == int(Origin.POLICY))

    def to(self, device: torch.device | str) -> Experience:
        """Returns the record on another device; it keeps a reference to the CPU record it came from."""
        moved = self.map(lambda column: column.to(device))
        if self.mask.device.type == "cpu":
            moved.__dict__["on_cpu"] = self
        return moved

    @cached_property
    def on_cpu(self) -> Experience:
        """Returns the record on the CPU, without a transfer if it came from there."""
        return self if self.mask.device.type == "cpu" else self.to("cpu")

    def per_decision(self) -> Iterator[tuple[str, Tensor]]:
        """Returns names and tensors of all columns with the axis T, with 'context.' and 'extra.' before their keys."""
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("context", "extra"):
                for name, column in value.items():
                    if column.dim() >= 2:
                        yield f"{f.name}.{name}", column
            elif isinstance(value, Tensor) and value.dim() >= 2:
                yield f.name, value

    def columns(self, start: int, stop: int) -> Experience:
        """Returns columns start..stop of the axis T; columns per sequence are unchanged."""
        return self.map(lambda column: column[:, start:stop] if column.dim() >= 2 else column)

    def trim(self) -> Experience:
        """Returns the record without trailing columns outside of every context (`valid`, else `mask` and one after)."""
        if "valid" in self.context:
            used = self.context["valid"].any(0)
        else:
            used = self.mask.any(0)
            used = used | torch.nn.functional.pad(used, (1, 0))[:-1]
        last = int(used.nonzero()[-1]) + 1 if bool(used.any()) else 1
        return self if last == self.num_columns else self.columns(0, last)


COLUMNS = tuple(f.name for f in fields(Experience))


def concatenate(parts: Sequence[Experience]) -> Experience:
    """Returns one record of all sequences; shorter ones are padded at the end with zeros and mask false."""
    if len(parts) == 1:
        return parts[0]
    longest = max(part.num_columns for part in parts)
    padded = [pad(part, longest) for part in parts]

    def join(name: str) -> Any:
        values = [getattr(part, name) for part in padded]
        if isinstance(values[0], Tensor):
            return torch.cat(values)
        if isinstance(values[0], Mapping):
            shared = set(values[0]).intersection(*values[1:])
            return {key: torch.cat([value[key] for value in values]) for key in values[0] if key in shared}
        return None

    return Experience(**{f.name: join(f.name) for f in fields(Experience)})


def pad(experience: Experience, num_columns: int) -> Experience:
    """Returns the same decisions with T = num_columns: zeros and mask false at the end."""
    return experience.map(lambda column: widen(column, num_columns))


def widen(column: Tensor, num_columns: int) -> Tensor:
    """Returns [B, T, ...] with zeros at the end up to T = num_columns; a column without the axis T unchanged."""
    missing = num_columns - column.shape[1] if column.dim() > 1 else 0
    return torch.cat([column, column.new_zeros(len(column), missing, *column.shape[2:])], 1) if missing else column


# ---------------------------------------------------------------------------------------------------- results of parts
@dataclass(frozen=True)
class Loss:
    """A term's value: a sum with gradient, the count to divide it by, and metrics as (sum, count)."""

    sum: Tensor
    count: Tensor
    metrics: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Regressed:
    """The result of a regression for each decision: loss and predicted value [..., B, T], and more metrics by name."""

    loss: Tensor
    value: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Fit:
    """Training data of one update for a grown module: R decisions with inputs [R, F] and d loss / d output [R, P]."""

    name: str
    """Name of the model that contains the module."""
    module: Any
    inputs: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class Certified:
    """A certificate's verdict on a trained policy: whether it holds, in a sentence and in numbers."""

    holds: bool
    statement: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scored:
    """The actor's scores of the recorded decisions under its current parameters; None if not requested."""

    logp: Tensor
    entropy: Tensor | None = None
    logits: Tensor | None = None
    hidden: Tensor | None = None
    candidates: Tensor | None = None
    uniform: Tensor | None = None


@dataclass(frozen=True)
class Draw:
    """A source of randomness: coordinates of a hash, never a stream. `at` adds a coordinate."""

    seed: int
    path: tuple[int, ...] = ()

    def at(self, *coordinates: int) -> Draw:
        """Returns the draw with these coordinates appended."""
        return Draw(self.seed, self.path + coordinates)


@dataclass(frozen=True)
class Progress:
    """The progress of a run: loop steps done and planned, updates and decisions so far."""

    step: int = 0
    num_steps: int = 1
    updates: int = 0
    decisions: int = 0

    @property
    def fraction(self) -> float:
        """The share of the run that is done: 0 at the start, 1 at the end."""
        return min(1.0, self.step / max(1, self.num_steps))
