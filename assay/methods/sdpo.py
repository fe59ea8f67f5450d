"""sdpo: the policy, given a correct answer of the group as context, distils itself token by token.

    loss = sum_t D(pi(.|x, y_<t), q(.|x, f, y_<t)),   q = the same model (or its target network) after the feedback f
    for D = KL(pi || q) a policy gradient with advantages A_t(v) = log q(v) - log pi(v) for every token v

Huebotter et al. 2026. An outcome does not say which token was wrong; a model that can read feedback knows it in
hindsight. y is the policy's own; q costs two more forward passes and nothing is sampled from it. D is over the
policy's 100 likeliest tokens and all others together.

Axes: B rows, T columns, K candidates, V actions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Copy, DemonstratedTask, Experience, Method, Phase, Prepare, Preset
from assay.method import PromptedTask, Recipe, ResumableTask, Scene, Source, State, Task, concatenate, groups
from assay.method import jensen_shannon, model_name, recipes
from assay.parts import Demonstrations, Distil, candidates_of, likeliest_actions
from assay.tasks.language.feedback import feedback_of, gives_feedback
from assay.tasks.language.prompts import PromptTask


NONE = -1


SHOWN = "{prompt}{solution}\n{prompt}"
"""The teacher's prompt: one text, which the tokenizer puts into its chat template as it does with every prompt."""


def need_prompts(task: Task, who: str) -> PromptedTask:
    """Returns the task as one of prompts; raises AssayError if it is not."""
    if not isinstance(task, PromptedTask):
        name = getattr(task, "name", None)
        raise AssayError(f"{who} shows an answer in the prompt, and '{name}' has no prompts. Use a language task")
    return task


def check_shown(task: Task, who: str, shown: str) -> None:
    """Raises AssayError if the task has no prompts, or its tokenizer cannot write a prompt in this form."""
    prompted = need_prompts(task, who)
    try:
        if isinstance(task, ResumableTask):  # a demonstration may be longer than answers may be
            one = task.begin(np.arange(1), 0)
            prompted.onto(one, told_prompts(prompted, one.column("start"), one, shown))
    except ValueError as error:
        raise AssayError(
            f"{who}.shown is {shown!r}, which task '{task.name}' cannot write: {error}. Choose another form of prompt"
        ) from error


def told_prompts(task: PromptedTask, starts: Tensor, solved: Experience, shown: str, split: int = 0) -> list[str]:
    """Returns the prompt of each start with the completion of the same row of `solved` in it."""
    prompts, rows = task.prompts(starts.cpu().numpy(), split), task.texts(solved, split)
    return [shown.format(prompt=one, solution=row["completion"]) for one, row in zip(prompts, rows, strict=True)]


@dataclass(frozen=True)
class SelfTeacher(Prepare):
    """Writes `candidates` [B, T, K, 2]: the `num` likeliest tokens of the policy at each decision, and log q of each,

        q(v | x, f, y_<t): the same answer y, scored by the teacher after a prompt that contains f.

    f is the first other answer of the group with an outcome of at least `threshold` (SDPO, arXiv:2601.20802), in the
    form `shown`. With a form `failed`, what the task says about a row's own answer that is below the threshold stands
    before it, or alone. Two forward passes; nothing is sampled. Degenerate: a row without f has no teacher and all
    zeros; a vocabulary of at most `num` tokens is taken whole.
    """

    num: int = 100
    threshold: float = 1.0
    shown: str = SHOWN
    failed: str = ""
    actor: str = model_name("actor")
    teacher: str = model_name("teacher")
    writes: ClassVar[tuple[str, ...]] = ("candidates",)
    not_a_part: ClassVar[str] = "the laws have no prompts and no two models: the method's claims run it"

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no prompts, or cannot write the teacher's."""
        check_shown(scene.task, "SelfTeacher", self.shown)
        if self.failed and not gives_feedback(scene.task):
            what = f"task '{scene.task.name}' says nothing about answers that fail"
            raise AssayError(f"{what}. Add a field 'feedback' to its rows, or train sdpo, which shows right answers")
        return {}

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

    def teacher_prompts(self, experience: Experience, sibling: Tensor, told: Sequence[str], scene: Scene) -> list[str]:
        """Returns the teacher's prompt of each row: feedback, then a correct sibling's answer, then the question."""
        task, starts = need_prompts(scene.task, "SelfTeacher"), experience.column("start")
        plain = task.prompts(starts.cpu().numpy(), scene.split)
        solved = told_prompts(task, starts, experience.rows(sibling.clamp(min=0)), self.shown, scene.split)
        has_one = (sibling != NONE).tolist()
        found = [one if is_shown else bare for one, bare, is_shown in zip(solved, plain, has_one, strict=True)]
        return [before + one for before, one in zip(told, found, strict=True)]

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the column; only rows with something to tell the teacher are scored."""
        task, sibling = need_prompts(scene.task, "SelfTeacher"), solved_sibling(experience, self.threshold)
        told_B = self.feedback(experience, scene)
        rows = ((sibling != NONE) | torch.tensor([bool(one) for one in told_B]).to(sibling.device)).nonzero().squeeze(1)
        if not len(rows):
            return experience.add({"candidates": experience.logp.new_zeros(*experience.mask.shape, 1, 2)})
        taught = experience.rows(rows)
        token = scene.models.over(self.actor, taught, partial(likeliest_actions, num=self.num)).to(taught.logp.dtype)
        taught = taught.add({"candidates": torch.stack((token, torch.zeros_like(token)), -1)})
        prompts = self.teacher_prompts(experience, sibling, told_B, scene)
        told = task.onto(taught, [prompts[row] for row in rows.tolist()])
        found = scene.models.over(self.teacher, told, candidates_of)
        logq = torch.zeros_like(token)
        logq[taught.mask] = found[told.mask].to(logq.dtype)
        column = token.new_zeros(len(experience), *token.shape[1:], 2)
        return experience.add({"candidates": column.index_copy(0, rows, torch.stack((token, logq), -1))})


def solved_sibling(experience: Experience, threshold: float) -> Tensor:
    """Returns for each row the first other row of its group with an outcome of at least `threshold`, [B]; NONE if all
    failed. A row without a decision (an infrastructure fault) has failed.
    """
    rows, by_group = torch.arange(len(experience), device=experience.mask.device), groups.row_groups(experience)
    solved = (groups.outcome(experience) >= threshold) & experience.mask.any(1)
    first = first_of(solved, rows, by_group)
    second = first_of(solved & (rows != first), rows, by_group)
    sibling = torch.where(rows == first, second, first)
    return torch.where(sibling < len(rows), sibling, NONE)


def first_of(chosen_B: Tensor, rows_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Returns the first chosen row of each row's group, [B]; B if none is chosen."""
    num = len(rows_B)
    earliest = rows_B.new_full((by_group.num,), num).scatter_reduce(
        0, by_group.index, torch.where(chosen_B, rows_B, num), "amin"
    )
    return earliest[by_group.index]


@dataclass(frozen=True)
class ShownTwice(Source):
    """Yields `batch` demonstrations per step, each once, in order; all but the first `plain` follow a prompt that
    contains them (`shown`, as in SelfTeacher).

    Only the demonstration after the prompt is trained on, so a model learns to use an answer in its context. The
    `plain` ones keep it trained on bare prompts. Language tasks only.
    """

    batch: int = 64
    plain: int = 16
    shown: str = SHOWN

    def init(self, scene: Scene) -> State:
        """Returns ordinal 0; raises AssayError if the task has no prompts, or cannot write those of this form."""
        check_shown(scene.task, "ShownTwice", self.shown)
        return Demonstrations().init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the next demonstrations as one batch."""
        task = scene.task
        assert isinstance(task, DemonstratedTask)
        first, state["next"] = state["next"], state["next"] + self.batch
        shown = task.demonstrate(np.arange(first, first + self.batch, dtype=np.int64), 0)
        bare, rest = shown.rows(slice(0, self.plain)), shown.rows(slice(self.plain, None))
        if len(rest):
            prompted = need_prompts(task, "ShownTwice")
            rest = prompted.onto(rest, told_prompts(prompted, rest.column("start"), rest, self.shown))
        yield concatenate([part for part in (bare, rest) if len(part)])


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
