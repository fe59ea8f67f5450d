"""open-rs: grpo with accuracy scaled by a cosine of the length, plus a format reward.

    reward = 1 * format + 2 * (long + (short - long) * (1 + cos(pi * n / limit)) / 2)
    (short, long) = (1, 0.5) if right, (0, -0.5) if wrong or cut;   n = number of tokens, limit = most of an answer

Dang & Ngo 2025. Among right answers the short one gains, so that small models stop before they are cut. The order of
wrong answers is a choice: the authors' recipe makes a long wrong answer the worst, their function's defaults (-1, -0.5)
the best of the wrong ones. Format is the task's mark, the end of the reasoning, written once.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, marked_once, recipes
from assay.parts import ByLength, Matches, Weighted, WeightedSum


def recipe(preset: Preset = LANGUAGE, wrong: tuple[float, float] = (0.0, -0.5)) -> Recipe:
    """Returns grpo paid for its format and by a cosine of the length; `wrong` are the values of wrong answers."""
    components = {"format": Weighted(Matches(marked_once)), "cosine": Weighted(ByLength(wrong=wrong), 2.0)}
    return replace(recipes.grpo(preset), name="open-rs", rewards=(WeightedSum(components),))


METHOD = Method(
    paper="arXiv:2503.16219",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="thinking-4-to-6",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "n counts tokens and is clamped at the task's limit; the authors count characters up to 3584, unclamped, so "
        "that the cosine pays a text of twice that like an empty one",
        "the mark is the task's, theirs a line of </think>; a task without a mark is refused: give it by --mark",
        "a cut answer is wrong and has n = limit; no KL, temperature 1, groups of 8 instead of 6",
        "runs 1 to 3 differ in their data: choose the task; the testbed is refuted if cuts are not fewer or the score "
        "falls by 0.05; its rival is accuracy with the weight of the cosine",
    ),
    pilots=(
        "measured before on `thinking` (cuts d = -0.015, score +0.002), then here after a warm-up of 80: score 0",
    ),
    results=(
        "a start that is right in less than half of its answers is paid more for a short wrong answer than for a long "
        "try: after a warm-up of 80 steps (score 0.11 to 0.21) three of three seeds end at 2 tokens and a score of 0; "
        "after the preset's 200 (0.63 to 0.84) they end at 0.64, 0.95, 0.79, with 5 to 6 tokens instead of 10",
    ),
)
