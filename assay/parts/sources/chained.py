"""Transitions that know what followed them: rewards of several steps. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.core.record import Experience, State


def windows(
    index: Tensor, ring: dict[str, Tensor], following: Tensor, steps: int, discount: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Returns the columns of transitions over up to `steps` decisions that begin in these places of a buffer, and how
    many rewards each one sums; `following` is the place of the next transition, -1 at an end.
    """
    last, reward = index, ring["reward"][index, 0]
    ahead = torch.ones_like(reward)
    for power in range(1, steps):
        onward = following[last]
        goes = onward >= 0
        last = torch.where(goes, onward, last)
        reward = reward + torch.where(goes, discount**power * ring["reward"][last, 0], 0.0)
        ahead = ahead + goes
    found = {name: torch.stack((column[index, 0], column[last, 1]), 1) for name, column in ring.items()}
    found["reward"][:, 0] = reward
    for name in ("terminal", "truncated"):
        found[name][:, 0] = ring[name][last, 0]
    return found, ahead


def following(
    fresh: Experience, columns: dict[str, Tensor], state: State, known: Tensor | None, capacity: int
) -> Tensor:
    """Returns the place of the transition that follows each fresh one in its episode, -1 if it is not there (yet);
    tells those of the last step in `known` what follows them: the row continues where the context is the same, number
    by number.
    """
    row, column = fresh.mask[:, :-1].nonzero(as_tuple=True)
    count, home = len(row), row.device
    place = (state["next"] + torch.arange(count, device=home)) % capacity
    goes_on = ~(columns["terminal"] | columns["truncated"])[:, 0]
    found, none = torch.full_like(place, -1), torch.full((len(fresh),), -1, device=home)
    is_next = (row[1:] == row[:-1]) & (column[1:] == column[:-1] + 1) & goes_on[:-1]
    found[:-1] = torch.where(is_next, place[1:], -1)
    before, ring = state["open"].to(home), state["columns"]
    if len(before) == len(fresh) and known is not None:
        begins = (column == 0).nonzero().squeeze(1)
        past = before[row[begins]]
        there = (past >= 0) & ((past - state["next"]) % capacity >= count)
        for name in (one for one in columns if one.startswith("context.")):
            same = ring[name].to(home)[past.clamp(min=0), 1] == columns[name][begins, 0]
            there = there & (same.flatten(1).all(1) if same.dim() > 1 else same)
        known[past[there]] = place[begins[there]]
    ends = goes_on & (column == fresh.num_columns - 2)
    none[row[ends]] = place[ends]
    state["open"] = none
    return found
