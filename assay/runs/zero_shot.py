"""Scores a trained policy on a reward that it was not trained for: z is inferred from data, nothing is trained.

Axes: M positions of the data, N positions that are rewarded, G numbers of a position, B episodes, T decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import Inferring, RoamingTask
from assay.datasets.recorded import RecordedPlay
from assay.engine.evaluation import default_starts
from assay.parts.sources.relabelled import Relabelled
from assay.runs.plan import plan_of
from assay.runs.run import restored
from assay.runs.user_code.loading import load

Rewarding = Callable[[Tensor], Tensor]
"""Rewards [N] of positions [N, G]."""


@dataclass(frozen=True)
class ZeroShot:
    """The mean reward of a decision in each episode [B], and of a state of the data that z was inferred from."""

    scores: np.ndarray
    in_data: float
    task: str
    method: str
    step: int


def evaluate(folder: Path, reward: str, data: str | None = None, starts: int | None = None) -> ZeroShot:
    """Plays the policy of the reward FILE.py:FUNCTION of a finished run.

    z is inferred from the run's own dataset, or from the file `data`. Episodes are those of held-out starts; where the
    task can be played without end, goals do not end them. AssayError if the method infers nothing from rewards.
    """
    plan = plan_of(folder)
    function = reward_function(reward)
    loop, step = restored(plan, folder)
    policy, source = loop.policy, plan.recipe.source
    if not isinstance(policy, Inferring) or not isinstance(source, Relabelled):
        what = f"method '{plan.method}' was trained for one reward and infers no policy from another"
        raise AssayError(f"{what}. Use --reward with zero-shot-rl")
    own = loop.states["sources"][0]["contents"].columns[0]
    places: Tensor = (own if data is None else RecordedPlay(data).columns(plan.task))["achieved"]
    paid = function(places)
    if not bool(paid.any()):
        raise AssayError(f"{reward} is 0 at all {len(places)} states of the data. Use a reward that the data contain")
    roaming = plan.task.roaming if isinstance(plan.task, RoamingTask) else None
    task = roaming or plan.task
    with torch.no_grad():
        actor = policy.solving(policy.infer(places, paid))
        ordinals = np.arange(default_starts(plan.task) if starts is None else starts, dtype=np.int64)
        played = task.play(actor, ordinals, np.zeros_like(ordinals), Draw(0, (7,)), split=1, greedy=True)
    reached, decided = played.context["achieved"][:, 1:], played.mask[:, :-1]
    gained = function(reached.flatten(0, 1)).view(decided.shape)
    scores = (gained * decided).sum(1) / decided.sum(1).clamp(min=1)
    return ZeroShot(scores.double().numpy(), float(paid.mean()), plan.task.name, plan.recipe.name, step)


def reward_function(address: str) -> Rewarding:
    """Returns the function of FILE.py:FUNCTION, checked at every call: one finite number for each position [N, G], a
    numpy array.
    """
    path, _, name = address.rpartition(":")
    if not path.endswith(".py") or not Path(path).is_file():
        raise AssayError(f"--reward is '{address}'. Use FILE.py:FUNCTION, with a file that exists")
    function = getattr(load(str(Path(path).resolve())), name, None)
    if not callable(function):
        raise AssayError(f"{path} has no function '{name}'. Define it: def {name}(positions): ...")

    def rewards(places: Tensor) -> Tensor:
        found = called(address, lambda: np.asarray(function(places.numpy()), np.float64))
        if found.shape != (len(places),) or not np.isfinite(found).all():
            what = f"shape {found.shape}" if found.shape != (len(places),) else "numbers that are not finite"
            raise AssayError(f"{address} returned {what} for {len(places)} positions. Return a finite number for each")
        return torch.from_numpy(found).float()

    return rewards


def called(name: str, function: Callable[[], Any]) -> Any:
    """Returns the result of a user's code; AssayError with its exception if it raises."""
    try:
        return function()
    except Exception as error:
        raise AssayError(f"{name} raised {type(error).__name__}: {error}. Fix the reward function") from error
