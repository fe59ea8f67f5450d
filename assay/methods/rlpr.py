"""rlpr: grpo without a verifier, paid by how likely its reasoning makes the reference answer.

    r = 0.9 max(0, B - A0) + 0.1 format;   B = mean_t pi(y*_t | x, own reasoning),  A0 = mean_t pi_start(y*_t | x)
    a group is dropped if std(r) < 0.5 E, E a running mean of such deviations;   the rest is grpo with clip 0.2 / 0.27
    over the reasoning up to the mark: the own answer is not in B, so that r says nothing about its tokens

Yu et al. 2025. Answers that no rule can verify still have a probability. The start's own probability is taken off, so
that answers it could guess pay nothing; as a constant of the prompt it acts through the floor at 0 alone.

Axes: B, T, G groups.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Copy, Experience, Method, Prepare, Preset, PromptTask, Recipe, Reward
from assay.method import Scene, Select, State, answer_format_of, groups, logp_of, model_name, reasoned_answer, recipes
from assay.method import text, with_policy
from assay.parts import Clip, GroupDeviation, GroupMean, Matches, OutcomeCredit, PolicyGradient, Reduce, SequenceMean
from assay.parts import Weighted, WeightedSum, mean_probability, on_last_decision


@dataclass(frozen=True)
class ReferenceProbability(Reward):
    """reward = max(0, B - A0): what the own reasoning adds to the probability of the reference answer (RLPR).

    B: `reduce` of the actor's probabilities of the reference in place of the own answer, after everything up to the
    task's mark. A0: the same under `start`, the frozen copy of the start, after the prompt and the mark alone, without
    reasoning. B is 0 if the completion has not exactly one mark, or tokens that are no text. The text is tokenised as
    a whole. Never carries gradient.
    """

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
        mark_of(scene.task)
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with max(0, B - A0) on each last decision; logs the means of both."""
        assert isinstance(scene.task, PromptTask), "init refuses other tasks"
        rows = scene.task.texts(experience, scene.split)
        mark, gap = mark_of(scene.task), answer_format_of(scene.task).gap
        said = [row["completion"] for row in rows]
        marked = [one.count(mark) == 1 and is_text(scene.task, one) for one in said]
        begun = [one.partition(mark)[0] + mark if ok else mark for one, ok in zip(said, marked, strict=True)]
        reasoned = [(row["prompt"], one, gap + row["answer"]) for row, one in zip(rows, begun, strict=True)]
        with_reasoning = self.probability(self.actor, reasoned, scene) * torch.tensor(marked)
        without = self.probability(self.start, [(row["prompt"], mark, gap + row["answer"]) for row in rows], scene)
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


def is_text(task: PromptTask, said: str) -> bool:
    """Returns whether a completion can be tokenised again: a policy may also write tokens that stand for no text."""
    try:
        task.tokenizer.encode(said)
    except ValueError:
        return False
    return True


def reference_ids(task: PromptTask, prompt: str, said: str, answer: str) -> tuple[list[int], list[int]]:
    """The tokens of the prompt and of `said` with the answer, cut where those of `said` alone stop agreeing."""
    whole, before = task.tokenizer.encode(said + answer), task.tokenizer.encode(said)
    cut = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(whole, before, strict=False)))
    return task.told([prompt])[0] + whole[:cut], whole[cut:]


def mark_of(task: PromptTask) -> str:
    """Returns the mark that ends the reasoning; raises AssayError if the task has none, or cannot write it."""
    try:
        mark = answer_format_of(task).need_mark()
        task.tokenizer.encode(mark)
    except (AssayError, ValueError) as error:
        raise AssayError(f"task '{task.name}': {error}") from None
    return mark


@dataclass(frozen=True)
class ReasoningOnly(Prepare):
    """Takes the decisions after the task's mark out of the loss: advantage 0 and no longer in the mask.

    The token that completes the mark stays. A completion with no mark, or with several, stays whole: its format is at
    fault, wherever that began. Degenerate: outside of a run, without a task of prompts, nothing changes.
    """

    reads: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        task = scene.task
        if not isinstance(task, PromptTask):
            return experience
        mark, kept = mark_of(task), experience.mask.clone()
        for row, said in enumerate(task.completions(experience)):
            if said.count(mark) == 1:
                place = experience.mask[row].nonzero().flatten()
                kept[row, place[num_until(task, experience.action[row, place].tolist(), mark) :]] = False
        scene.log("reasoning_share", float(kept.sum()), float(experience.mask.sum()))
        return replace(experience, mask=kept).add({"advantage": experience.column("advantage") * kept})


def num_until(task: PromptTask, ids: Sequence[int], mark: str) -> int:
    """Returns how many of the tokens it takes until their text has the mark; all of them if it never has."""
    return bisect_left(range(len(ids)), True, key=lambda num: mark in text.readable(task.tokenizer, ids[:num]))


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


RATE = 1e-4
"""A third of the preset's: the reward follows the policy, and larger steps outrun it."""


def recipe(preset: Preset = LANGUAGE, reduce: Reduce = mean_probability) -> Recipe:
    """Returns grpo paid by the probability of the reference answer, on prompts whose rewards vary enough."""
    paid = {
        "reference": Weighted(ReferenceProbability(reduce), 0.9),
        "format": Weighted(Matches(reasoned_answer), 0.1),
    }
    base = replace(
        recipes.grpo(preset),
        rewards=(WeightedSum(paid),),
        select=AboveRunningDeviation(),
        credit=(OutcomeCredit(GroupMean(), GroupDeviation(1e-6)), ReasoningOnly()),
        copies={"start": Copy("actor")},
    )
    ours = with_policy(base, "rlpr", PolicyGradient(trust=Clip(0.2, 0.27), aggregate=SequenceMean()))
    return ours.set("learning_rate", RATE)


METHOD = Method(
    paper="arXiv:2506.18254",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="scratch",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "reasoning ends with the task's mark instead of tags; no penalty of repetition; probabilities are not rounded",
        "A0 is asked after the mark alone, because a model that was warmed up on demonstrations never omits it",
        "the own answer, whose tokens the reward does not depend on, is not trained on; the authors' code trains on it",
        "A0 is computed from the frozen copy of the start whenever a prompt comes up, which gives the same number",
        "at most three rounds of sampling fill the batch; E moves at each round",
    ),
    pilots=(
        "the learning rate is 1e-4: with the preset's 3e-4 the scores of three seeds went from 0.63, 0.82, 0.80 to "
        "0.58, 0.84, 0.81 in 60 steps, with 1e-4 to 0.65, 0.83, 0.90 (grpo: 0.61, 0.85, 0.89)",
    ),
)
