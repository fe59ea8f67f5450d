"""rlpr: grpo without a verifier, paid by how likely its reasoning makes the reference answer.

    r = 0.9 max(0, B - A0) + 0.1 format;   B = mean_t pi(y*_t | x, own reasoning),  A0 = mean_t pi_start(y*_t | x)
    a group is dropped if std(r) < 0.5 E, E a running mean of such deviations;   the rest is grpo with clip 0.2 / 0.27

Yu et al. 2025. Answers that no rule can verify still have a probability. The start's own probability is taken off, so
that answers it could guess pay nothing; as a constant of the prompt it acts through the floor at 0 alone.

Axes: B, T, G groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Copy, Experience, Method, Preset, Recipe, Reward, Scene, Select, State
from assay.method import groups, logp_of, model_name, recipes, text, with_policy
from assay.parts import Clip, GroupDeviation, GroupMean, Matches, OutcomeCredit, PolicyGradient, Reduce, SequenceMean
from assay.parts import Weighted, WeightedSum, mean_probability, on_last_decision
from assay.tasks.language.prompts import PromptTask


@dataclass(frozen=True)
class ReferenceProbability(Reward):
    """reward = max(0, B - A0): what the own reasoning adds to the probability of the reference answer (RLPR).

    B: `reduce` of the actor's probabilities of the reference in place of the own answer, after everything up to `mark`.
    A0: the same under `start`, the frozen copy of the start, after the prompt and `bare` without reasoning. B is 0 if
    the completion has not exactly one mark. The text is tokenised as a whole. Never carries gradient.
    """

    mark: str = ">"
    bare: str = ""
    reduce: Reduce = mean_probability
    actor: str = model_name("actor")
    start: str = model_name("start")
    writes: ClassVar[tuple[str, ...]] = ("score",)

    def init(self, scene: Scene) -> State:
        """Refuses a task without prompts and reference answers, or whose answers cannot contain the mark."""
        if scene.task is None:
            return {}
        if not isinstance(scene.task, PromptTask) or not scene.task.items.item(0, 0).answer:
            raise AssayError(f"task '{scene.task.name}' has no reference answers. Use a task of prompts with answers")
        try:
            scene.task.tokenizer.encode(self.mark + self.bare)
        except ValueError as error:
            raise AssayError(
                f"answers of task '{scene.task.name}' cannot contain the mark {self.mark!r} that ends the reasoning "
                f"({error}). Use a task with reasoning, or set `mark` to a text that its answers have"
            ) from None
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with max(0, B - A0) on each last decision; logs the means of both."""
        rows = scene.task.texts(experience, scene.split)  # type: ignore[attr-defined]
        marked = torch.tensor([row["completion"].count(self.mark) == 1 for row in rows])
        reasoned = [
            (row["prompt"], row["completion"].partition(self.mark)[0] + self.mark, row["answer"]) for row in rows
        ]
        with_reasoning = self.probability(self.actor, reasoned, scene) * marked
        without = self.probability(self.start, [(row["prompt"], self.bare, row["answer"]) for row in rows], scene)
        scene.log("reference_probability", float(with_reasoning.mean()))
        scene.log("reference_probability_at_start", float(without.mean()))
        return on_last_decision(experience, (with_reasoning - without).clamp(min=0.0).to(experience.mask.device))

    def probability(self, model: str, told: Sequence[tuple[str, str, str]], scene: Scene) -> Tensor:
        """`reduce` of the model's probabilities of answers, given (prompt, beginning, answer); equal ones at once."""
        task = scene.task
        assert isinstance(task, PromptTask), "init refuses other tasks"
        place = {one: number for number, one in enumerate(dict.fromkeys(told))}
        before, answers = zip(*(reference_ids(task, *one) for one in place), strict=True)
        record = text.written(before, answers, torch.arange(len(place)), task.tokenizer.vocabulary.pad)
        found = self.reduce(scene.models.over(model, record, logp_of), record.mask)
        return found[[place[one] for one in told]]


def reference_ids(task: PromptTask, prompt: str, said: str, answer: str) -> tuple[list[int], list[int]]:
    """The tokens of the prompt and of `said` with the answer, cut where those of `said` alone stop agreeing."""
    whole, before = task.tokenizer.encode(said + answer), task.tokenizer.encode(said)
    cut = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(whole, before, strict=False)))
    return task.told([prompt])[0] + whole[:cut], whole[cut:]


@dataclass(frozen=True)
class AboveRunningDeviation(Select):
    """Keeps groups whose reward deviation (n - 1) is at least `share` times a running mean E of such deviations.

    E is the plain mean over the `averaged` batches that follow the first `ignored`; after that E <- (1 - rate) E + rate
    * (mean deviation of the batch before selection), and groups are dropped. Degenerate: before that all are kept.
    """

    share: float = 0.5
    ignored: int = 5
    averaged: int = 5
    rate: float = 0.01
    max_rounds: int = 3

    def init(self, scene: Scene) -> State:
        """Returns E and the number of batches."""
        return {"mean": 0.0, "batches": 0}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the rows of groups that differ enough, and moves E."""
        by_group = groups.row_groups(experience)
        deviation = groups.deviation(groups.outcome(experience).double(), by_group)
        there = groups.total(by_group.share, by_group) > 0
        batch = float((groups.total(deviation, by_group) / by_group.size)[there].mean()) if there.any() else 0.0
        threshold = self.share * state["mean"]
        scene.log("deviation_threshold", threshold)
        state["batches"] += 1
        number = state["batches"] - self.ignored
        if number > 0:
            state["mean"] += (1.0 / number if number <= self.averaged else self.rate) * (batch - state["mean"])
        if number <= self.averaged:
            return experience
        enough = deviation >= threshold * (1.0 - ROUNDING)
        return experience.rows(groups.any_of(enough, groups.linked_groups(experience)))


ROUNDING = 1e-6
"""A deviation that equals the threshold up to rounding is kept."""


FORMAT = "^[^>]*>[^>]+$"
"""Reasoning, the mark once, an answer."""


def recipe(preset: Preset = LANGUAGE, bare: str = "", reduce: Reduce = mean_probability) -> Recipe:
    paid = {
        "reference": Weighted(ReferenceProbability(bare=bare, reduce=reduce), 0.9),
        "format": Weighted(Matches(FORMAT), 0.1),
    }
    base = replace(
        recipes.grpo(preset),
        rewards=(WeightedSum(paid),),
        select=AboveRunningDeviation(),
        credit=(OutcomeCredit(GroupMean(), GroupDeviation(1e-6)),),
        copies={"start": Copy("actor")},
    )
    return with_policy(base, "rlpr", PolicyGradient(trust=Clip(0.2, 0.27), aggregate=SequenceMean()))


METHOD = Method(
    paper="arXiv:2506.18254",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="scratch",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "reasoning ends with one mark instead of tags; no penalty of repetition; probabilities are not rounded",
        "A0 is computed from the frozen copy of the start whenever a prompt comes up, which gives the same number",
        "at most three rounds of sampling fill the batch; E moves at each round",
        "in the measured claim A0 is asked after the mark (bare='>'), because demonstrations never omit it",
    ),
)
