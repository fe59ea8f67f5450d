"""Exact claims that several methods state in the same way: what an update moves and when, the base that a recipe is,
the dataset that its batches come from, and the task that it refuses.

A recipe is made when a claim runs, so that a mutant of its functions is seen. Weights have the shapes of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from assay.claims.claim import Exact
from assay.claims.probes.formulas import BOX_SPEC, Data, transitions
from assay.claims.probes.offline import foreign_rows
from assay.claims.probes.refusals import is_refused
from assay.claims.probes.schedules import history_gap, schedule_gap
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import Task
from assay.core.spaces import Spec
from assay.parts.sources.scales import RewardScale
from assay.tasks.control.pendulum import pendulum

SAC: Mapping[str, int] = {"actor": 1, "q": 1, "temperature": 1}
SOFT: Mapping[str, tuple[str, float, int]] = {"q_target": ("q", 0.005, 1)}
COPIED: Mapping[str, tuple[str, float, int]] = {"target": ("actor", 1.0, 128)}
"""dqn's: a copy made every 128 updates, seen within 130."""
DELAYED: Mapping[str, tuple[str, float, int]] = {"q_target": ("q", 0.005, 2), "actor_target": ("actor", 0.005, 2)}
"""td3's, which moves its actor as rarely."""


def follows_schedule(
    name: str,
    recipe: Callable[[], Recipe],
    every: Mapping[str, int] = SAC,
    targets: Mapping[str, tuple[str, float, int]] = SOFT,
    *,
    data: Data | None = None,
    spec: Spec = BOX_SPEC,
    num: int = 6,
    at_most: float = 1e-7,
    of: str = "",
) -> Exact:
    """Returns the claim that in `num` updates models move when `every` says, and target networks as `targets` say; see
    `schedule_gap`. Unless given these are sac's, on transitions.
    """

    def gap() -> float:
        return schedule_gap(recipe(), made(data, spec), spec, every, targets, num)

    return Exact(name, gap, at_most=at_most, of=of)


def same_weights(
    name: str,
    recipe: Callable[[], Recipe],
    base: Callable[[], Recipe],
    *,
    data: Data | None = None,
    spec: Spec = BOX_SPEC,
    num: int = 5,
    at_most: float = 0.0,
    of: str = "",
    illustrates: bool = False,
) -> Exact:
    """Returns the claim that `num` updates of a recipe leave every weight of its base as they leave the base's own, to
    the bit unless `at_most` is given. Data are transitions unless given.
    """

    def gap() -> float:
        return history_gap(recipe(), base(), made(data, spec), spec, num)

    return Exact(name, gap, at_most=at_most, of=of, illustrates=illustrates)


def reads_dataset(
    recipe: Callable[[], Recipe],
    task: Callable[[], Task] = pendulum,
    scale: RewardScale | None = None,
    name: str = "a step's batches are rows of the dataset",
    of: str = "sources",
) -> Exact:
    """Returns the claim that a step's batches hold nothing but transitions of the recipe's datasets; `foreign_rows`."""
    return Exact(name, lambda: foreign_rows(recipe(), task(), scale), at_most=0.0, of=of)


def refuses(
    name: str,
    recipe: Callable[[], Recipe],
    task: Callable[[], Task],
    accepts: Callable[[], Task] | None = None,
    of: str = "refusals",
) -> Exact:
    """Returns the claim that the recipe's parts refuse a task before anything is computed, and not that which they
    `accepts`; see `is_refused`.
    """

    def is_so() -> bool:
        return is_refused(recipe(), task()) and (accepts is None or not is_refused(recipe(), accepts()))

    return Exact(name, is_so, equals=1.0, of=of)


def made(data: Data | None, spec: Spec) -> Experience:
    """Returns the experience, or transitions in the numbers of a run."""
    return transitions(spec, dtype=torch.float32) if data is None else data()
