"""Slots of parts that gather experience: rollouts, exploration, curricula, sources, and tasks of phases.

A rollout, an exploration, a curriculum or a source may read models before the update, as rewards may: those in
`models`, by default all that its settings and parts name (`model_name`), through `scene.models`. It gets them without
gradient; a plan without one of them is an error, and so is a run in which it changed one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from assay.core.record import Experience, State
from assay.core.settings import models_read
from assay.core.slots.policies import Wrapper
from assay.core.slots.scene import Scene
from assay.core.slots.tasks import Task


class Rollout(Protocol):
    """Gathers experience.

    Shape: gather, `(scene, state) -> Experience`. The scene has the acting policy (`actor`), the ordinals that the
    curriculum chose (`starts`), and `reward`, which computes rewards at once: a rollout that uses rewards while it
    gathers must pass all rows it returns through it. Random numbers belong to (start, sample, time).
    Laws: recorded log-probabilities equal recomputed ones under the same weights; the seed determines the batch; a
    batch that may be cut `by_start` has the same rows if it is.
    """

    slot: ClassVar[str] = "rollout"

    @property
    def num_starts(self) -> int:
        """Number of starts requested from the curriculum (0: the rollout chooses its own)."""

    @property
    def models(self) -> tuple[str, ...]:
        """Models it reads through `scene.models`."""
        return tuple(models_read(self))

    @property
    def writes(self) -> Collection[str]:
        """Columns of `extra` that it writes besides the task's own, with axes and meaning (`core.columns`)."""
        return ()

    @property
    def has_logp(self) -> bool:
        """Whether the recorded log-probability of every decision is known; if not, nothing may form a ratio with it."""
        return True

    @property
    def by_start(self) -> bool:
        """Whether the starts may be gathered in several calls, with the rows of one call; then it has no state."""
        return False

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run; raises AssayError for a task it cannot gather from."""
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns fresh experience from `scene.starts`."""


@runtime_checkable
class Framing(Rollout, Protocol):
    """A rollout that changes the actor's input. The trained policy is evaluated with the same change (`frame`).

    Law: inside its frame, a policy decides as it did while gathering.
    """

    @property
    def frame(self) -> Wrapper | None:
        """The wrapper around the trained actor, inside the recipe's own wrapper; None if the input is unchanged."""


def frame_of(rollout: Rollout | None) -> Wrapper | None:
    """Returns the rollout's frame; None if it shows the actor the task's own contexts."""
    return rollout.frame if isinstance(rollout, Framing) else None


class Explore(Protocol):
    """Wraps the actor while gathering: epsilon-greedy, action noise. The recorded logp is that of the mixture."""

    slot: ClassVar[str] = "explore"

    @property
    def models(self) -> tuple[str, ...]:
        """Models it reads through `scene.models`."""
        return tuple(models_read(self))

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run; it is saved with the rollout's state."""
        return {}

    def wrap(self, actor: Any, scene: Scene, state: State) -> Any:
        """Returns the exploring actor."""


class TaskChange(Protocol):
    """Changes the task for a phase of a program: harder, shifted, or the worst case for the current policy."""

    slot: ClassVar[str] = "task_change"

    def __call__(self, scene: Scene) -> Task | None:
        """Returns the phase's task, made from `scene.task`. `scene.actor` is the final policy of the previous phase
        (None in the first). If it returns None, the phase is skipped and the policy is unchanged.
        """


class Curriculum(Protocol):
    """Chooses the next starts.

    Shape: gather, `(scene, state) -> ordinals` of `scene.num_starts` starts.
    Laws: proposes only starts of the task; resuming reproduces the order.
    """

    slot: ClassVar[str] = "curriculum"

    @property
    def models(self) -> tuple[str, ...]:
        """Models it reads through `scene.models`."""
        return tuple(models_read(self))

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run."""
        return {}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the ordinals of the next starts."""

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Updates its state from the results of the starts: their rewards and credit."""


class Source(Protocol):
    """Provides training batches: fresh data, replay, an offline dataset.

    Shape: gather, `(scene, state) -> batches`; `scene.fresh` is the experience just gathered, None without a rollout.
    Law: resuming reproduces the order.
    """

    slot: ClassVar[str] = "source"

    @property
    def models(self) -> tuple[str, ...]:
        """Models it reads through `scene.models`."""
        return tuple(models_read(self))

    @property
    def writes(self) -> Collection[str]:
        """Columns of `extra` that its batches have in addition to those of the fresh experience (`core.columns`)."""
        return ()

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run (replay memory, a cursor)."""
        return {}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Takes in the fresh experience and yields this step's batches."""
