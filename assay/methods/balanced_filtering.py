"""balanced-filtering: grpo on groups of intermediate accuracy alone, sampled until the batch is full.

    kept: groups with low <= p <= high,  p = mean reward of the group,  low = 1 - high = 1/4;   loss = grpo's

Bae et al. 2025. Groups that are nearly always right or wrong teach little: one exact step in a two-armed bandit gains
2 p^2 (1 - p)^2 times the step size, most at p = 1/2. dapo drops only p = 0 and p = 1. Every dropped group was sampled
all the same, so the gain of a step is paid for in tokens.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from assay.method import LANGUAGE, AssayError, Experience, Method, Preset, Recipe, Scene, Select, State, groups, recipes


@dataclass(frozen=True)
class Band(Select):
    """Keeps groups whose mean outcome is between `low` and `high`, both included; at most `max_rounds` are sampled.

    Assumes outcomes from 0 to 1, a group's mean of which is its accuracy. In games, a start at which one player's mean
    is inside keeps the rows of all players. Degenerate: 0 and 1 keep every group; if none is inside in any round, the
    step has no decisions.
    """

    low: float = 0.25
    high: float = 0.75
    max_rounds: int = 8
    reads_shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0:
            raise AssayError(f"{self}: use 0 <= low <= high <= 1, such as 0.25 and 0.75")

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the rows of the groups inside."""
        by_group = groups.row_groups(experience)
        mean = groups.mean(groups.outcome(experience), by_group)
        inside = (mean >= self.low) & (mean <= self.high) & (by_group.share > 0)
        return experience.rows(groups.any_of(inside, groups.linked_groups(experience)))


def recipe(preset: Preset = LANGUAGE, low: float = 0.25, high: float = 0.75) -> Recipe:
    """Returns grpo that samples again until groups of an accuracy between both limits fill the batch."""
    return replace(recipes.grpo(preset), name="balanced-filtering", select=Band(low, high))


METHOD = Method(
    paper="arXiv:2504.03380",
    recipe=recipe,
    presets=(LANGUAGE,),
    family="curriculum",
    base=recipes.grpo,
    departures=(
        "the paper's thresholds were not found: a quarter and three quarters of 8 answers, both included",
        "a step ends after eight rounds with the groups it has; in the paper sampling goes on, in another process",
        "the paper counts steps and training time, in which dropped groups cost little; claims count tokens too",
        "no KL to a reference",
        "not measured: mean score per generated token against dapo; claims count tokens against grpo alone",
    ),
    pilots=(
        "the claim at equal steps was added after the two others had come out undecided and failed",
    ),
)
