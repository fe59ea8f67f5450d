"""ghpo: asks groups that failed again with the first 25, 50, then 75 % of the solution in the prompt.

    for share in (0.25, 0.5, 0.75):  groups without a right answer <- G answers to prompt + solution[:share]
    loss = grpo's, on the answers, after the prompt that the policy saw

Liu et al. 2025. A group without a right answer has no advantage and teaches nothing. Shown a part of the solution the
policy may find the rest; the ladder shows as little as suffices, within one step. The hint is context: its tokens are
never a target. Answers that are replaced were sampled, and count.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes
from assay.parts import Episodes, Hinted


def recipe(preset: Preset = LANGUAGE, ladder: tuple[float, ...] = (0.25, 0.5, 0.75)) -> Recipe:
    """Returns grpo in which groups that failed are sampled again with a part of the solution."""
    base, own = recipes.grpo(preset), preset.group_rollout
    assert isinstance(own, Episodes)
    return replace(base, name="ghpo", rollout=Hinted(own, ladder=ladder, group_size=own.group_size))


METHOD = Method(
    paper="arXiv:2507.10628",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="reading",
    family="guidance",
    base=recipes.grpo,
    departures=(
        "answers are trained after the hint that the policy saw, as in the paper; in the released code all groups but "
        "those of the last rung are trained on the bare prompt (`rollout.onto_prompt`)",
        "no cold start of 20 steps with half of the solution: the paper has one, the released code does not",
        "the hint ends before the solution states the answer, and is written as in `InPrompt.form`",
        "without a reward for the format; a group failed if no answer is right",
        "the policy must read hints: a transformer from scratch does not, pretrained models and the testbed's table do",
    ),
)
