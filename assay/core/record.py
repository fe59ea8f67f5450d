"""The one record of what happened, and the small values that parts hand to each other.

Axes: B sequences, T decisions, A action dimensions, K costs.

A column with `mask` false is not a decision of this actor: a prompt token, padding, a tool's output, the column
that holds an episode's final observation. The context after decision t is column t + 1, in every world: a
transition of replay is a sequence of two columns, one decision and what followed it.
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
"""(sum, count) of each metric, one entry for each loss; added up when the step is over."""

State = dict[str, Any]
"""What a part remembers: a tree of dicts, lists, tensors, numbers and text. It is saved with the run."""


class Need(Enum):
    """What a part reads besides the record; nothing is computed that no part of the recipe declares."""

    LOGP = "log-probability of each recorded decision under the current policy"
    ENTROPY = "entropy of each decision's distribution"
    LOGITS = "the whole distribution of each decision"
    HIDDEN = "last hidden state of each decision"
    VALUE = "column `value`: the state value before each decision, by the critic `value`"
    REFERENCE = "column `logp_ref`: log-probability under the copy named `reference`"


class Origin(IntEnum):
    """Where a sequence came from; the values of the column `source`."""

    POLICY = 0
    OLDER_SELF = 1
    TEACHER = 2
    HUMAN = 3
    DATASET = 4
    HINTED = 5


# ---------------------------------------------------------------------------------------------------- outcomes
@dataclass(frozen=True)
class Score:
    """A verifier's number."""

    value: float


@dataclass(frozen=True)
class PolicyFault:
    """The policy's own failure (no answer, too long, its code timed out); trains with `value`."""

    kind: str
    value: float = 0.0


@dataclass(frozen=True)
class InfraFault:
    """The infrastructure's failure. Never a number: the sequence leaves training and is counted."""

    kind: str


Outcome = Score | PolicyFault | InfraFault


# ---------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True)
class Experience:
    """B sequences of up to T decisions, the same columns for tokens and torques.

    `logp` is under whoever acted, as recorded when acting. A scalar outcome sits on the last decision of `reward`.
    Terminal steps do not bootstrap, truncated ones do; where both are set the task ended the episode (terminal) by
    cutting it (truncated). Columns that are None are absent: no `group` means that each row is its own group.
    In a game a row is what one player did: `player` [B] says which, and the rows of a game share `episode`.
    `extra` holds what parts add under their own names, each [B] or [B, T, ...].
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
        """How many decisions it holds, computed once."""
        return self.mask.sum()

    @cached_property
    def weight(self) -> Tensor:
        """The mask as numbers: 1 for a decision, 0 elsewhere; computed once."""
        return self.mask.to(self.reward.dtype)

    @cached_property
    def now(self) -> Experience:
        """All columns but the last; made once."""
        return self.columns(0, self.num_columns - 1)

    @cached_property
    def after(self) -> Experience:
        """All columns but the first: what followed each column of `now`; made once."""
        return self.columns(1, self.num_columns)

    def column(self, name: str) -> Tensor:
        """A column that a part added; says which are there when it is missing."""
        if name not in self.extra:
            there = ", ".join(sorted(self.extra)) or "none"
            raise AssayError(
                f"this experience has no column '{name}' (added so far: {there}); put the part that writes it earlier"
            )
        return self.extra[name]

    def add(self, columns: Mapping[str, Tensor]) -> Experience:
        """The same record with these extra columns."""
        return self.with_columns(extra={**self.extra, **columns})

    def map(self, change: Callable[[Tensor], Tensor]) -> Experience:
        """Applies `change` to every tensor."""
        changed: dict[str, Any] = {}
        for name in COLUMNS:
            value = self.__dict__[name]
            if isinstance(value, Tensor):
                changed[name] = change(value)
            elif value:
                changed[name] = {key: change(column) for key, column in value.items()}
        return self.with_columns(**changed)

    def with_columns(self, **columns: Any) -> Experience:
        """`dataclasses.replace` for the hot path: the same record with these fields."""
        new = object.__new__(Experience)
        new.__dict__.update({name: self.__dict__[name] for name in COLUMNS}, **columns)
        return new

    def rows(self, index: Tensor | slice) -> Experience:
        """The sequences at `index`."""
        if isinstance(index, Tensor) and index.dtype == torch.int64:
            return self.map(lambda column: column.index_select(0, index))
        return self.map(lambda column: column[index])

    def own(self) -> Experience:
        """The sequences that the policy itself acted: all of them where nobody says otherwise."""
        return self if self.source is None else self.rows(self.source == int(Origin.POLICY))

    def to(self, device: torch.device | str) -> Experience:
        """The record on another device; it remembers what it was in the host's memory."""
        moved = self.map(lambda column: column.to(device))
        if self.mask.device.type == "cpu":
            moved.__dict__["on_cpu"] = self
        return moved

    @cached_property
    def on_cpu(self) -> Experience:
        """The record in the host's memory, for which nobody waits where it came from there."""
        return self if self.mask.device.type == "cpu" else self.to("cpu")

    def per_decision(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors of all columns that have the axis T ('context.' and 'extra.' before mapped ones)."""
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("context", "extra"):
                for name, column in value.items():
                    if column.dim() >= 2:
                        yield f"{f.name}.{name}", column
            elif isinstance(value, Tensor) and value.dim() >= 2:
                yield f.name, value

    def columns(self, start: int, stop: int) -> Experience:
        """Columns start..stop of the axis T; per-sequence columns stay."""
        return self.map(lambda column: column[:, start:stop] if column.dim() >= 2 else column)

    def trim(self) -> Experience:
        """Drops trailing columns in which no sequence has a context (column `valid`, else `mask` and one after)."""
        if "valid" in self.context:
            used = self.context["valid"].any(0)
        else:
            used = self.mask.any(0)
            used = used | torch.nn.functional.pad(used, (1, 0))[:-1]
        last = int(used.nonzero()[-1]) + 1 if bool(used.any()) else 1
        return self if last == self.num_columns else self.columns(0, last)


COLUMNS = tuple(f.name for f in fields(Experience))


def concatenate(parts: Sequence[Experience]) -> Experience:
    """One record of all sequences; shorter ones are padded at the end with zeros and mask false."""
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
    """The same decisions with T = num_columns: zeros and mask false at the end."""
    missing = num_columns - experience.num_columns
    if missing == 0:
        return experience

    def lengthen(column: Tensor) -> Tensor:
        if column.dim() < 2:
            return column
        return torch.cat([column, column.new_zeros(column.shape[0], missing, *column.shape[2:])], 1)

    return experience.map(lengthen)


# ---------------------------------------------------------------------------------------------------- results of parts
@dataclass(frozen=True)
class Loss:
    """A term's value: a sum with its gradient, the count it is to be divided by, and metrics as (sum, count)."""

    sum: Tensor
    count: Tensor
    metrics: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Regressed:
    """What a fit says about each decision: its loss and predicted value [..., B, T], and more numbers by name."""

    loss: Tensor
    value: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Fit:
    """What an update asks of a grown module: R decisions, what it saw [R, F], and d loss / d output there [R, P]."""

    name: str
    """The model that it belongs to."""
    module: Any
    inputs: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class Certified:
    """What a certificate says of a trained policy: whether it holds, in a sentence and in numbers."""

    holds: bool
    statement: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scored:
    """What the actor says about the recorded decisions under its current parameters; None where nobody asked."""

    logp: Tensor
    entropy: Tensor | None = None
    logits: Tensor | None = None
    hidden: Tensor | None = None


@dataclass(frozen=True)
class Draw:
    """Where randomness comes from: coordinates of a hash, never a stream. `at` adds a coordinate."""

    seed: int
    path: tuple[int, ...] = ()

    def at(self, *coordinates: int) -> Draw:
        """The draw one level below."""
        return Draw(self.seed, self.path + coordinates)


@dataclass(frozen=True)
class Progress:
    """How far a run is: loop steps done and planned, updates and decisions so far."""

    step: int = 0
    num_steps: int = 1
    updates: int = 0
    decisions: int = 0

    @property
    def fraction(self) -> float:
        """0 at the start, 1 at the end."""
        return min(1.0, self.step / max(1, self.num_steps))
