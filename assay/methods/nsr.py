"""nsr: reinforces right answers a tenth as much as it suppresses wrong ones, without a baseline.

    A = 0.1 for a right answer, -1 for a wrong one;   loss = -mean_t min(rho_t A, clip(rho_t, 1 - 0.2, 1 + 0.2) A)

Zhu et al. 2025. `nsr-only` and `psr` drop the answers of the other kind before the mean. In expectation and on-policy
the three have the same direction (rewards that differ by a constant do); what differs are finite samples, the number
of answers in the mean, and the clip. Wrong answers give their probability to all others, right ones take it from all
others, so diversity lasts longer. A policy that is nearly always wrong is ruined by wrong answers alone.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes, with_token_clip
from assay.parts import BySign, Constant, OutcomeCredit, Reweigh, RightOrWrong, WithoutIdle


def recipe(preset: Preset = LANGUAGE, right: float = 0.1, wrong: float = 1.0) -> Recipe:
    """Returns REINFORCE on right and wrong answers, weighed by `right` and `wrong`, without a baseline."""
    signs = (RightOrWrong(), OutcomeCredit(Constant(0.5), Constant(0.5)))  # +1 and -1, whatever the outcome
    weighed = replace(recipes.grpo(preset), credit=(*signs, Reweigh(BySign(right, wrong)), WithoutIdle()))
    return with_token_clip(weighed, "nsr")


def negative(preset: Preset = LANGUAGE) -> Recipe:
    """Wrong answers alone."""
    return recipe(preset, right=0.0)


def positive(preset: Preset = LANGUAGE) -> Recipe:
    """Right answers alone."""
    return recipe(preset, right=1.0, wrong=0.0)


METHOD = Method(
    paper="arXiv:2506.01347",
    recipe=recipe,
    default_task="sorting-5",
    family="policy gradient",
    base=recipes.grpo,
    variants={"nsr-only": negative, "psr": positive},
    departures=(
        "no entropy bonus; the released scripts leave 0.001 on in every arm",
        "rows of the other kind are masked, so the number of updates does not depend on how many are right",
        "an outcome above 1/2 counts as right, however far above: graded rewards become signs",
        "not measured: against the start, grpo and the weighted form; the paper's order of the two halves is claimed",
    ),
    results=(
        "from a start that is right one time in ten (countdown, 2 seeds) it ends at 0.00; from 0.58 (sorting-5, one "
        "seed) it rises to 0.68",
    ),
    pilots=(
        "no claim with rank 16 on many-ways: pass@64 was 0.78 in both arms (5 pilot seeds); there pass rates differ",
    ),
)
