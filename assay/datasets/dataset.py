"""An offline dataset in memory: one row per decision, episode after episode. Axes: N rows, D observed numbers, A, K
costs, E.

An episode ends where a row is terminal (no bootstrap) or truncated (the value of the next observation is estimated).
The last row always ends an episode. The next observation is stored with each decision, so a truncated episode keeps
the observation to bootstrap from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.spaces import Box, Discrete, Spec
from assay.parts.sources.replay import transitions

NEEDED = ("observation", "action", "reward", "terminal", "truncated", "next_observation")
OPTIONAL = ("cost", "success", "logp", "achieved", "next_achieved", "goal", "acted", "origin")
REWARDS = "rewards"
"""The entry of `about` that is False if the data have no rewards: the column `reward` is zeros then."""
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class Dataset:
    """Rows of decisions. `about` describes in JSON how they were made and is not part of the hash.

    `success` is true in rows whose decision solved the task; an end alone does not say so, since a fall is one too. In
    data of tasks with goals `achieved` and `next_achieved` are the positions of both observations in goal space, and
    `goal` is the goal that the decision was for. `acted` is false in rows whose action was not recorded. `origin` is
    the number of each row's provenance, the same in all rows of an episode.
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    terminal: Tensor
    truncated: Tensor
    next_observation: Tensor
    cost: Tensor | None = None
    success: Tensor | None = None
    logp: Tensor | None = None
    achieved: Tensor | None = None
    next_achieved: Tensor | None = None
    goal: Tensor | None = None
    acted: Tensor | None = None
    origin: Tensor | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = len(self.reward)
        if not rows:
            raise AssayError("the dataset has no rows. It needs at least one decision")
        for name, column in self.columns():
            if len(column) != rows:
                raise AssayError(f"'{name}' has {len(column)} rows and 'reward' {rows}. They need equally many")
            if column.is_floating_point() and not bool((finite := finite_rows(column)).all()):
                place = int((~finite).nonzero()[0])
                raise AssayError(f"'{name}' is not finite in row {place} ({int((~finite).sum())} such rows). Remove it")
        if self.observation.shape != self.next_observation.shape:
            shapes = f"{tuple(self.observation.shape)} and {tuple(self.next_observation.shape)}"
            raise AssayError(f"'observation' and 'next_observation' have different shapes: {shapes}")
        if not bool(self.terminal[-1] | self.truncated[-1]):
            raise AssayError("the last row does not end an episode. Mark it as truncated")

    def __len__(self) -> int:
        return len(self.reward)

    def columns(self) -> Iterator[tuple[str, Tensor]]:
        """Yields every column that is set, by name."""
        for name in (*NEEDED, *OPTIONAL):
            column = getattr(self, name)
            if column is not None:
                yield name, column

    @cached_property
    def hash(self) -> str:
        """Returns sixteen hex digits of the columns' names, types, shapes and numbers; the file format does not
        matter.
        """
        digest = hashlib.sha256()
        for name, column in self.columns():
            digest.update(f"{name} {column.dtype} {list(column.shape)};".encode())
            digest.update(column.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def ends(self) -> Tensor:
        """Returns the row numbers of the episodes' last decisions, [E]."""
        return (self.terminal | self.truncated).nonzero().squeeze(1)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Returns the first row of each episode and the row after its last."""
        ends = (self.ends + 1).tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True))

    @cached_property
    def returns(self) -> Tensor:
        """Returns the sum of rewards of each episode, [E], float64."""
        sums = self.reward.double().cumsum(0)[self.ends]
        return sums - torch.cat([sums.new_zeros(1), sums[:-1]])

    def summary(self) -> dict[str, Any]:
        """Returns sizes, ends, returns and the hash, as JSON."""
        last = self.ends
        spread = torch.quantile(self.returns, torch.tensor(QUANTILES, dtype=torch.float64)).tolist()
        return {
            "rows": len(self),
            "episodes": len(last),
            "terminal": int(self.terminal[last].sum()),
            "success": None if self.success is None else int(self.success.sum()),
            "cut": int((self.truncated & ~self.terminal)[last].sum()),
            "length": len(self) / len(last),
            "observation": list(self.observation.shape[1:]),
            "action": list(self.action.shape[1:]) if self.action.is_floating_point() else "choice",
            "returns": {f"{share:g}": value for share, value in zip(QUANTILES, spread, strict=True)},
            "mean_return": float(self.returns.mean()),
            "hash": self.hash,
            "about": dict(self.about),
        } | ({} if self.origin is None else {"origins": self.origins})

    @property
    def origins(self) -> dict[int, int]:
        """Returns how many episodes there are of each provenance; none where the data do not say."""
        if self.origin is None:
            return {}
        numbers, counts = self.origin[self.ends].unique(return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def check_fits(self, spec: Spec, name: str) -> None:
        """Raises AssayError if the data do not fit the task's spaces, or lack the action masks that it has."""
        if spec.masked:
            what = f"task '{name}' has action masks, which data do not record: forbidden actions would be learned from"
            raise AssayError(f"{what}. Train online (ppo, dqn), or give a task without masks")
        check_space(self.observation, spec.observation, "observations", name)
        check_space(self.action, spec.action, "actions", name)
        check_bounds(self.action, spec.action, name)
        for what in ("achieved", "next_achieved", "goal") if spec.goal is not None else ():
            column = getattr(self, what)
            if column is not None:
                check_space(column, spec.goal, f"column '{what}'", name)

    def pairs(self, reward_scale: float = 1.0) -> dict[str, Tensor]:
        """Returns the rows as transitions of two columns, in the layout of `sources.replay.transitions`; the second
        column is the next decision of the episode, and zeros after its last.
        """
        key = "observation" if self.observation.is_floating_point() else "state"

        def pair(column: Tensor) -> Tensor:
            after = torch.cat([column[1:], torch.zeros_like(column[:1])])
            after[self.ends] = 0
            return torch.stack((column, after), 1)

        found = {"action": self.action, "reward": reward_scale * self.reward, "terminal": self.terminal}
        found["truncated"] = self.truncated
        found["logp"] = torch.zeros_like(self.reward) if self.logp is None else self.logp
        if self.cost is not None:
            found["cost"] = self.cost
        if self.success is not None:
            found["success"] = self.success
        context = {f"context.{key}": torch.stack((self.observation, self.next_observation), 1)}
        if self.goal is not None:
            context["context.goal"] = torch.stack((self.goal, self.goal), 1)
        if self.achieved is not None and self.next_achieved is not None:
            context["context.achieved"] = torch.stack((self.achieved, self.next_achieved), 1)
        mask = torch.tensor([True, False]).expand(len(self), 2).contiguous()
        return {name: pair(column) for name, column in found.items()} | {"mask": mask} | context

    def walks(self, goal: Box) -> dict[str, Tensor]:
        """Returns the episodes as walks, in the layout of `sources.relabelled.Play`: all states, one more than
        decisions, whose last action is zeros.

        Where the data have no positions in goal space, states are goals themselves if they have the goals' size; else
        AssayError, as for rows that do not follow each other.
        """
        achieved, after = self.achieved, self.next_achieved
        if achieved is None or after is None:
            if self.observation.shape[1] != goal.size:
                what = f"goals are vectors of {goal.size}, and the data have no columns 'achieved' and 'next_achieved'"
                raise AssayError(f"{what}. Add both: the positions of each state and of the next one in goal space")
            achieved, after = self.observation, self.next_observation
        if self.is_broken:
            raise AssayError("rows do not follow each other inside episodes. Goals of the future need whole episodes")
        ends, num = self.ends, len(self)
        place = torch.arange(num) + torch.searchsorted(ends, torch.arange(num))
        last = ends + torch.arange(len(ends)) + 1

        def states(now: Tensor, final: Tensor) -> Tensor:
            found = now.new_zeros(num + len(ends), *now.shape[1:])
            found[place], found[last] = now, final
            return found

        walk = {"observation": states(self.observation, self.next_observation[ends])}
        walk |= {"achieved": states(achieved, after[ends]), "action": states(self.action, 0 * self.action[ends])}
        return walk | {"last": last.diff(prepend=last.new_tensor([-1])) - 1}

    @property
    def is_broken(self) -> bool:
        """Returns whether some row's next observation is not that of the row after it in its episode."""
        inside = torch.ones(len(self), dtype=torch.bool)
        inside[self.ends] = False
        return not torch.equal(self.next_observation[inside], self.observation[1:][inside[:-1]])


def finite_rows(column: Tensor) -> Tensor:
    """Returns whether all numbers of a row are finite, bool [N]."""
    return torch.isfinite(column).reshape(len(column), -1).all(1)


def check_space(column: Tensor, space: Any, what: str, name: str) -> None:
    """Raises AssayError if a column does not fit the task's space."""
    found = f"vectors of {column.shape[1]}" if column.is_floating_point() else f"discrete, up to {int(column.max())}"
    if isinstance(space, Box):
        fits, wanted = column.is_floating_point() and column.shape[1] == space.size, f"vectors of {space.size}"
    elif isinstance(space, Discrete):
        is_choice = not column.is_floating_point() and int(column.min()) >= 0 and int(column.max()) < space.n
        fits, wanted = is_choice, f"discrete ones, 0 to {space.n - 1}"
    else:
        raise AssayError(f"task '{name}' has token actions. A dataset needs discrete or continuous actions")
    if not fits:
        raise AssayError(f"the data's {what} are {found}; task '{name}' has {wanted}. Choose the task of the data")


def check_bounds(action: Tensor, space: Any, name: str) -> None:
    """Raises AssayError if continuous actions leave the task's bounds by more than a hundredth of their range: they are
    in other units.
    """
    if not isinstance(space, Box):
        return
    bounds = zip(action.amin(0).tolist(), action.amax(0).tolist(), space.low, space.high, strict=True)
    for place, (least, most, low, high) in enumerate(bounds):
        slack = 0.01 * (high - low)
        if least < low - slack or most > high + slack:
            found = f"the data's actions [{place}] go from {least:g} to {most:g}"
            raise AssayError(f"{found}; task '{name}' takes {low:g} to {high:g}. Rescale them")


# ---------------------------------------------------------------------------------------------------- from experience
def from_experience(pieces: Sequence[Experience], spec: Spec, about: Mapping[str, Any]) -> Dataset:
    """Returns experience as a dataset: row b of each piece continues row b of the piece before it.

    Fragments of simulations are joined to whole episodes; the last episode of each simulation is truncated. Actions
    are stored as the task took them, within its bounds; where an action was clipped, `logp` would be that of another
    action and is left out.
    """
    by_row: dict[int, list[dict[str, Tensor]]] = {}
    for piece in pieces:
        columns, rows = transitions(piece), piece.mask[:, :-1].nonzero()[:, 0]
        for row in range(len(piece)):
            by_row.setdefault(row, []).append({name: column[rows == row] for name, column in columns.items()})
    chains = []
    for parts in by_row.values():
        chain = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if len(chain["reward"]):
            if not bool(chain["terminal"][-1, 0]):
                chain["truncated"][-1, 0] = True
            chains.append(chain)
    if not chains:
        raise AssayError("no experience was gathered, so there is no dataset to write")
    return from_pairs({name: torch.cat([chain[name] for chain in chains]) for name in chains[0]}, spec, about)


def from_pairs(columns: Mapping[str, Tensor], spec: Spec, about: Mapping[str, Any]) -> Dataset:
    """Returns transitions of two columns as a dataset."""
    goals = ("context.achieved", "context.goal")
    names = [name for name in columns if name.startswith("context.") and name not in goals]
    if len(names) != 1:
        raise AssayError(f"a dataset has one kind of observation; this experience has {', '.join(names)}")
    seen, taken, reached, asked = columns[names[0]], columns["action"][:, 0], *map(columns.get, goals)
    action = taken
    if isinstance(spec.action, Box):
        action = taken.clamp(torch.tensor(spec.action.low), torch.tensor(spec.action.high))
    return Dataset(
        seen[:, 0].clone(),
        action.clone(),
        columns["reward"][:, 0].float(),
        columns["terminal"][:, 0].clone(),
        columns["truncated"][:, 0].clone(),
        seen[:, 1].clone(),
        cost=columns["cost"][:, 0].float() if "cost" in columns else None,
        success=columns["success"][:, 0].clone() if "success" in columns else None,
        logp=columns["logp"][:, 0].float() if torch.equal(action, taken) else None,
        achieved=None if reached is None else reached[:, 0].clone(),
        next_achieved=None if reached is None else reached[:, 1].clone(),
        goal=None if asked is None else asked[:, 0].clone(),
        about=about,
    )


def join_datasets(parts: Sequence[Dataset], about: Mapping[str, Any]) -> Dataset:
    """Concatenates the rows, in order; a column that one part lacks is left out."""

    def join(name: str) -> Tensor | None:
        found = [getattr(part, name) for part in parts]
        return None if any(column is None for column in found) else torch.cat(found)

    whole: dict[str, Any] = {name: join(name) for name in (*NEEDED, *OPTIONAL)}
    return replace(parts[0], **whole, about=about)
