"""scope: finishes the most nearly right wrong answer of each group after its right steps, in place of that answer.

    wrong answer y, first wrong step e:  y <- [y_<e | another's continuation]  if that is right, one of a group
    loss = mean_i 1/|y_i| sum_t { -min(rho_t A_i, clip(rho_t) A_i)            own tokens
                                { -A_i p_t / (p_t + 0.1),  p = pi(y_t)        another's tokens

Ren et al. 2026. A whole demonstration shows one way that may be far from the policy's own; a continuation of its own
steps keeps its ways, and turns the sign of what was right in a wrong answer. Steps are checked to find the cut, never
paid.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes, with_policy
from assay.parts import Clip, Guided, SequenceMean, Shaped, Spliced


def recipe(preset: Preset = LANGUAGE, gamma: float = 0.1, most: int = 1) -> Recipe:
    """Returns grpo with at most `most` finished answers in each group."""
    base, own = recipes.grpo(preset), preset.group_rollout
    assert own is not None
    objective = Guided(Clip(), Shaped(gamma), SequenceMean())
    return with_policy(replace(base, rollout=Spliced(own, most)), "scope", objective)


METHOD = Method(
    paper="arXiv:2602.24110",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="many-ways",
    family="guidance",
    base=recipes.grpo,
    departures=(
        "the task checks steps and continues answers in place of a process reward model and a stronger model: a file "
        "compares lines with its solution, so that answers in other words are cut at their first line and stay",
        "one finished answer in a group, at least one right step, and the weight p / (p + 0.1) are a reading of the "
        "abstract: no text below it and no code was found",
    ),
    results=(
        "that finished answers keep more ways than whole demonstrations is undecided: at equal pass rate it finds 1.27 "
        "different right answers in 64 samples, rl-plus 1.32 (difference -0.18 to 0.07)",
    ),
)
