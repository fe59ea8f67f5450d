"""self-interference: grpo on the prompts whose greedy answer is wrong; the others are not sampled.

    keep x if R(x, greedy answer) < 1, then grpo's loss on groups of the kept prompts alone

2025 (arXiv:2510.02230, SELF). Prompts share parameters, so that learning one lowers the right answers of others
(negative interference), and the expected step on a prompt of success q is q (1 - q) of a logit, 5 times less at 0.05
than at 0.5: what is already likely wins. Dropping the prompts that the policy already solves leaves the steps to the
others. The selection is of the current policy, at every batch. A batch that shrinks weighs its prompts more.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes
from assay.parts import WithGreedy


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    base = recipes.grpo(preset)
    assert base.rollout is not None
    return replace(base, name="self-interference", rollout=WithGreedy(base.rollout, skip=True))


METHOD = Method(
    paper="arXiv:2510.02230",
    recipe=recipe,
    presets=(LANGUAGE,),
    family="curriculum",
    base=recipes.grpo,
    departures=(
        "the released code is the definition; the forward KL of secondary texts is not in it (see dph-rl)",
        "a batch whose prompts are all solved is a step without an update, not replaced by the next batch",
        "no prompt is repeated to fill a batch up to a multiple of the number of workers",
        "a mean over each sequence as in grpo; 1e-4 beside the deviation instead of 1e-6",
        "not measured: interference between prompts, the paper's probe, which is not built; prompts that were lost",
    ),
    results=(
        "one design was tried; it learns more slowly: pass rate 0.18 against grpo's 0.32 (3 pilot seeds)",
    ),
)
