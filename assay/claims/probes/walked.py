"""Gathered steps of a recipe at a small size: every batch with the weights before and after its update.

Axes: B rows, T columns; weights have the shapes of parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from assay.claims.stamps import reproducible
from assay.core.recipe import Recipe
from assay.core.record import Experience, State
from assay.core.settings import settings
from assay.core.slots import Reward, Scene, Source, Task
from assay.core.spaces import Vocabulary
from assay.datasets.recorded import with_statistics
from assay.engine.engine import Engine
from assay.engine.loop import Loop

SMALL = {
    "num_starts": 2, "num_envs": 4, "slots": 8, "probes": 1, "warmup": 8, "updates": 4, "batch": 16, "epochs": 1,
    "episodes": 5,
}  # fmt: skip
"""The most of each size in a recipe that is run here, by the last word of its path. Sizes of groups are as shipped."""
STEPS = 12
"""Gathered steps after which every trained model must have moved."""


@dataclass(frozen=True)
class Trained:
    """One batch: its source, the number of its update, its rows, and all weights before and after it."""

    source: Source
    update: int
    batch: Experience
    before: dict[str, Tensor]
    after: dict[str, Tensor]

    def moved(self, name: str) -> bool:
        """Returns whether the update changed a model."""
        old, new = self.before[name], self.after[name]
        return old.shape != new.shape or not torch.equal(old, new)


@dataclass(frozen=True)
class Walked:
    """One gathered step: the experience that was trained on, None without a rollout, the batches, and why guards would
    stop the run.
    """

    fresh: Experience | None
    batches: list[Trained]
    stops: list[str]


@dataclass(frozen=True)
class Watched(Source):
    """Passes on the batches of a source, and keeps each with the weights before and after its update."""

    source: Source
    seen: list[Trained] = field(default_factory=list, compare=False)

    @property
    def writes(self) -> Any:
        return self.source.writes

    def init(self, scene: Scene) -> State:
        return self.source.init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        engine = cast(Engine, scene.models)
        for batch in self.source(scene, state):
            update, before = engine.updates, weights_of(engine)
            yield batch
            self.seen.append(Trained(self.source, update, batch, before, weights_of(engine)))


@dataclass(frozen=True)
class OddPaid(Reward):
    """Adds 1 where an answer ends whose tokens sum to an odd number: an untrained language model earns nothing, and
    where all rewards are equal there is nothing to learn. Control tasks keep their rewards.
    """

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        if not isinstance(scene.task.spec.action, Vocabulary):
            return experience
        odd_B1 = (experience.action * experience.mask).sum(1, keepdim=True) % 2
        ends_BT = (experience.terminal | experience.truncated) & experience.mask
        return replace(experience, reward=experience.reward + odd_B1 * ends_BT)


def weights_of(engine: Engine) -> dict[str, Tensor]:
    """Returns a copy of all weights by model, with what a growing model has grown."""
    found = {}
    for name, flat in engine.flats.items():
        grown = [torch.as_tensor(one).flatten() for module in flat.grown.values() for one in module.growth().values()]
        found[name] = torch.cat([piece.detach().flatten().double() for piece in (*flat.pieces, *grown)])
    return found


def nudge(engine: Engine, names: Iterable[str]) -> None:
    """Moves models at random by a little: a critic that begins at 0 does not move where its targets are 0. What is 0
    rises: it may be a variance.
    """
    for place, name in enumerate(sorted(names)):
        values = engine.flats[name].values
        noise = 0.01 * torch.randn(values.shape, generator=torch.Generator().manual_seed(place))
        values.add_(torch.where(values == 0, noise.abs(), noise))


def shrunk(recipe: Recipe) -> Recipe:
    """Returns the recipe with the sizes of `SMALL`, without its phases."""
    recipe = replace(recipe, before=())
    for path, value in settings(recipe).items():
        most = SMALL.get(path[-1])
        if most is not None and isinstance(value, int) and value > most:
            recipe = recipe.set(".".join(path), most)
    return recipe


def gathered_steps(recipe: Recipe, task: Task) -> list[Walked]:
    """Runs gathered steps until all trained models have moved and every stage was due twice, `STEPS` at most."""
    seen, recipe = list[Trained](), with_statistics(recipe, task, 0)
    stages = tuple(replace(one, source=Watched(one.source or recipe.source, seen)) for one in recipe.stages)
    rewards = (*recipe.rewards, OddPaid())
    watched = replace(recipe, stages=stages, source=Watched(recipe.source, seen), rewards=rewards)
    trains = {name for stage in stages for name in stage.trains}
    due = max((2 * stage.every for stage in stages), default=0)
    found, begin = list[Walked](), 0
    with reproducible():
        loop = Loop(watched, task, seed=0, num_steps=STEPS)
        nudge(loop.engine, recipe.critics)
        while len(found) < STEPS:
            step = loop.step()
            stops = [f"{alarm.guard}: {alarm.message}" for alarm in step.alarms if alarm.stop]
            found.append(Walked(step.fresh, seen[begin:], stops))
            begin = len(seen)
            if loop.engine.updates > due and all(any(one.moved(name) for one in seen) for name in trains):
                break
    return found
