"""Levels of problems by hand, what a guesser passes, and which prompts are asked."""

from collections.abc import Sequence
from math import comb

from assay.claims import About, Claims, Edit, Exact, Final, Measured, by_hand, probes, same_gradient, sorting
from assay.claims.testbeds.language.ladder import ladder
from assay.method import PLACES, Recipe, Scene
from assay.methods.cog_drift import Promoted, mixed, opened, recipe

FORMATS = Scene(probes.prompts_of("x1", "y1", "x2", "z", "x3", "y2", "x4", problem=["x", "y", "x", "z", "x", "y", "x"]))
"""Starts 0, 2, 4, 6 are the formats of problem x, 1 and 5 those of y, and 3 the only one of z."""
OPTIONS = probes.prompts_of("7 + 5 is (A) 11 (B) 12 (C) 13", "7 + 5 is 1_", "7 + 5 is", problem=[1] * 3)


def asked(ours: Recipe, *shares: Sequence[float]) -> list[int]:
    """Returns the starts that are proposed in two passes after these visits, ascending."""
    _, state = probes.pool_state(ours, FORMATS, *shares)
    starts = probes.chosen(ours, FORMATS, state, 3, calls=2)
    return sorted(starts) if sorted(starts[:3]) == sorted(starts[3:]) else []


def wrong_levels(ours: Recipe) -> float:
    """Returns how many wrong prompts are asked: after groups of x with shares 0.5, 0.51, 0.9, 0.4 and 0.6; of y, whose
    first format was visited twice; of z; and at the start.
    """
    visits: list[list[float]] = [[] for _ in range(7)]
    steps = [([], 0), ([0.50], 0), ([0.51], 2), ([0.9], 4), ([0.4], 4), ([0.6], 6), ([0.0], 6)]
    wrong, own = 0, 0
    for share, after in steps:
        visits[own] = [*visits[own], *share]
        wrong += asked(ours, *visits) != sorted([1, 3, after] * 2)
        own = after
    for twice, after in (([0.9, 0.4], 1), ([0.4, 0.9], 5), ([0.0, 0.0], 1)):
        wrong += asked(ours, [], twice, [], [1.0]) != sorted([0, 3, after] * 2)
    return float(wrong)


def passed(ours: Recipe, chance: float) -> float:
    """Returns the probability that eight guesses, right with this chance, move a problem to its next format."""
    shares = [comb(8, num) * chance**num * (1 - chance) ** (8 - num) for num in range(9)]
    return sum(share for num, share in enumerate(shares) if asked(ours, [num / 8]) == sorted([1, 2, 3] * 2))


def accepted() -> float:
    """Returns how many of a file's wrong answers are right, and of its right ones wrong, in three formats of one
    problem; plus 1 for each task without problems that is accepted.
    """
    task, wrong = OPTIONS, 0
    said = [("B", "A C 12"), ("2", "1 12"), ("12", "11 13 B")]
    items = [(row, *answers) for row, answers in zip(task.items.splits[0], said, strict=True)]  # type: ignore[attr-defined]
    for row, good, bad in items:
        item = type(row)(row.prompt, good, good, row.facts)
        wrong += getattr(task.items.verify(item, good), "value", 0.0) != 1.0
        wrong += sum(getattr(task.items.verify(item, one), "value", 0.0) != 0.0 for one in bad.split())
    return float(wrong + sum(not probes.is_refused(recipe(), one) for one in (sorting(3), probes.prompts_of("a"))))


def foreign_formats() -> float:
    """Returns how many formats the rival asks that are not a problem's last one, after visits of easier ones too."""
    return float(asked(opened(), [0.0], [0.0]) != sorted([6, 5, 3] * 2)) + (asked(opened()) != sorted([6, 5, 3] * 2))


CLAIMS = Claims(
    claims=(
        Exact("a problem climbs after a group above one half, and its last group decides",
              lambda: wrong_levels(recipe()), equals=0.0),
        Exact("the rival asks every problem in its last format", foreign_formats, equals=0.0, of="a variant"),
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("a guesser of four options passes a visit of eight with probability 0.0273",
              lambda: passed(recipe(), 0.25), equals=0.027298, tolerance=1e-5, illustrates=True),
        Exact("right answers are right and others wrong in every format; a task without problems is refused", accepted,
              equals=0.0, of="refusals"),
        Exact("every visit is remembered", lambda: probes.wrong_table(mixed()), equals=0.0),
        Exact("each visit of a prompt has samples of its own", lambda: probes.wrong_visits(recipe(), ladder()),
              equals=0.0),
        Measured("open prompts that the start never solves are solved more often than after a random mix of formats",
                 "ladder", recipe(PLACES), mixed(PLACES), Final("pass_rate"), seeds=5, looks=2, steps=100, margin=0.1,
                 minutes=6.0, about=About.HEADLINE),
        Measured("they are solved more often than by grpo on the open prompts alone", "ladder", recipe(PLACES),
                 opened(PLACES), Final("pass_rate"), seeds=5, looks=2, steps=100, minutes=6.0, about=About.COMPONENT),
    ),
    mutants=(
        Edit("one half is enough", Promoted.level, "<= self.threshold", "< self.threshold"),
        Edit("all visits count", Promoted.level, "[-self.window :]", "[:]"),
        Edit("any format may follow", Promoted.level, "return number", "return 0"),
    ),
)
