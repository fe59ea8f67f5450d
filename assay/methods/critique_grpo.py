"""critique-grpo: every answer is written again after feedback, and the best new one joins its group on the bare prompt.

    loss = (1/B) sum_i 1/L sum_t { -rho_t A_i                     own answers, rho = pi / pi_old, never clipped
                                 { -p_t / (p_t + gamma) A_i       the refined one, p = pi(y_t | bare prompt)
    A_i = R_i - mean of the group, the refined one included;  minus 0.001 entropy

Zhang et al. 2025. A group of wrong answers teaches nothing; told what is wrong with them, the policy may find a right
one. Its tokens are unlikely without the feedback, so they count by f(p), whose slope in log p is largest at p = gamma.

Axes: B rows.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from assay.method import LANGUAGE, AssayError, Experience, Method, Preset, PromptTask, Recipe, Scene, Task, feedback_of
from assay.method import gives_feedback, recipes
from assay.parts import EntropyBonus, Feedback, FixedLength, Guided, Refined, Shaped, TrueAnswer, Unclipped


@dataclass(frozen=True)
class OfTask(Feedback):
    """What the task says: its verifier, or the field `feedback` of the prompt's row, the same for every answer.

    Degenerate: an answer of which nothing is said is not written again.
    """

    not_a_part: ClassVar[str] = "a setting of Refined"

    def check(self, task: Task, who: str) -> None:
        if not gives_feedback(task):
            line = '{"prompt": "...", "answer": "...", "feedback": "..."}'
            what = f"{who} needs feedback, and task '{task.name}' says nothing about answers: no field 'feedback'"
            raise AssayError(f"{what}. Write JSON lines such as {line}, or use feedback TrueAnswer()")

    def __call__(self, rows: Experience, scene: Scene) -> list[str]:
        assert isinstance(scene.task, PromptTask), "check refuses other tasks"
        return feedback_of(scene.task, rows, scene.split)


def recipe(preset: Preset = LANGUAGE, feedback: Feedback = TrueAnswer(), gamma: float = 0.1) -> Recipe:
    """`feedback` is the true answer, as in the released run, or `OfTask()`."""
    base, own = recipes.dr_grpo(preset), preset.group_rollout
    assert own is not None
    stage = replace(
        base.stages[0], objective=(Guided(Unclipped(), Shaped(gamma), FixedLength()),),
        regularizers=(EntropyBonus(0.001),),
    )  # fmt: skip
    return replace(base, name="critique-grpo", rollout=Refined(own, feedback), stages=(stage,))


METHOD = Method(
    paper="arXiv:2506.03106",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="reading",
    family="guidance",
    base=recipes.dr_grpo,
    departures=(
        "advantages are not divided by the group's deviation, as in the paper; the released run divides",
        "the last member of a group makes place for its best refinement, the released code drops the first",
        "feedback is the true answer, as in the released run, or the task's; no second model criticises",
        "the length divisor is the task's limit; theirs is 6,144",
        "the policy must read feedback: a transformer from scratch does not, a pretrained model does",
    ),
    results=(
        "the headline is undecided with ten seeds: right 0.19 more often than grpo (0.06 to 0.27, margin 0.1). It ends "
        "at 0.28 to 0.32 with every seed, grpo at 0 or at 0.25, as it finds one of four codes by chance or none",
        "shaped weights gain 0.005 (-0.001 to 0.013) on the probability itself, undecided: one row in eight is refined",
    ),
    pilots=("seed 0 was looked at before, with 40,960 and 122,880 tokens",),
)
