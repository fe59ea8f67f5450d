"""longrlvr: pays for naming the right evidence beside the answer, in part whether or not the answer is right.

    reward = a + 0.1 F + 0.9 a F,   F = 5 P R / (4 P + R): precision P and recall R of the ids that the answer names

Chen et al. 2026. From a long text the outcome alone teaches where to look only as often as all the evidence was found:
its gradient falls with every further piece. F weighs recall; ids that are named twice lower the precision. An answer
that is not written as asked gets 0.

Axes: B rows.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AnswerFormat, Experience, Method, Preset, Recipe, Reward, Scene, State, TextTask
from assay.method import Verifier, answer_format_of, recipes, with_policy, with_regularizers
from assay.parts import DualClip, KlToReference, PolicyGradient, Rescored, TokenMean, check_rows

CHUNKS, ANSWER = (
    rf"(?!.*<{tag}>.*<{tag}>)(?=.*<{tag}>{body}</{tag}>)"
    for tag, body in (("useful_chunks", "(?P<ids>.*?)"), ("answer", ".*?"))
)


def form_of(answers: AnswerFormat) -> str:
    """Returns the pattern of an answer whose named groups hold ids of evidence: the task's own, else the paper's tags,
    each of them once.
    """
    return answers.form if "(?P<id" in answers.form else rf"\A{CHUNKS}{ANSWER}"


def f_measure(named: Sequence[str], gold: Collection[str], beta: float) -> float:
    """Returns (1 + beta^2) P R / (beta^2 P + R); 0 if nothing right is named."""
    hits = len(set(named) & set(gold))
    if not hits:
        return 0.0
    precision, recall = hits / len(named), hits / len(set(gold))
    return (1.0 + beta**2) * precision * recall / (beta**2 * precision + recall)


@dataclass(frozen=True)
class WithEvidence(Rescored):
    """reward = a + `alone` F + `joint` a F, a the total of `reward`, F the F-measure of the ids that the answer names.

    The field `evidence` of the prompt's row lists the right ids. 0 if the completion is not written in the `form`.
    Degenerate: both weights 0 give a, where the answer is written as asked.
    """

    reward: Reward = Verifier()
    alone: float = 0.1
    joint: float = 0.9
    beta: float = 2.0
    form: Callable[[AnswerFormat], str] = form_of
    not_a_part: ClassVar[str] = "the tasks of the laws have no evidence: its claims run it"

    def init(self, scene: Scene) -> State:
        """Returns the verifier's state; raises AssayError if a prompt has no evidence."""
        line = '{"prompt": "<CHUNK_1> ... <CHUNK_9> ... Who ...?", "answer": "...", "evidence": [3, 7]}'
        check_rows(scene.task, "evidence", line, "longrlvr pays for naming evidence")
        return super().init(scene)

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        assert isinstance(scene.task, TextTask), "init refuses other tasks"
        pattern = re.compile(self.form(answer_format_of(scene.task)), re.DOTALL)
        found = [self.named(pattern, row) for row in scene.task.texts(rewarded, scene.split)]
        written = torch.tensor([one is not None for one in found]).to(total_B.device)
        measure = torch.tensor([one or 0.0 for one in found]).to(total_B)
        scene.log("evidence_f", float(measure.sum()), len(found))
        return torch.where(written, total_B + (self.alone + self.joint * total_B) * measure, 0.0)

    def named(self, pattern: re.Pattern[str], row: dict[str, Any]) -> float | None:
        """Returns the F-measure of a completion; None if it is not written as asked."""
        match = pattern.match(row["completion"])
        if match is None:
            return None
        ids = re.findall(r"\w+", " ".join(match.groupdict().values()))
        return f_measure(ids, [str(one) for one in row["evidence"]], self.beta)


def recipe(preset: Preset = LANGUAGE, alone: float = 0.1, joint: float = 0.9) -> Recipe:
    """Returns grpo with dapo's clip and mean over tokens, and a share of the reward for the evidence that is named."""
    objective = PolicyGradient(trust=DualClip(0.2, 0.28, 10.0), aggregate=TokenMean())
    base = replace(recipes.grpo(preset), rewards=(WithEvidence(alone=alone, joint=joint),))
    return with_regularizers(with_policy(base, "longrlvr", objective), KlToReference(0.001))


METHOD = Method(
    paper="arXiv:2603.02146",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="evidence",
    family="long context",
    base=recipes.grpo,
    variants={"longrlvr-answers": partial(recipe, alone=0.0, joint=0.0)},
    departures=(
        "the answer is right by the task's verifier; the authors ask a model that sees the evidence",
        "prompts are not cut: a text that is too long is refused, theirs loses its beginning",
        "not measured: pretrained models and texts of thousands of tokens; on the testbed no text is read",
    ),
    pilots=("seed 0 was looked at with 60 steps, on an earlier form of the testbed",),
)
