"""echo-chamber: grpo on correctness alone, with the share and the score of every answer format logged at each step.

    d logit_m = s_m (a_m - mean a),   s_m the share of format m, a_m its accuracy, mean a = sum_m s_m a_m

Zhao et al. 2025. Nothing is paid for a format, but a format that is right more often than the mean grows at the cost of
the others, until one is left: training amplifies what the start does. A KL term to the start keeps more of the mixture.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from assay.method import LANGUAGE, AnswerFormat, Method, Preset, Recipe, recipes, with_regularizers
from assay.parts import CountModes, KlToReference

Modes = Mapping[str, str] | Callable[[AnswerFormat], Mapping[str, str]]


FORMATS: Mapping[str, str] = {"function": r"\s*def \w+\(.*", "code": r".*<llm-code>.*</llm-code>.*", "text": r".*\w.*"}
"""The paper's three: a Python function, code between tags, and text; `other` is what has no word."""


def formats_of(answers: AnswerFormat) -> Mapping[str, str]:
    """Returns the task's own classes of answers, the paper's where it declares none."""
    return dict(answers.modes) or FORMATS


def recipe(preset: Preset = LANGUAGE, kl: float = 0.0, modes: Modes = formats_of) -> Recipe:
    base = recipes.grpo(preset)
    counted = replace(base, name="echo-chamber", credit=(CountModes(modes), *base.credit))
    return with_regularizers(counted, KlToReference(kl)) if kl else counted


ANCHORED = partial(recipe, kl=0.01)


METHOD = Method(
    paper="arXiv:2504.07912",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="formats",
    family="policy gradient",
    base=recipes.grpo,
    variants={"echo-chamber-kl": ANCHORED},
    departures=(
        "classes are a grammar with an explicit `other`; the authors' test for substrings counts Definitely as code",
        "grpo only: no ppo, no expert iteration, no pre-training on a mixture; the start's shares are set by the task",
        "temperature 1 and one update a batch; theirs is 0.7 and eight updates",
        "not measured: when the share is reached, and other widths; a table of tokens has no width",
    ),
    pilots=(
        "the bound 0.8 was set after a pilot of 0.92; KL weights 0.1 and 0.3 were tried (0.77, 0.63; 2 seeds)",
    ),
    results=(
        "on the testbed each prompt ends in a format of its own: the largest share of all was 0.63 with rank 16 "
        "and 0.78 with rank 4 (2 pilot seeds each), so the claims are about each prompt's largest share",
    ),
)
