"""simplerl-zoo: grpo on correctness alone with behaviours logged; a strict format reward is the variant that hurts.

    loss = -mean_t min(rho_t A, clip(rho_t, 0.8, 1.2) A) - 0.001 entropy + 1e-4 k3(pi, ref),   R = 1 if right, else 0
    strict: R = 1 if right and boxed, -0.5 if wrong and boxed, -1 without a box, right or not

Zeng et al. 2025. A start that is often right without the box is taught by the strict table that its right answers are
as bad as its worst, and that wrong ones in a box are good. `independent` pays for both apart. Shares of behaviours, of
cut answers and the length of the others show what a longer mean length is made of.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from assay.method import LANGUAGE, AnswerFormat, Method, Preset, Recipe, Reward, Verifier, recipes, with_regularizers
from assay.method import with_token_clip
from assay.parts import ByLabel, CountModes, EntropyBonus, Gated, KlToReference, Matches, Weighted, WeightedSum

BOX = r"\\boxed\{"


BEHAVIOURS: Mapping[str, str] = {
    "backtracking": r".*\b([Ww]ait|[Tt]ry again|[Ll]et me (redo|start over))\b.*",
    "verification": r".*\b([Cc]heck|[Vv]erify|[Vv]erifying)\b.*",
    "enumeration": r".*\b([Cc]ase 1|[Tt]ry each|[Ff]or each)\b.*",
    "subgoals": r".*\b([Ff]irst|[Ss]tep 1)\b.*",
}


def behaviours_of(answers: AnswerFormat) -> Mapping[str, str]:
    """Returns the task's own classes of answers, those of prose where it declares none."""
    return dict(answers.modes) or BEHAVIOURS


def box_of(answers: AnswerFormat) -> str:
    """Returns the pattern of the task's box, LaTeX's where it declares none."""
    return answers.box or BOX


Box = str | Callable[[AnswerFormat], str]


def recipe(preset: Preset = LANGUAGE, reward: Reward = Verifier()) -> Recipe:
    """Returns grpo with behaviours counted, a small entropy bonus and a small KL term."""
    base = recipes.grpo(preset)
    counted = replace(base, rewards=(reward,), credit=(CountModes(behaviours_of), *base.credit))
    ours = with_token_clip(counted, "simplerl-zoo")
    return with_regularizers(ours, EntropyBonus(0.001), KlToReference(1e-4))


def strict(preset: Preset = LANGUAGE, box: Box = box_of) -> Recipe:
    """The table that a missing box overrules."""
    table = ByLabel({"": {"right": 1.0, "wrong": -0.5}}, label="")
    return recipe(preset, Gated(Matches(box, 0), table, threshold=0.5, closed=-1.0))


def independent(preset: Preset = LANGUAGE, box: Box = box_of) -> Recipe:
    """Correctness and box paid apart: 1, 0.5, -0.5, -1 up to a constant, which no advantage has."""
    both = {"verifier": Weighted(Verifier(), 1.5), "box": Weighted(Matches(box, 0), 0.5)}
    return recipe(preset, WeightedSum(both))


METHOD = Method(
    paper="arXiv:2503.18892",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="formats:shares=91,right=22",
    family="policy gradient",
    base=recipes.grpo,
    variants={"simplerl-zoo-strict": strict, "simplerl-zoo-independent": independent},
    departures=(
        "behaviours are classes of a grammar, the first that matches counts; the paper asks a strong model",
        "the weight of the KL does not depend on the size of the model (1e-4; theirs is 1e-3 above 14B)",
        "data is not sorted by difficulty: choose the task; too hard data is not measured",
        "on the testbed classes and box are first digits; one design was tried. A task says which: `AnswerFormat`",
        "not measured: too hard data, and starts of three strengths, for their cost",
    ),
    results=(
        "undecided after 10 seeds: an effect of the box beyond 0.02 is excluded either way",
    ),
)
