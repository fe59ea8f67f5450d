"""Claims of traj-weighting: chances of rows by hand, exact and measured claims, mutants.

Axes: B sequences, T decisions.
"""

import math

import numpy as np
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Measured, cartpole, probes, same_gradient, steps
from assay.method import CONTINUOUS, Scene, iql
from assay.methods.traj_weighting import recipe, weights
from assay.parts import Log

MIXED = (Log(95, noise=1.0, reward_scale=0.1), Log(5, noise=0.1, first=95, reward_scale=0.1))
LOGS = (Log(8, noise=1.0), Log(4, noise=0.8, first=8, origin=9))
"""Twelve episodes of unequal lengths."""


def distance_from_chances(temperature: float, fitted: bool) -> float:
    """Returns how far the chances of rows are from those by hand, and the share of the second dataset in 20,000 rows
    beyond three deviations.
    """
    scene, sets = Scene(cartpole()), [log.columns(cartpole()) for log in LOGS]
    names = ("reward", "context.observation", "terminal", "truncated")
    reward, seen, *ends = (np.concatenate([one[name][:, 0] for one in sets]) for name in names)
    lasts = np.flatnonzero(ends[0] | ends[1])
    spans = list(zip([0, *(lasts[:-1] + 1)], lasts + 1, strict=True))
    score = np.array([reward[first:end].sum() for first, end in spans], dtype=np.float64)
    start = np.array([[1.0, *seen[first]] for first, _ in spans], dtype=np.float64)
    score = score - start @ np.linalg.pinv(start) @ score if fitted else score
    chance = np.exp((score - score.min()) / np.ptp(score) / temperature).repeat([end - first for first, end in spans])
    chance = chance / chance.sum()
    ours = recipe(logs=LOGS, temperature=temperature, fitted=fitted).set("source.log.batch", 20_000).source
    state = ours.init(scene)
    upper, second = state["contents"].columns[0]["upper"].numpy(), chance[spans[8][0] :].sum()
    origin = next(ours(scene, state)).source
    assert origin is not None
    gap = np.abs(np.diff(upper / upper[-1], prepend=0.0) - chance).max()
    return probes.worst(float(gap), abs(float((origin == 9).double().mean()) - second) - 0.011)


def foreign_rows() -> float:
    """Returns how many rows differ from iql's where three episodes' first states explain their returns."""
    batches = (probes.drawn(one.source, Scene(cartpole())) for one in (recipe(logs=(Log(3),)), iql(log=Log(3))))
    pairs = ((a.context["observation"], b.context["observation"]) for a, b in zip(*batches, strict=True))
    return sum(float((a != b).sum()) for a, b in pairs)


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    return {**steps.iql(seen, 0.99, 0.7), "actor": steps.cloned_by_gain(seen)}


CLAIMS = Claims(
    claims=(
        Exact("a row's chance is e^(u / 0.1), u the return less its fit on first states",
              lambda: distance_from_chances(0.1, True), at_most=1e-9),
        Exact("by returns alone a row's chance is e^(u / temperature) of its episode's return",
              lambda: distance_from_chances(0.5, False), at_most=1e-9),
        Exact("where first states explain all returns its batches are iql's to the bit", foreign_rows, equals=0.0),
        same_gradient("its gradients are iql's", recipe, losses_by_hand,
                      lambda: probes.transitions(probes.CHOICE_SPEC, num=64), probes.CHOICE_SPEC),
        Measured("it learns more than with uniform draws from data in which one episode in twenty is an expert's",
                 "pointmaze-umaze", recipe(CONTINUOUS, MIXED), recipe(CONTINUOUS, MIXED, math.inf), margin=0.1,
                 seeds=5, steps=100, about=About.HEADLINE),
        Measured("where the distance to the goal decides returns it learns more than weighed by returns alone",
                 "pointmaze-umaze", recipe(CONTINUOUS, MIXED), recipe(CONTINUOUS, MIXED, fitted=False), seeds=5,
                 looks=2, steps=100, about=About.COMPONENT),
    ),
    mutants=(
        Edit("an episode's rows share its weight", weights, ".exp()[episode]",
             ".exp()[episode] / episode.bincount()[episode]"),
        Edit("always fitted", weights, "if fitted", "if True"),
        Edit("the temperature of the default", recipe, "temperature, fitted)", "0.1, fitted)"),
    ),
)
