"""How well a dataset can be cloned: whether like states have like actions, and what noise the system adds to them.

    c(i)                = { j : |s_i - s_j| <= radius },  states standardised, the own row among them
    action variance     = mean over i of |a_i - mean of a_j over c(i)|^2
    state similarity    = mean over i of |c(i)| / N
    transition entropy  = mean over i of sum_d log(2 pi e (var over c'(i) of (s'_j - s_j)_d + floor)) / 2
    state entropy       = sum_d log(2 pi e (var of s_d + floor)) / 2
    horizon             = decisions of an episode, in the mean

c' are neighbours in state and action together. The radius is fixed before anything is known of a policy: the distance
that a hundredth of all pairs of rows do not exceed. Numbered states are neighbours of equal ones alone, and their
entropies are those of counts; a choice is a vector with a 1. Belkhale, Cui & Sadigh 2023 (arXiv:2306.02437); the
estimate of the transition entropy is our own.

A low action variance and a high transition entropy favour cloning. What misleads: an expert with two ways in one state
has a high variance and may be cloned well; a policy that changes fast within the radius looks noisy; a deterministic
system has the entropy of the floor. Entropies of a density may be negative, and are in the units of the states.

Axes: N rows, D numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError

Numbers = NDArray[np.float64]
SHARE = 0.01
"""Share of all pairs of rows, each with itself included, that are neighbours."""
FEWEST = 200
"""Rows below which pairs of a row with itself are half of the neighbours, or more."""
MOST = 2_000
"""Rows that are compared with each other; of more, as many that are evenly spaced."""
FLOOR = 1e-6
"""Added to variances, so that a system without noise has an entropy."""


@dataclass(frozen=True)
class Imitability:
    """What a dataset tells about cloning it, with the radius and the mean number of neighbours behind it."""

    action_variance: float
    transition_entropy: float
    state_similarity: float
    state_entropy: float
    horizon: float
    radius: float
    neighbours: float


def imitability(states: Any, actions: Any, next_states: Any, ends: Any, radius: float | None = None) -> Imitability:
    """Returns the measures of rows in the order of their episodes; `ends` marks last decisions. `radius` is that of
    both neighbourhoods, in deviations; None finds one for each. Raises AssayError for few rows without a radius.
    """
    seen, done, after = (np.asarray(one) for one in (states, actions, next_states))
    over = np.asarray(ends, bool)
    rows = {"actions": len(done), "next_states": len(after), "ends": len(over)}
    if any(num != len(seen) for num in rows.values()) or not len(seen):
        raise AssayError(f"there are {len(seen)} states, {rows}. Give as many of each, one or more")
    horizon = len(seen) / max(1, int(over.sum()))
    chosen = np.linspace(0, len(seen) - 1, min(len(seen), MOST)).round().astype(np.int64)
    seen, done, after = seen[chosen], done[chosen], after[chosen]
    is_numbered = not np.issubdtype(seen.dtype, np.floating)
    if radius is None and not is_numbered and len(seen) < FEWEST:
        raise AssayError(f"{len(seen)} rows are too few to find a radius. Give radius, or {FEWEST} rows")
    acted, state = as_vectors(done), as_vectors(seen)
    apart = distances(state if is_numbered else standardised(state))
    acts = distances(standardised(acted) if np.issubdtype(done.dtype, np.floating) else acted)
    here, together = (near(one, 0.0 if is_numbered else radius) for one in (apart, apart + acts))
    error = acted - mean_over(here.mask, acted)
    if is_numbered:
        entropy = float(counted_entropy(together.mask, as_vectors(after)).mean())
        of_states = float(counted_entropy(np.ones((1, len(seen)), bool), state)[0])
    else:
        entropy = float(normal_entropy(variance_over(together.mask, as_vectors(after) - state)).mean())
        of_states = float(normal_entropy(state.var(0)))
    return Imitability(
        float(np.square(error).sum(1).mean()), entropy, float(here.mask.mean()), of_states, horizon,
        here.radius, float(here.mask.sum(1).mean()),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- neighbourhoods
@dataclass(frozen=True)
class Neighbours:
    """Which rows are near each other [N, N], and within what distance."""

    mask: NDArray[np.bool_]
    radius: float


def near(squared: Numbers, radius: float | None) -> Neighbours:
    """Returns the neighbours within a radius, or within that of a share of all pairs."""
    if radius is None:
        place = math.ceil(SHARE * squared.size) - 1
        radius = math.sqrt(float(np.partition(squared, place, axis=None)[place]))
    return Neighbours(squared <= radius * radius * (1.0 + 1e-12), radius)


def distances(rows: Numbers) -> Numbers:
    """Returns the squared distance of every two rows, exactly 0 for equal ones."""
    found = np.zeros((len(rows), len(rows)))
    for column in rows.T:
        found += np.square(column[:, None] - column)
    return found


def as_vectors(column: NDArray[Any]) -> Numbers:
    """Returns rows as vectors: numbered ones as a 1 in the place of their number."""
    flat = column.reshape(len(column), -1)
    if np.issubdtype(flat.dtype, np.floating):
        return flat.astype(np.float64)
    return np.concatenate([np.equal(one[:, None], np.unique(flat)).astype(np.float64) for one in flat.T], 1)


def standardised(rows: Numbers) -> Numbers:
    """Returns rows with mean 0 and deviation 1; a constant number is 0."""
    deviation = rows.std(0)
    found: Numbers = (rows - rows.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    return found


# ---------------------------------------------------------------------------------------------------- moments
def mean_over(mask: NDArray[np.bool_], rows: Numbers) -> Numbers:
    """Returns the mean of each row's neighbours, [N, D]."""
    found: Numbers = mask.astype(np.float64) @ rows / mask.sum(1, keepdims=True)
    return found


def variance_over(mask: NDArray[np.bool_], rows: Numbers) -> Numbers:
    """Returns the variance of each row's neighbours, [N, D]."""
    centred = rows - rows.mean(0)
    found: Numbers = np.maximum(mean_over(mask, np.square(centred)) - np.square(mean_over(mask, centred)), 0.0)
    return found


def normal_entropy(variance: Numbers) -> Numbers:
    """Returns the entropy of independent normal numbers with these variances, and the floor, [...]."""
    found: Numbers = 0.5 * np.log(2 * np.pi * np.e * (variance + FLOOR)).sum(-1)
    return found


def counted_entropy(mask: NDArray[np.bool_], ones: Numbers) -> Numbers:
    """Returns the entropy of the shares of each value among neighbours, [N]; `ones` mark the value of each row."""
    share = mean_over(mask, ones)
    found: Numbers = -(share * np.log(np.where(share > 0, share, 1.0))).sum(1)
    return found
