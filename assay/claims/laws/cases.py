"""Synthetic experiences for the laws: small, ragged, awkward, and the same on every machine. Axes: B, T, K costs.

A row is drawn as text, one character a column:

    p prompt   d decision   E terminal decision   C truncated decision   B both   t tool output   x fault, no decision
    f context after an end, or after the last step   . padding
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.core.slots import PathActor
from assay.core.spaces import Box, Discrete, Image, MultiDiscrete, Spec, Vocabulary
from assay.ops import distributions, random

TOKENS = Spec(Vocabulary(7, pad=0, bos=1, eos=2), Vocabulary(7, pad=0, bos=1, eos=2), horizon=10)
TORQUES = Spec(Box((-3.0,) * 3, (3.0,) * 3), Box((-2.0, -1.0), (1.0, 3.0)), horizon=9)
CHOICES = Spec(Box((-3.0,) * 3, (3.0,) * 3), Discrete(3), horizon=9)
NUMBERED = Spec(Discrete(6), Discrete(3), horizon=9)
GOALS = Spec(Box((-3.0,) * 3, (3.0,) * 3), Discrete(3), horizon=9, goal=Box((-3.0,) * 2, (3.0,) * 2))
REACHING = Spec(Box((-3.0,) * 3, (3.0,) * 3), Box((-1.0,) * 2, (1.0,) * 2), horizon=9, goal=Box((-3.0,), (3.0,)))
SPECS = (TOKENS, TORQUES, CHOICES, NUMBERED, GOALS, REACHING)
"""Every kind of task."""
PIXELS = Spec(Image(1, 36, 36, top=9, numbers=3), Discrete(3), horizon=9)
STEERED = Spec(Image(1, 36, 36), Box((-1.0,), (1.0,)), horizon=9)
SEVERAL = Spec(Box((-3.0,) * 3, (3.0,) * 3), MultiDiscrete((2, 3)), horizon=9)
RARE_SPECS = (PIXELS, STEERED, SEVERAL)
"""Images and several choices at once, for models that can be built for no other kind of task."""

DECISIONS = "dECB"


@dataclass(frozen=True)
class Layout:
    """Rows drawn as text, with the group and the episode of each (None: the column is absent)."""

    name: str
    rows: tuple[str, ...]
    group: tuple[int, ...] | None = None
    episode: tuple[int, ...] | None = None
    outcome_only: bool = True
    """Whether rewards stand on the last decision alone."""
    player: tuple[int, ...] | None = None


RAGGED = Layout(
    "ragged rows, tool output, an infrastructure fault, groups of 1, 2 and 4",
    ("ppddddE...", "pdE.......", "pppddttddE", "ppdddddddB", "ppE.......", "ppxxxx....", "pddC......"),
    group=(5, 2, 5, 9, 2, 5, 5),
)
SEGMENTS = Layout(
    "several rows in an episode, groups of 1, 2 and 3 episodes",
    ("ppdd......", "ppppddE...", "pdddE.....", "ppC.......", "ppttddd...", "pppdttdE..", "pdE.......", "ppdE......"),
    group=(4, 4, 4, 1, 4, 4, 7, 7),
    episode=(10, 10, 11, 12, 13, 13, 14, 15),
)
GAMES = Layout(
    "games of two players, groups of 1, 2 and 3 of one player, a fault, an episode of two rows",
    ("pdtdtE....", "pddtdddE..", "pdtdtdC...", "ppdtddE...", "pxtx......", "pdtE......", "pdtd......", "pttdE....."),
    group=(4, 5, 4, 5, 4, 5, 8, 8),
    episode=(20, 20, 21, 21, 22, 22, 23, 23),
    outcome_only=False,
    player=(0, 1, 0, 1, 0, 1, 0, 0),
)
PLAIN = Layout("ragged rows without group or episode", ("ppddE.....", "pdddddddE.", "ppdC......"))
FRAGMENTS = Layout(
    "fragments: ends inside rows, some unfinished",
    ("dddEfdddf", "ddCfddddf", "ddddddddf", "EfEfdddEf", "dBfddddCf"),
    outcome_only=False,
)
EPISODES = Layout(
    "whole episodes, terminal and cut, an infrastructure fault, groups of 1 and 4",
    ("dddEf....", "dddddCf..", "Ef.......", "xxxf.....", "dddddddBf", "ddEf....."),
    group=(3, 3, 7, 3, 1, 3),
    outcome_only=False,
)
TRANSITIONS = Layout("transitions of two columns", ("df", "Ef", "Cf", "Bf", "df"), outcome_only=False)

TOKEN_LAYOUTS = (RAGGED, SEGMENTS, PLAIN, GAMES)
CONTROL_LAYOUTS = (EPISODES, FRAGMENTS, TRANSITIONS)


@dataclass(frozen=True)
class Case:
    """An experience with a name."""

    name: str
    batch: Experience


# ---------------------------------------------------------------------------------------------------- numbers
@cache
def number_from(name: str) -> int:
    """Returns a number that belongs to a name."""
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(name))


def normal(name: str, shape: Sequence[int]) -> Tensor:
    """Returns standard normal numbers that belong to a name, float64."""
    return normal_numbers(number_from(name), int(np.prod(shape))).reshape(tuple(shape)).clone()


@cache
def normal_numbers(seed: int, count: int) -> Tensor:
    """Returns so many standard normal numbers; thousands of inputs are made of the same ones."""
    values = random.uniform(Draw(17, (seed,)), np.arange(count))
    return distributions.normal_sample(torch.from_numpy(values))


def whole(name: str, low: int, high: int, shape: Sequence[int]) -> Tensor:
    """Returns whole numbers in [low, high) that belong to a name."""
    count = int(np.prod(shape))
    return (
        torch.from_numpy(random.integers(Draw(19, (number_from(name),)), high - low, count)).reshape(tuple(shape)) + low
    )


# ---------------------------------------------------------------------------------------------------- building
def is_one_of(layout: Layout, letters: str) -> Tensor:
    """Returns bool [B, T]: where the drawing has one of these letters."""
    return torch.tensor([[letter in letters for letter in row] for row in layout.rows])


def context_and_action(spec: Spec, layout: Layout) -> tuple[dict[str, Tensor], Tensor]:
    """Returns what was seen and done, by the task's spaces."""
    shape = (len(layout.rows), len(layout.rows[0]))
    if isinstance(spec.action, Vocabulary):
        valid = ~is_one_of(layout, ".")
        tokens = torch.where(valid, whole(layout.name, 3, spec.action.size, shape), spec.action.pad)
        tokens = torch.where(is_one_of(layout, "E"), spec.action.eos, tokens)
        tokens[:, 0] = spec.action.bos
        return {"tokens": tokens, "valid": valid}, tokens
    if isinstance(spec.observation, Discrete):
        # A decision of transitions sees the first half of the states, what follows it the second half.
        half = spec.observation.n // 2
        after = is_one_of(layout, "f").long() * half
        context = {"state": whole(layout.name, 0, half, shape) + after}
    elif isinstance(spec.observation, Image):
        space = spec.observation
        size = (*shape, space.channels, space.height, space.width)
        context = {"image": whole(layout.name + "pixels", 0, space.top + 1, size).to(torch.uint8)}
        if space.numbers:
            context["observation"] = normal(layout.name + "seen", (*shape, space.numbers))
    else:
        assert isinstance(spec.observation, Box)
        context = {"observation": normal(layout.name + "seen", (*shape, spec.observation.size))}
        if spec.goal is not None:
            context |= {name: normal(layout.name + name, (*shape, spec.goal.size)) for name in ("goal", "achieved")}
    if isinstance(spec.action, Discrete):
        return context, whole(layout.name + "done", 0, spec.action.n, shape)
    if isinstance(spec.action, MultiDiscrete):
        each = [whole(f"{layout.name}done{i}", 0, size, shape) for i, size in enumerate(spec.action.sizes)]
        return context, torch.stack(each, -1)
    assert isinstance(spec.action, Box)
    low, high = torch.tensor(spec.action.low).double(), torch.tensor(spec.action.high).double()
    inside = normal(layout.name + "done", (*shape, spec.action.size)).tanh() * 0.45 + 0.5
    return context, low + (high - low) * inside


OTHER_UNITS = ((2.0**-6, 0.5), (2.0**7, -3.0))
"""(factor, shift) of actions in other units: half-ranges near 0.02 and 200. Powers of two: no rounding."""


def is_rescalable(spec: Spec) -> bool:
    """Returns whether actions are vectors with finite bounds."""
    return isinstance(spec.action, Box) and bool(np.isfinite([*spec.action.low, *spec.action.high]).all())


def in_other_units(spec: Spec, factor: float, shift: float) -> Spec:
    """Returns the same spaces with actions in other units: shift + factor * action."""
    assert isinstance(spec.action, Box)
    low, high = (tuple(shift + factor * end for end in side) for side in (spec.action.low, spec.action.high))
    return replace(spec, action=Box(low, high))


def build(spec: Spec, layout: Layout) -> Experience:
    """Returns the experience of a drawing in float64, with every column that a part may read filled in."""
    mask, shape = is_one_of(layout, DECISIONS), (len(layout.rows), len(layout.rows[0]))
    context, action = context_and_action(spec, layout)
    names = ("logp", "reward", "value", "logp_ref", "advantage", "return")
    noise = {name: normal(layout.name + name, shape) for name in names}
    logp = -(0.2 + noise["logp"].abs()) * mask
    last = mask & (mask.long().flip(1).cumsum(1).flip(1) == 1)
    reward = (noise["reward"].round(decimals=1) * (last if layout.outcome_only else mask)).double()
    label = None if layout.group is None else torch.tensor(layout.group)
    rows = torch.arange(len(mask))
    turn = is_one_of(layout, "tf").long().cumsum(1)
    return Experience(
        context=context,
        action=action,
        mask=mask,
        logp=logp,
        reward=reward,
        terminal=is_one_of(layout, "EB"),
        truncated=is_one_of(layout, "CB"),
        cost=(normal(layout.name + "cost", shape).abs() * mask).unsqueeze(-1),
        group=label,
        episode=None if layout.episode is None else torch.tensor(layout.episode),
        turn=turn,
        segment=turn,
        player=None if layout.player is None else torch.tensor(layout.player),
        source=torch.zeros_like(rows),
        version=torch.zeros_like(rows),
        extra={
            "value": noise["value"],
            "logp_ref": (logp + 0.3 * noise["logp_ref"]) * mask,
            "advantage": noise["advantage"] * mask,
            "return": noise["return"] * mask,
            "chosen": pairs(mask, label),
            "start": rows if label is None else label,
            "sample": rows,
            "score": reward.sum(1),
            "row": rows,
        },
    )


def with_path(batch: Experience, actor: Any) -> Experience:
    """Returns the experience with the column `path` if the actor scores paths."""
    if not isinstance(actor, PathActor):
        return batch
    rows = {name: value.flatten(0, 1) for name, value in batch.context.items()}
    uniform = random.uniform_tensor(Draw(4), (batch.mask.numel(), actor.num_draws)).to(batch.reward.dtype)
    with torch.no_grad():
        path = actor.walk(rows, uniform)[2]
    return batch.add({"path": path.view(*batch.mask.shape, *path.shape[1:])})


def pairs(mask: Tensor, label: Tensor | None) -> Tensor:
    """Returns [B]: +1 and -1 for the first two rows with a decision of each group, else 0."""
    chosen = torch.zeros(len(mask), dtype=torch.float64)
    for group in [] if label is None else torch.unique(label).tolist():
        members = ((label == group) & mask.any(1)).nonzero().squeeze(1)
        if len(members) >= 2:
            chosen[members[0]], chosen[members[1]] = 1.0, -1.0
    return chosen


def with_dtype(batch: Experience, dtype: torch.dtype) -> Experience:
    """Returns the experience with all numbers that are not whole in another precision."""
    return batch.map(lambda column: column.to(dtype) if column.is_floating_point() else column)


def with_rewards(batch: Experience, change: Callable[[Tensor], Tensor]) -> Experience:
    """Returns other rewards, on decisions only, and the scores that belong to them."""
    reward = change(batch.reward) * batch.mask
    return replace(batch, reward=reward).add({"score": reward.sum(1)})


def experiences() -> list[Case]:
    """Returns both worlds with every awkwardness, for parts that read the record alone."""
    cases = [Case(f"tokens: {layout.name}", build(TOKENS, layout)) for layout in TOKEN_LAYOUTS]
    cases += [Case(f"torques: {layout.name}", build(TORQUES, layout)) for layout in CONTROL_LAYOUTS]
    ragged, episodes = cases[0].batch, cases[len(TOKEN_LAYOUTS)].batch
    is_last = ragged.mask & (ragged.mask.long().flip(1).cumsum(1).flip(1) == 1)
    binary = is_last * (torch.arange(len(ragged)) % 2).unsqueeze(1)
    return [
        *cases,
        Case("tokens: equal rewards of 1", with_rewards(ragged, lambda reward: is_last.double())),
        Case("tokens: equal rewards of 0.1", with_rewards(ragged, lambda reward: 0.1 * is_last.double())),
        Case("tokens: rewards 0 and 1, with ties", with_rewards(ragged, lambda reward: binary.double())),
        Case("torques: negative rewards", with_rewards(episodes, lambda reward: -reward.abs() - 1.0)),
    ]


def extreme(batch: Experience) -> Experience:
    """Returns large but finite: rewards and advantages up to 1e6, values 1e4, log-probabilities of -1e4, ratios of
    exp(+-20).

    One decision in each row is far off the recorded policy; the others are where they were.
    """
    mask = batch.mask
    first = mask & (mask.long().cumsum(1) == 1)
    sign = torch.where(torch.arange(len(mask)) % 2 == 0, 1.0, -1.0).to(batch.reward.dtype).unsqueeze(1)
    deep = torch.full_like(batch.logp, -1e4) * mask
    columns = {
        "advantage": sign * 1e6 * mask,
        "return": sign * 1e4 * mask,
        "value": batch.extra["value"] * 1e4,
        "logp_ref": deep - sign * 20.0 * first,
    }
    return replace(batch, logp=deep - sign * 20.0 * first, reward=batch.reward.sign() * 1e6 * mask).add(columns)
