"""sdpo: the policy, given a correct answer of the group as context, distils itself token by token.

    loss = sum_t D(pi(.|x, y_<t), q(.|x, f, y_<t)),   q = the same model (or its target network) after the feedback f
    for D = KL(pi || q) a policy gradient with advantages A_t(v) = log q(v) - log pi(v) for every token v

Huebotter et al. 2026. An outcome does not say which token was wrong; a model that can read feedback knows it in
hindsight. y is the policy's own; q costs two more forward passes and nothing is sampled from it. D is over the
policy's 100 likeliest tokens and all others together.

Axes: B rows, T columns, K candidates, V actions.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from assay.method import LANGUAGE, AssayError, Copy, Experience, Method, Phase, Preset, PromptTask, PromptedTask, Recipe
from assay.method import Scene, State, feedback_of, gives_feedback, groups, jensen_shannon, recipes
from assay.parts import Distil, ShownTwice, SolvedTeacher, need_prompts


@dataclass(frozen=True)
class SelfTeacher(SolvedTeacher):
    """With a form `failed`, what the task says about a row's own answer that is below the threshold stands before a
    correct answer of the group, or alone.
    """

    failed: str = ""
    not_a_part: ClassVar[str] = "the laws have no prompts and no two models: its method's claims run it"

    def init(self, scene: Scene) -> State:
        """Raises AssayError too if feedback is asked for and the task says nothing about answers."""
        if self.failed and isinstance(scene.task, PromptedTask) and not gives_feedback(scene.task):
            what = f"task '{scene.task.name}' says nothing about answers that fail"
            raise AssayError(f"{what}. Add a field 'feedback' to its rows, or train sdpo, which shows right answers")
        return super().init(scene)

    def feedback(self, experience: Experience, scene: Scene) -> list[str]:
        """Returns what the teacher is told about each row's own answer, in the form `failed`; "" for nothing."""
        task = scene.task
        if not self.failed or not isinstance(task, PromptTask):
            return [""] * len(experience)
        told, rows = feedback_of(task, experience, scene.split), task.texts(experience, scene.split)
        lost = ((groups.outcome(experience) < self.threshold) & experience.mask.any(1)).tolist()
        texts = [
            self.failed.format(prompt=row["prompt"], attempt=row["completion"], feedback=said)
            for said, row in zip(told, rows, strict=True)
        ]
        return [one if said and is_lost else "" for one, said, is_lost in zip(texts, told, lost, strict=True)]

    def told(self, experience: Experience, scene: Scene) -> list[str]:
        solved, own = super().told(experience, scene), self.feedback(experience, scene)
        starts = experience.column("start").cpu().numpy()
        plain = need_prompts(scene.task, "SelfTeacher").prompts(starts, scene.split)
        rows = zip(solved, own, plain, strict=True)
        return [before + (one or bare) if one or before else "" for one, before, bare in rows]


FAILED = "{prompt}{attempt}\n{feedback}\n"
"""What the teacher is told about an answer that failed: the question, the answer, what the environment says of it."""


def reading(one: Recipe, preset: Preset = LANGUAGE, steps: int = 600) -> Recipe:
    """Returns the recipe after a phase in which a model from scratch learns to use an answer in its context."""
    first = replace(recipes.sft(preset), actor=one.actor, source=ShownTwice(32, 4))
    return replace(one, before=(Phase("in-context", first, steps, from_scratch=True),))


def recipe(preset: Preset = LANGUAGE, rate: float = 0.01, failed: str = "") -> Recipe:
    """Returns grpo whose loss pulls each token towards a slow copy that sees a right answer."""
    base = recipes.grpo(preset)
    stages = (replace(base.stages[0], objective=(Distil(jensen_shannon),)),)
    copies = {"teacher": Copy(of="actor", rate=rate)}
    ours = replace(base, name="sdpo", credit=(SelfTeacher(failed=failed),), stages=stages, copies=copies)
    return reading(ours, preset)


def with_feedback(preset: Preset = LANGUAGE) -> Recipe:
    """The paper's main setting: the teacher also reads what the environment says about the answer."""
    return recipe(preset, failed=FAILED)


METHOD = Method(
    paper="arXiv:2601.20802",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-5",
    family="distillation",
    base=recipes.grpo,
    variants={"feedback": with_feedback},
    departures=(
        "feedback is a correct answer of the same group; sdpo:feedback adds what the task's verifier says, or a file's "
        "field `feedback`, which is the paper's main setting and is not measured: small models cannot read it",
        "the teacher's prompt is question, answer, question in one text, without words around them (`shown`)",
        "the teacher scores once per step, at the acting policy's 100 likeliest tokens, not the current one's",
        "a model from scratch cannot read feedback: it learns to copy an answer in its context first, in a phase of "
        "600 steps that a pretrained one skips",
        "the teacher follows by 0.01 a step, as in the released script with feedback, not by 0.05, the class's "
        "default: with 0.05 a small teacher unlearns reading (sorting-5, 150 steps, one seed: 0.61; with 0.01 0.73; "
        "frozen 0.75)",
        "not measured: a growing share of free tokens, and examples shuffled between groups; sorting has no such dial",
    ),
    results=(
        "why the claim fails: a small teacher reads badly and unlearns it. Shown its own right answer the start writes "
        "it in 0.67 of all cases after 200 steps of reading, 0.94 after 600 (2 seeds). After 600, sdpo has 0.62, 0.63, "
        "0.63 at step 60 and grpo 0.59, 0.63, 0.59 (3 seeds); but it is trained on bare prompts, the teacher follows, "
        "and at step 120 sdpo has 0.51, 0.58, 0.66, grpo 0.62. With rate 1, no slow teacher, it ends at 0.00 to 0.02",
    ),
)
