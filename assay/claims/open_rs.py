"""open-rs's reward on given completions."""

from dataclasses import replace
from math import cos, pi

from assay.claims import About, Average, Claims, Exact, Expect, Measured, by_hand, probes, refuses, same_gradient
from assay.claims import sorting
from assay.method import AnswerFormat, Experience, Recipe, Verifier, marked_once
from assay.methods.open_rs import recipe
from assay.parts import Matches, Weighted, WeightedSum
from assay.tasks.language.thinking import thinking

TAG = "\n</think>\n"


ROWS = (
    ("7", 2), (f"{TAG}7", 12), (f"{'.' * 1780}{TAG}7", 1792), (f"{'.' * 3572}{TAG}7", 3584),
    (f"{'.' * 7156}{TAG}7", 3584),
    ("8", 2), (f"{TAG}8", 12), (f"{'.' * 1780}{TAG}8", 1792), ("8" * 7167, 3584), ("<think>7", 9), (f"{TAG}{TAG}7", 22),
)
"""Completions, and their numbers of tokens with the end token, at most 3584."""


def distance_from_formula(ours: Recipe, short: float = 0.0, long: float = -0.5) -> float:
    """`short` and `long` are what wrong answers get. Besides the rows above one that is right but cut, and one that
    left training.
    """
    said = [*(words for words, _ in ROWS), f"{TAG}7", "7"]
    task, rows = probes.answered(said, 3584, cut=[len(ROWS)], faults=[len(ROWS) + 1])
    task = replace(task, answer_format=AnswerFormat(TAG))
    expected = [1.0 + 2.0 * long, 0.0]
    for words, num in reversed(ROWS):
        first, last = (1.0, 0.5) if words.endswith("7") else (short, long)
        scaled = last + (first - last) * (1.0 + cos(pi * num / 3584)) / 2.0
        expected.insert(0, float(words.count(TAG) == 1) + 2.0 * scaled)
    return probes.distance(probes.rewarded(ours, task, rows), expected)


def default_gap(ours: Recipe) -> float:
    """Returns how far right answers of 6, 9 and 11 tokens to `thinking-4-to-6`, and one without its mark, are from
    their pay.
    """
    task = thinking(6, 4)
    answer = task.items.item(0, 0).answer
    right = [1.0 + 2.0 * (0.5 + 0.25 * (1.0 + cos(pi * num / 11))) for num in (6, 9, 11)]
    said = [f"{'.' * steps};{answer}" for steps in (1, 4, 6)]
    unmarked = 2.0 * (-0.5 + 0.25 * (1.0 + cos(pi * 4 / 11)))
    rows = [*((words, 0, paid) for words, paid in zip(said, right, strict=True)), (answer, 0, unmarked)]
    return probes.table_gap(ours, task, rows)


def worth_of_limit(ours: Recipe, prob: float) -> float:
    """Returns by how much answers at a limit of 64 tokens that are right with a probability are paid above a wrong
    one of no length, format aside.
    """
    task, rows = probes.answered(["." * 62 + "7", "." * 62 + "8"], 64)
    right, wrong = probes.rewarded(ours, replace(task, answer_format=AnswerFormat(TAG)), rows).tolist()
    return prob * right + (1.0 - prob) * wrong


def mostly_negative() -> Experience:
    """Returns rewards lowered by 0.5: the mean of some groups is further below 0 than their best is above."""
    data = probes.ANY_OUTCOME[0]()
    return replace(data, reward=data.reward - 0.5)


SHORT = recipe().set("actor.width", 64)
"""A small model; mark and limit are the testbed's."""


ACCURACY = replace(SHORT, name="open-rs-accuracy", rewards=(
    WeightedSum({"format": Weighted(Matches(marked_once)), "verifier": Weighted(Verifier(), 2.0)}),
))  # fmt: skip


TIGHT, BUDGET = "thinking-4-to-6", {"seeds": 5, "minutes": 3.0, "steps": 60}


CLAIMS = Claims(
    claims=(
        Exact("rows get the formula: right, wrong, without the tag, with two, longer than the limit, cut, fault",
              lambda: distance_from_formula(recipe()), equals=0.0),
        same_gradient("for given rewards its gradient is grpo's",
                      lambda: replace(recipe(), rewards=()), by_hand.grpo_loss, (*probes.ANY_OUTCOME, mostly_negative)),
        Exact("on its own default task an answer of 6, 9 and 11 tokens is paid by the mark and the task's limit of 11",
              lambda: default_gap(recipe()), at_most=1e-6, of="formats"),
        Exact("a long answer is worth more than a short wrong one only if it is right in over half of all cases",
              lambda: abs(worth_of_limit(recipe(), 0.5)) + max(0.0, worth_of_limit(recipe(), 0.4)), at_most=1e-6,
              of="theory"),
        refuses("a task that does not say what ends the reasoning is refused", recipe, lambda: sorting(3)),
        Measured("fewer answers are cut than with accuracy", TIGHT, SHORT, ACCURACY, Average("cut", 0.5),
                 Expect.BELOW, about=About.MECHANISM, **BUDGET),  # type: ignore[arg-type]
        Measured("answers are shorter than with accuracy", TIGHT, SHORT, ACCURACY, Average("length", 0.5), Expect.BELOW,
                 about=About.MECHANISM, **BUDGET),  # type: ignore[arg-type]
        Measured("the held-out score is at most 0.05 lower than with accuracy", TIGHT, SHORT, ACCURACY, margin=-0.05,
                 about=About.HEADLINE, **BUDGET),  # type: ignore[arg-type]
    ),
)
