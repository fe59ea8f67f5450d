"""Rollouts in a learned model of the task. Axes: N rows of a dataset, n starts, D numbers of an observation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Models, Rollout, Scene, Task
from assay.core.spaces import Box
from assay.parts.rollouts.episodes import Around, Fragments
from assay.parts.sources.logged import Contents, Logged
from assay.rollouts.imagined import LearnedTask

SEEN = "context.observation"


def first_states(columns: dict[str, Tensor]) -> Tensor:
    """Returns the states in which the recorded episodes begin, of rows in the order in which they were recorded."""
    over = (columns["terminal"] | columns["truncated"])[:, 0]
    return columns[SEEN][torch.cat((torch.ones_like(over[:1]), over[:-1])), 0]


class Beginnings:
    """The recorded states [n, D] in which imagined episodes begin, and the `models` as they are."""

    def __init__(self, contents: Contents, task: Task, anywhere: bool, models: Models) -> None:
        self.contents, self.models = contents, models
        shown = [name.removeprefix("context.") for name in contents.columns[0] if name.startswith("context.")]
        spaces = task.spec.observation, task.spec.action
        if shown != ["observation"] or not all(isinstance(space, Box) for space in spaces):
            raise AssayError(
                "a learned model predicts observations that are vectors, after actions that are numbers; task "
                f"'{task.name}' shows {', '.join(shown)} and takes {task.spec.action}. Use a method without a model"
            )
        self.starts = torch.cat([one[SEEN][:, 0] if anywhere else first_states(one) for one in contents.columns])

    def snapshot(self) -> State:
        """Returns the hash of the data."""
        return self.contents.snapshot()

    def restore(self, state: State) -> None:
        """Raises AssayError if the data are not those that the run started with."""
        self.contents.restore(state)


@dataclass(frozen=True)
class Imagine(Around):
    """Gathers with `gather` in a learned model of the task: `dynamics`, as it is now, from recorded states.

    Episodes begin where those of the datasets of `log` begin, or `anywhere` in them, and last the task's horizon, or
    `horizon` decisions, after which they are truncated. Evaluations stay in the task. Degenerate: with a model that is
    the task itself it is `gather`, but for the starts. Source: arXiv:1906.08253. Assumes observations that are vectors,
    and rows in the order in which they were recorded.
    """

    gather: Rollout = Fragments()
    log: Logged = Logged()
    horizon: int = 0
    anywhere: bool = False
    dynamics: str = model_name("dynamics")

    def __post_init__(self) -> None:
        if self.horizon < 0:
            raise AssayError(f"Imagine.horizon is {self.horizon}. Use 0, the task's own, or more")

    def init(self, scene: Scene) -> State:
        """Returns the starts, and the state of `gather` in the learned task."""
        contents = self.log.init(scene)["contents"]
        begun = Beginnings(contents, scene.task, self.anywhere, scene.models)
        return {"begun": begun, "gather": self.gather.init(scene.given(task=self.learned(scene, begun)))}

    def learned(self, scene: Scene, begun: Beginnings) -> LearnedTask:
        """Returns the task of the model."""
        spec = scene.task.spec
        spec = replace(spec, horizon=self.horizon or spec.horizon)
        return LearnedTask(scene.task, lambda: begun.models.model(self.dynamics), begun.starts, spec)

    def __call__(self, scene: Scene, state: State) -> Experience:
        begun: Beginnings = state["begun"]
        begun.models = scene.models  # a simulation that goes on has asked those of an earlier call
        return self.gather(scene.given(task=self.learned(scene, begun)), state["gather"])
