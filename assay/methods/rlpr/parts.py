"""Reward from the probability of a reference answer, and a filter with a running threshold. Axes: B, T, G groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, State
from assay.core.settings import model_name
from assay.core.slots import Choice, Reward, Scene, Select
from assay.ops import groups
from assay.parts.rewards.function import on_last_decision
from assay.playing import text
from assay.tasks.language.prompts import PromptTask


class Reduce(Choice, Protocol):
    """One number for each row from the probabilities of its reference tokens."""

    def __call__(self, logp_BT: Tensor, weight_BT: Tensor) -> Tensor:
        """[B]; `weight_BT` is 1 on reference tokens, 0 elsewhere."""


@dataclass(frozen=True)
class MeanProbability(Reduce):
    """mean_t p_t: one unlikely token costs 1 / length."""

    def __call__(self, logp_BT: Tensor, weight_BT: Tensor) -> Tensor:
        """The mean."""
        return (logp_BT.exp() * weight_BT).sum(1) / weight_BT.sum(1).clamp(min=1)


@dataclass(frozen=True)
class SequenceLikelihood(Reduce):
    """prod_t p_t: one unlikely token costs everything."""

    def __call__(self, logp_BT: Tensor, weight_BT: Tensor) -> Tensor:
        """The product."""
        return (logp_BT * weight_BT).sum(1).exp()


@dataclass(frozen=True)
class GeometricMean(Reduce):
    """(prod_t p_t)^(1 / length)."""

    def __call__(self, logp_BT: Tensor, weight_BT: Tensor) -> Tensor:
        """The geometric mean."""
        return ((logp_BT * weight_BT).sum(1) / weight_BT.sum(1).clamp(min=1)).exp()


@dataclass(frozen=True)
class ReferenceProbability(Reward):
    """reward = max(0, B - A0): what the own reasoning adds to the probability of the reference answer (RLPR).

    B: `reduce` of the actor's probabilities of the reference in place of the own answer, after everything up to `mark`.
    A0: the same under `start`, the frozen copy of the start, after the prompt and `bare` without reasoning. B is 0 if
    the completion has not exactly one mark. The text is tokenised as a whole. Never carries gradient.
    """

    mark: str = ">"
    bare: str = ""
    reduce: Reduce = MeanProbability()
    actor: str = model_name("actor")
    start: str = model_name("start")
    stochastic: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ("score",)

    @property
    def models(self) -> tuple[str, ...]:
        """The acting policy and the frozen start."""
        return (self.actor, self.start)

    def init(self, scene: Scene) -> State:
        """Refuses a task without prompts and reference answers, or whose answers cannot contain the mark, and a recipe
        without the frozen start.
        """
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
        for name in self.models:
            scene.models.model(name)
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with max(0, B - A0) on each last decision; logs the mean of A0."""
        rows = scene.task.texts(experience, scene.split)  # type: ignore[attr-defined]
        marked = torch.tensor([row["completion"].count(self.mark) == 1 for row in rows], device=experience.mask.device)
        reasoned = [(row["prompt"], row["completion"].partition(self.mark)[0] + self.mark) for row in rows]
        answers = [row["answer"] for row in rows]
        with_reasoning = self.probability(self.actor, reasoned, answers, experience, scene) * marked
        first, member = first_rows(experience.column("start"))
        told = [(rows[row]["prompt"], self.bare) for row in first]
        without = self.probability(self.start, told, [answers[row] for row in first], experience, scene)[member]
        scene.log("reference_probability", float(with_reasoning.mean()))
        scene.log("reference_probability_at_start", float(without.mean()))
        return on_last_decision(experience, (with_reasoning - without).clamp(min=0.0))

    def probability(
        self, model: str, told: Sequence[tuple[str, str]], answers: Sequence[str], like: Experience, scene: Scene
    ) -> Tensor:
        """`reduce` of the model's probabilities of each answer after each prompt and beginning, [rows]."""
        task = scene.task
        assert isinstance(task, PromptTask), "init refuses other tasks"
        pairs = [reference_ids(task, *before, answer) for before, answer in zip(told, answers, strict=True)]
        number = torch.arange(len(pairs))
        vocabulary = task.tokenizer.vocabulary
        record = text.written([one for one, _ in pairs], [other for _, other in pairs], number, vocabulary.pad)
        logp = scene.models.over(model, record, logp_of).to(like.mask.device)
        return self.reduce(logp, record.weight.to(logp))


def logp_of(actor: Any, rows: Experience) -> Tensor:
    """Log-probabilities of the decisions, [B, T]."""
    logp: Tensor = actor.score(rows, frozenset({Need.LOGP})).logp
    return logp


def reference_ids(task: PromptTask, prompt: str, said: str, answer: str) -> tuple[list[int], list[int]]:
    """The tokens of the prompt and of `said` with the answer, cut where those of `said` alone stop agreeing."""
    whole, before = task.tokenizer.encode(said + answer), task.tokenizer.encode(said)
    cut = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(whole, before, strict=False)))
    return task.told([prompt])[0] + whole[:cut], whole[cut:]


def first_rows(start_B: Tensor) -> tuple[list[int], Tensor]:
    """The first row of each distinct start, and for each row the number of its start among them."""
    distinct, member = torch.unique(start_B, return_inverse=True)
    first = member.new_full((len(distinct),), len(start_B)).scatter_reduce(
        0, member, torch.arange(len(start_B), device=member.device), "amin"
    )
    return first.tolist(), member


@dataclass(frozen=True)
class AboveRunningDeviation(Select):
    """Keeps groups whose reward deviation (n - 1) is at least `share` times a running mean E of such deviations.

    E is the plain mean over the `averaged` steps that follow the first `ignored`; after that E <- (1 - rate) E + rate *
    (mean deviation of the batch before selection), and groups are dropped. Degenerate: before that all are kept.
    """

    share: float = 0.5
    ignored: int = 5
    averaged: int = 5
    rate: float = 0.01
    max_rounds: int = 3

    def init(self, scene: Scene) -> State:
        """Returns E and the number of batches in its plain mean."""
        return {"mean": 0.0, "batches": 0}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the rows of groups that differ enough, and moves E."""
        by_group = groups.row_groups(experience)
        deviation = groups.deviation(groups.outcome(experience).double(), by_group)
        there = groups.total(by_group.share, by_group) > 0
        batch = float((groups.total(deviation, by_group) / by_group.size)[there].mean()) if there.any() else 0.0
        step, threshold = scene.progress.step, self.share * state["mean"]
        scene.log("deviation_threshold", threshold)
        if self.ignored <= step < self.ignored + self.averaged:
            state["batches"] += 1
            state["mean"] += (batch - state["mean"]) / state["batches"]
        if step < self.ignored + self.averaged:
            return experience
        state["mean"] += self.rate * (batch - state["mean"])
        enough = deviation >= threshold * (1.0 - ROUNDING)
        return experience.rows(groups.any_of(enough, groups.linked_groups(experience)))


ROUNDING = 1e-6
"""A deviation that equals the threshold up to rounding is kept."""
