"""Datasets altered by a stated rule, from a seed: corrupted, filtered, without actions, mixed, paid late.

    corrupted      what: reward, action, observation or dynamics; a share of the rows, by a size
    filtered       a share of the episodes, those with the best or the worst returns
    action-free    a share of the episodes loses its actions, those with the best or the worst returns or any
    completed      actions that are missing are those that a model of the recorded ones gives
    mixed          a share of the rows are episodes of another dataset
    origin         all rows get a number of provenance; from-origin keeps the episodes of one
    d4rl-rows      the rows that D4RL's own reader makes of a file, wrong successors included
    delayed        rewards are summed and paid every so many decisions, and at the end of an episode

A rule is a small value that is written into the file beside the hash of what it was applied to, so that equal rules on
equal data give equal rows. Corruption is that of RIQL (arXiv:2310.12955, appendix): a number times the column's
deviation, drawn evenly from -size to size for every entry; rewards become numbers from -30 size to 30 size.

Axes: N rows of a column, E episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.settings import describe
from assay.datasets.dataset import Dataset, join_datasets
from assay.datasets.files import read
from assay.ops import random
from assay.parts.sources.completed import InverseDynamics, Rows

REWARD_RANGE = 30.0
COLUMNS = {"reward": "reward", "action": "action", "observation": "observation", "dynamics": "next_observation"}
ENDS = ("best", "worst", "any")
MOST = 2**31 - 1
"""Largest whole number of a rule."""


class Rule(Protocol):
    """A change of a dataset: equal rules, data and seeds give equal rows."""

    name: ClassVar[str]

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the altered rows."""


def check_share(rule: Rule, share: float) -> None:
    """Raises AssayError if a share is not above 0 and at most 1."""
    if not 0.0 < share <= 1.0:
        raise AssayError(f"{rule.name}: share is {share:g}. Use a number above 0, up to 1")


def episodes_of(data: Dataset) -> Tensor:
    """Returns the number of each row's episode, [N]."""
    ends = (data.terminal | data.truncated).long()
    return ends.cumsum(0) - ends


def only(data: Dataset, keep: Tensor) -> Dataset:
    """Returns the rows of whole episodes that are marked, bool [E]."""
    rows = keep[episodes_of(data)]
    kept: dict[str, Any] = {name: column[rows] for name, column in data.columns()}
    return replace(data, **kept)


def some_episodes(data: Dataset, num: int, of: str, seed: int) -> Tensor:
    """Marks `num` episodes, those with the best or worst returns, or any, bool [E]."""
    order = torch.from_numpy(random.permutation(Draw(seed, (51,)), len(data.returns)))
    if of != "any":
        order = data.returns.argsort(descending=of == "best", stable=True)
    keep = torch.zeros(len(data.returns), dtype=torch.bool)
    keep[order[:num]] = True
    return keep


def check_end(rule: Rule, of: str) -> None:
    """Raises AssayError if it is not one of ENDS."""
    if of not in ENDS:
        raise AssayError(f"{rule.name}: of is '{of}'. Use {', '.join(ENDS)}")


# ---------------------------------------------------------------------------------------------------- rules
@dataclass(frozen=True)
class Corrupted:
    """A share of the rows has other numbers in one column; discrete actions become others, evenly.

    Degenerate: a constant column has deviation 0 and stays as it is, rewards excepted.
    """

    what: str = "reward"
    share: float = 0.3
    size: float = 1.0
    name: ClassVar[str] = "corrupted"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the data with the column changed in these rows."""
        check_share(self, self.share)
        if self.what not in COLUMNS:
            raise AssayError(f"{self.name}: what is '{self.what}'. Use {', '.join(COLUMNS)}")
        name, draw, rows = COLUMNS[self.what], Draw(seed, (52,)), np.arange(len(data))
        column: Tensor = getattr(data, name)
        chosen = torch.from_numpy(random.uniform(draw, 0, rows) < self.share)
        if not column.is_floating_point():
            num = int(column.max()) + 1
            away = 1 + torch.from_numpy((random.uniform(draw, 1, rows) * (num - 1)).astype(np.int64))
            other: dict[str, Any] = {name: torch.where(chosen, (column + away) % num, column)}
            return replace(data, **other, logp=None)
        flat = column.reshape(len(column), -1)
        place = np.arange(flat.shape[1])
        number = torch.from_numpy(self.size * (2.0 * random.uniform(draw, 1, rows[:, None], place[None]) - 1.0))
        if self.what == "reward":
            wrong = REWARD_RANGE * number
        else:
            wrong = flat + number * flat.double().std(0, correction=0)
        if self.what == "action":  # as a task takes them: inside the range that the data have
            wrong = wrong.clamp(flat.double().amin(0), flat.double().amax(0))
        found: dict[str, Any] = {name: torch.where(chosen.unsqueeze(1), wrong.to(flat.dtype), flat).view_as(column)}
        return replace(data, **found, logp=None if self.what == "action" else data.logp)


@dataclass(frozen=True)
class Filtered:
    """A share of the episodes, at least one: those with the best or the worst returns, or any."""

    share: float = 0.1
    of: str = "best"
    name: ClassVar[str] = "filtered"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the episodes in their order."""
        check_share(self, self.share)
        check_end(self, self.of)
        return only(data, some_episodes(data, max(1, round(self.share * len(data.returns))), self.of, seed))


@dataclass(frozen=True)
class WithoutActions:
    """A share of the episodes loses its actions: their column `acted` is false, their actions are 0.

    `of` says which: with "best" the labelled rest are the worst episodes (arXiv:2210.06518).
    """

    share: float = 0.9
    of: str = "best"
    name: ClassVar[str] = "action-free"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the data with hidden actions."""
        check_share(self, self.share)
        check_end(self, self.of)
        num = min(round(self.share * len(data.returns)), len(data.returns) - 1)
        acted = ~some_episodes(data, num, self.of, seed)[episodes_of(data)]
        hidden = torch.where(acted.view(-1, *[1] * (data.action.dim() - 1)), data.action, torch.zeros_like(data.action))
        return replace(data, action=hidden, acted=acted, logp=None)


@dataclass(frozen=True)
class Mixed:
    """About a share of the rows are whole episodes of another dataset of the same task, drawn by chance.

    The number of episodes stays: of each, as many as its share of them. Degenerate: share 1 is the other dataset's.
    """

    other: str = ""
    share: float = 0.5
    name: ClassVar[str] = "mixed"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the kept episodes, then those of the other dataset."""
        check_share(self, self.share)
        if not self.other:
            raise AssayError("mixed: there is no other dataset. Name one: mixed:other=FILE")
        theirs = read(self.other)
        for what in ("observation", "action"):
            mine, other = (tuple(getattr(one, what).shape[1:]) for one in (data, theirs))
            if mine != other:
                told = f"mixed: {self.other} has {what}s of shape {other}, these {mine}"
                raise AssayError(f"{told}. Mix data of one task")
        num = len(data.returns)
        added = min(max(1, round(self.share * num)), len(theirs.returns))
        parts = [only(theirs, some_episodes(theirs, added, "any", seed + 1))]
        if added < num:
            parts.insert(0, only(data, some_episodes(data, num - added, "any", seed)))
        return join_datasets(parts, data.about)


@dataclass(frozen=True)
class Delayed:
    """Rewards are summed over `steps` decisions and paid at the last of them, or at the end of the episode."""

    steps: int = 10
    name: ClassVar[str] = "delayed"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the data with late rewards; the return of each episode is the same."""
        if self.steps < 1:
            raise AssayError(f"{self.name}: steps is {self.steps}. Use 1 or more")
        reward = torch.zeros(len(data), dtype=torch.float64)
        for first, last in data.bounds:
            for start in range(first, last, self.steps):
                stop = min(start + self.steps, last)
                reward[stop - 1] = data.reward[start:stop].double().sum()
        return replace(data, reward=reward.to(data.reward.dtype))


@dataclass(frozen=True)
class Completed:
    """Actions that are missing (`acted`) are those that a model of the recorded ones gives (`InverseDynamics`)."""

    steps: int = 2_000
    past: int = 1
    name: ClassVar[str] = "completed"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the data with all actions; the column `acted` goes."""
        if data.acted is None or bool(data.acted.all()):
            raise AssayError("completed: all rows have their actions. Use the data as they are")
        rows = Rows(data.observation, data.next_observation, data.action, data.terminal | data.truncated, data.acted)
        action = InverseDynamics(updates=self.steps, past=self.past).completed(rows, Draw(seed, (54,)))
        return replace(data, action=action, acted=None)


@dataclass(frozen=True)
class Marked:
    """All rows have this number of provenance, so that data that are mixed or joined later can be told apart."""

    number: int = 0
    name: ClassVar[str] = "origin"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the data with the column `origin`."""
        return replace(data, origin=torch.full((len(data),), self.number))


@dataclass(frozen=True)
class FromOrigin:
    """The episodes of one provenance."""

    number: int = 0
    name: ClassVar[str] = "from-origin"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the episodes in their order."""
        if self.number not in data.origins:
            has = ", ".join(map(str, data.origins)) or "no provenance: mark the data by the rule origin"
            raise AssayError(f"{self.name}: no episode has the origin {self.number}. The data have {has}")
        assert data.origin is not None
        return only(data, data.origin[data.ends] == self.number)


@dataclass(frozen=True)
class ReferenceRows:
    """The rows that D4RL's own reader makes of its files (`qlearning_dataset`, arXiv:2004.07219).

    Each row's next observation is that of the row after it, also behind an end; the last row is left out, and so is one
    at which an episode is cut, unless `keep_cut` is 1. Degenerate: a terminal last row is lost.
    """

    keep_cut: int = 0
    name: ClassVar[str] = "d4rl-rows"

    def __call__(self, data: Dataset, seed: int) -> Dataset:
        """Returns the rows; an episode is cut before a row that is left out."""
        if self.keep_cut not in (0, 1):
            raise AssayError(f"{self.name}: keep_cut is {self.keep_cut}. Use 0 or 1")
        if len(data) < 2:
            raise AssayError(f"{self.name}: one row has no successor. Use data of two rows or more")
        keep, cut = torch.ones(len(data), dtype=torch.bool), data.truncated & ~data.terminal
        if not self.keep_cut:
            keep &= ~cut
        keep[-1] = False
        truncated = ~data.terminal & (cut | torch.cat((~keep[1:], torch.ones(1, dtype=torch.bool))))
        after = torch.cat((data.observation[1:], data.observation[-1:]))
        read_again = replace(data, next_observation=after, truncated=truncated, achieved=None, next_achieved=None)
        kept: dict[str, Any] = {name: column[keep] for name, column in read_again.columns()}
        return replace(read_again, **kept)


EVERY_RULE = (
    Corrupted, Filtered, WithoutActions, Completed, Mixed, Delayed, Marked, FromOrigin, ReferenceRows,
)  # fmt: skip
RULES: Mapping[str, Callable[..., Rule]] = {one.name: one for one in EVERY_RULE}


# ---------------------------------------------------------------------------------------------------- by name
def rule_of(text: str) -> Rule:
    """Returns the rule of a text such as `corrupted:what=reward,share=0.3`."""
    name, _, rest = text.partition(":")
    if name not in RULES:
        raise AssayError(f"there is no rule '{name}'. Use {', '.join(RULES)}")
    made: Any = RULES[name]
    known: dict[str, Any] = {one.name: type(one.default) for one in fields(made)}
    settings: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key not in known or not equals:
            raise AssayError(f"{name}: '{part}' is not a setting. Use {', '.join(f'{one}=...' for one in known)}")
        try:
            settings[key] = known[key](value)
            if isinstance(settings[key], int) and abs(settings[key]) > MOST:
                raise ValueError
        except ValueError:
            kind = f"a whole number, to {MOST:,}" if known[key] is int else "a number"
            raise AssayError(f"{name}: {key} is '{value}'. Use {kind}") from None
    found: Rule = made(**settings)
    return found


def altered(data: Dataset, rules: tuple[Rule, ...], seed: int) -> Dataset:
    """Returns the data after the rules, in order; the description lists each with its seed and the hash it was applied
    to.
    """
    if data.acted is not None and any(isinstance(rule, WithoutActions) for rule in rules):
        raise AssayError("action-free: some actions are hidden already. Apply it to the original")
    for place, rule in enumerate(rules):
        told = {"rule": rule.name, "settings": describe(rule), "seed": seed + place, "of": data.hash}
        before = data.about.get("altered", [])
        data = replace(rule(data, seed + place), about={**data.about, "altered": [*before, told]})
    return data
