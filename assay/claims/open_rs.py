"""open-rs's reward on given completions."""

from dataclasses import replace
from math import cos, pi

from assay.claims import About, Average, Claims, Exact, Expect, Measured, by_hand, probes, same_gradient
from assay.method import Recipe, Verifier
from assay.methods.open_rs import recipe
from assay.parts import Matches, Weighted, WeightedSum

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
    rows = probes.answered(said, 8000, cut=[len(ROWS)], faults=[len(ROWS) + 1])
    expected = [1.0 + 2.0 * long, 0.0]
    for words, num in reversed(ROWS):
        first, last = (1.0, 0.5) if words.endswith("7") else (short, long)
        scaled = last + (first - last) * (1.0 + cos(pi * num / 3584)) / 2.0
        expected.insert(0, float(words.count(TAG) == 1) + 2.0 * scaled)
    return probes.distance(probes.rewarded(ours, *rows), expected)


SHORT = recipe(max_length=11, tag=";").set("actor.width", 64)
"""For the testbed: its mark and its limit, and a small model."""


ACCURACY = replace(SHORT, name="open-rs-accuracy", rewards=(
    WeightedSum({"format": Weighted(Matches(";")), "verifier": Weighted(Verifier(), 2.0)}),
))  # fmt: skip


TIGHT, BUDGET = "thinking-4-to-6", {"seeds": 5, "minutes": 3.0, "steps": 60, "warmup": 80}


CLAIMS = Claims(
    claims=(
        Exact("rows get the formula: right, wrong, without the tag, with two, longer than the limit, cut, fault",
              lambda: distance_from_formula(recipe()), equals=0.0),
        same_gradient("for given rewards its gradient is grpo's", lambda: replace(recipe(), rewards=()),
                      by_hand.grpo_loss),
        Measured("fewer answers are cut than with accuracy", TIGHT, SHORT, ACCURACY, Average("cut", 0.5),
                 Expect.BELOW, about=About.MECHANISM, **BUDGET),  # type: ignore[arg-type]
        Measured("answers are shorter than with accuracy", TIGHT, SHORT, ACCURACY, Average("length", 0.5), Expect.BELOW,
                 about=About.MECHANISM, **BUDGET),  # type: ignore[arg-type]
        Measured("the held-out score is at most 0.05 lower than with accuracy", TIGHT, SHORT, ACCURACY, margin=-0.05,
                 about=About.HEADLINE, **BUDGET),  # type: ignore[arg-type]
    ),
)
