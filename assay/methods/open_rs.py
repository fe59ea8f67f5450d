"""open-rs: grpo with accuracy scaled by a cosine of the length, plus a format reward.

    reward = 1 * format + 2 * (long + (short - long) * (1 + cos(pi * n / max_length)) / 2)
    (short, long) = (1, 0.5) if right, (0, -0.5) if wrong or cut;   n = number of tokens, at most max_length

Dang & Ngo 2025. Among right answers the short one gains, so that small models stop before they are cut. The order of
wrong answers is a choice: the authors' recipe makes a long wrong answer the worst, their function's defaults (-1, -0.5)
the best of the wrong ones.
"""

import re
from dataclasses import replace

from assay.method import LANGUAGE, Preset, Method, Recipe, recipes
from assay.parts import ByLength, Matches, Weighted, WeightedSum


def recipe(
    preset: Preset = LANGUAGE,
    max_length: int = 3584,
    tag: str = "\n</think>\n",
    wrong: tuple[float, float] = (0.0, -0.5),
) -> Recipe:
    cosine = ByLength(wrong=wrong, limit=max_length)
    components = {"format": Weighted(Matches(re.escape(tag))), "cosine": Weighted(cosine, 2.0)}
    return replace(recipes.grpo(preset), name="open-rs", rewards=(WeightedSum(components),))


METHOD = Method(
    paper="arXiv:2503.16219",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="thinking",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "n counts tokens and is clamped at max_length; the authors count characters, unclamped, so that the cosine "
        "pays a text of 2 max_length like an empty one",
        "a cut answer is wrong and has n = max_length; no KL, temperature 1, groups of 8 instead of 6",
        "runs 1 to 3 differ in their data: choose the task; the testbed is refuted if cuts are not fewer or the score "
        "falls by 0.05; its rival is accuracy with the weight of the cosine",
        "measured twice: on `thinking` cuts were d = -0.015 (-0.032 to 0.002), length -0.44, score +0.002 (-0.059 to "
        "0.062); then on `thinking-4-to-6`, chosen after that result because accuracy alone cut 8 % there with one "
        "pilot seed (3 % on the five measured ones, as before); a warm-up of 60 was dropped, where accuracy alone fell "
        "to 0. The score fails in four of five seeds, with answers of about 2 tokens; why was not tested",
    ),
)
