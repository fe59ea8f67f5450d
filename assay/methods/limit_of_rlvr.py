"""limit-of-rlvr: grpo, measured by pass@k against its own start: what is gained at k = 1 is lost at large k.

    pass@k = mean over prompts of 1 - C(n - c, k) / C(n, k),   c right of n samples, n the same for both
    crossover = the smallest k from which the start stays above the trained policy

Yue et al. 2025. Reinforcement raises what the start already samples; where prompts share parameters it pays with
answers that the start found rarely, so that the trained policy solves more often, but fewer prompts at all.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes
from assay.statistics import passk


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


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo under another name: what is new is the measurement."""
    return replace(recipes.grpo(preset), name="limit-of-rlvr")


METHOD = Method(
    paper="arXiv:2504.13837",
    recipe=recipe,
    default_task="many-ways",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "a measurement of grpo: the recipe is grpo's, `boundary` samples start and trained policy",
        "no distilled policy as a third curve, and no perplexity of answers under the start",
    ),
    pilots=(
        "one design was tried, rank 4: docs/testbeds.md had shown both ends of the curve for grpo",
    ),
)
