"""Testbeds of two-digit answers, whose start pass rate is set exactly: stale, levels, many-ways.

The uniform start gives each of the 100 answers probability 1/100, so m right ones are solved m times in 100.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.claims.testbeds.language.enumerable import CHOICES, Enumerable, EnumerableTask, draw_keys, enumerable_task
from assay.core.errors import AssayError

LENGTH = 2
ANSWERS = CHOICES**LENGTH


@dataclass(frozen=True)
class Sparse(Enumerable):
    """`answers` of the 100 answers are right, others for every prompt: start pass rate answers / 100."""

    prompts: int = 8
    answers: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.answers <= ANSWERS:
            raise AssayError(f"{self}: answers must be 1 to {ANSWERS}")

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        return tuple((answer,) for answer in draw_keys(f"sparse {prompt}", self.answers, LENGTH))


def stale(prompts: int = 8, answers: int = 4) -> EnumerableTask:
    """Returns the task for rollouts by an older policy: `--set rollout.delay=40` counts updates."""
    return enumerable_task(f"stale-{prompts}x{answers}", Sparse(prompts, answers), LENGTH, "stale")


LEVELS_OF_DIFFICULTY = (("1-even", 50), ("2-hard", 10), ("3-rare", 1))
"""Right answers of 100 at each level besides the near-uniform one."""


@dataclass(frozen=True)
class Graded(Enumerable):
    """A share `easy` of the prompts has `solved` right answers of 100, so that nearly all of a group is right; the
    others have 50, 10 and 1 in turn.
    """

    prompts: int = 32
    easy: float = 0.25
    solved: int = 94

    def __post_init__(self) -> None:
        if not 0.0 <= self.easy <= 1.0 or not 1 <= self.solved <= ANSWERS:
            raise AssayError(f"{self}: easy must be 0 to 1 and solved 1 to {ANSWERS}")

    def level(self, prompt: int) -> tuple[str, int]:
        """Returns the level of a prompt, and its right answers of 100."""
        num_easy = round(self.easy * self.prompts)
        if prompt < num_easy:
            return "0-easy", self.solved
        return LEVELS_OF_DIFFICULTY[(prompt - num_easy) % len(LEVELS_OF_DIFFICULTY)]

    def bucket(self, prompt: int) -> str:
        return self.level(prompt)[0]

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        return tuple((answer,) for answer in draw_keys(f"graded {prompt}", self.level(prompt)[1], LENGTH))


def levels(prompts: int = 32, easy: float = 0.25, solved: int = 94) -> EnumerableTask:
    """Returns the task of several levels of difficulty; `easy` is the share of near-uniform groups."""
    return enumerable_task(f"levels-{easy:g}-{solved}", Graded(prompts, easy, solved), LENGTH, "bigrams")


@dataclass(frozen=True)
class ManyWays(Enumerable):
    """`right` of the 100 answers are right, in `classes` classes, class i with 1 / skew^i of the first one's answers; a
    share `rare` of the prompts has one right answer.

    skew 1 makes all classes equal. The start's probability of a class is its number of answers / 100.
    """

    prompts: int = 16
    classes: int = 4
    right: int = 16
    skew: float = 2.0
    rare: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.classes <= self.right <= ANSWERS or self.skew < 1.0 or not 0.0 <= self.rare <= 1.0:
            raise AssayError(f"{self}: use 1 <= classes <= right <= {ANSWERS}, skew 1 or more and rare 0 to 1")

    @property
    def sizes(self) -> list[int]:
        """Returns the number of answers of each class: at least 1."""
        weights = [self.skew**-i for i in range(self.classes)]
        return [max(1, round(self.right * weight / sum(weights))) for weight in weights]

    def bucket(self, prompt: int) -> str:
        """Returns `rare` or `often`."""
        return "rare" if prompt < round(self.rare * self.prompts) else "often"

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        sizes = [1] if prompt < round(self.rare * self.prompts) else self.sizes
        free = draw_keys(f"ways {prompt}", sum(sizes), LENGTH)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return tuple(tuple(free[end - size : end]) for size, end in zip(sizes, ends, strict=True))


def many_ways(
    prompts: int = 16, classes: int = 4, right: int = 16, skew: float = 2.0, rare: float = 0.5
) -> EnumerableTask:
    """Returns the task of several right answers; `skew` is how unequal they are at the start."""
    items = ManyWays(prompts, classes, right, skew, rare)
    return enumerable_task(f"many-ways-{classes}-{skew:g}-{rare:g}", items, LENGTH, "bigrams")
