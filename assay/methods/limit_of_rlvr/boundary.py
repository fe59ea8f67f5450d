"""What a start and the policy trained from it solve at equal numbers of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.claims.policies import sampled
from assay.core.recipe import Recipe
from assay.core.slots import Task
from assay.engine.loop import Loop
from assay.evidence import passk


@dataclass(frozen=True)
class Boundary:
    """Right answers of each prompt among `samples` of the start and of the trained policy."""

    samples: int
    start: tuple[int, ...]
    trained: tuple[int, ...]
    not_a_part: ClassVar[str] = "counts that were measured"

    def pass_at(self, k: int) -> tuple[float, float]:
        """Returns the mean pass@k of start and trained policy."""
        start, trained = (float(passk.pass_at_k(self.samples, own, k).mean()) for own in (self.start, self.trained))
        return start, trained

    @property
    def crossover(self) -> int | None:
        """The k from which the start stays ahead, or None."""
        return passk.crossover(self.start, self.trained, self.samples).k

    def only_start(self) -> tuple[int, ...]:
        """Returns the places of the prompts that the start solves and the trained policy never does."""
        return passk.coverage(self.start, self.trained).only_first

    @property
    def moved(self) -> float:
        """The largest difference of two counts."""
        return float(max(abs(one - other) for one, other in zip(self.start, self.trained, strict=True)))


def boundary(recipe: Recipe, task: Task, seed: int, *, steps: int, prompts: int, samples: int) -> Boundary:
    """Returns the boundary of a run of `steps` steps on held-out prompts; both policies draw with equal seeds."""
    loop = Loop(recipe, task, seed=seed, num_steps=steps)
    before = sampled(loop.policy, task, prompts, samples)[0].sum(1)
    for _ in range(steps):
        loop.step()
    after = sampled(loop.policy, task, prompts, samples)[0].sum(1)
    return Boundary(samples, *(tuple(int(own) for own in counts) for counts in (before, after)))
