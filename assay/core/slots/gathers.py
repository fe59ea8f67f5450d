"""Slots of parts that gather: rollouts, exploration, curricula, sources, and tasks of phases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from assay.core.record import Experience, State
from assay.core.slots.policies import Wrapper
from assay.core.slots.scene import Scene
from assay.core.slots.tasks import Task


class Rollout(Protocol):
    """How experience is gathered.

    Shape: gather, `(scene, state) -> Experience`. The scene has the acting policy (`actor`), the ordinals that the
    curriculum chose (`starts`), and `reward`, which rewards rows now: a rollout that looks at rewards while it gathers
    returns rows that all went through it. Random numbers belong to (start, sample, time).
    Laws: recorded log-probabilities equal recomputed ones under the same weights; the seed determines the batch.
    """

    slot: ClassVar[str] = "rollout"

    @property
    def num_starts(self) -> int:
        """How many starts it asks the curriculum for (0: it starts by itself)."""

    @property
    def writes(self) -> tuple[str, ...]:
        """Columns of `extra` that it writes besides the task's own."""
        return ()

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run; refuses a task it cannot gather from."""
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns fresh experience from `scene.starts`."""


@runtime_checkable
class Framing(Rollout, Protocol):
    """A rollout that shows the actor something else than the task does: who learned so is used in its frame.

    Law: used in its frame, a policy decides as when it was gathered.
    """

    @property
    def frame(self) -> Wrapper | None:
        """What is around the actor once training is over, inside the recipe's wrapper; none where nothing is."""


def frame_of(rollout: Rollout | None) -> Wrapper | None:
    """A rollout's frame; none where it shows what the task does."""
    return rollout.frame if isinstance(rollout, Framing) else None


class Explore(Protocol):
    """An actor around the actor while gathering: epsilon-greedy, action noise. The recorded logp is the mixture's."""

    slot: ClassVar[str] = "explore"

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run; saved with the rollout's."""
        return {}

    def wrap(self, actor: Any, scene: Scene, state: State) -> Any:
        """Returns the exploring actor."""


class TaskChange(Protocol):
    """Another task for a phase of a program: harder, shifted, or the worst for the policy so far."""

    slot: ClassVar[str] = "task_change"

    def __call__(self, scene: Scene) -> Task | None:
        """Returns the phase's task, from `scene.task`; `scene.actor` is the policy that the phase before ended with
        (None in the first). None leaves the phase out, and the policy stays.
        """


class Curriculum(Protocol):
    """Chooses what to try next.

    Shape: gather, `(scene, state) -> ordinals` of `scene.num_starts` starts.
    Laws: proposes only starts of the task; resuming reproduces the order.
    """

    slot: ClassVar[str] = "curriculum"

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run."""
        return {}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the ordinals of the next starts."""

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Learns from how the starts went: rewards, and the credit they got."""


class Source(Protocol):
    """Where training batches come from: fresh data, replay, an offline dataset.

    Shape: gather, `(scene, state) -> batches`; `scene.fresh` is what was just gathered, None without a rollout.
    Law: resuming reproduces the order.
    """

    slot: ClassVar[str] = "source"

    @property
    def writes(self) -> tuple[str, ...]:
        """Columns of `extra` that its batches have besides those of the fresh experience."""
        return ()

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run (replay memory, a cursor)."""
        return {}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Takes in the fresh experience and yields this step's batches."""
