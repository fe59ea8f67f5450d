"""Scores of a trained policy on held-out starts: means, pass@k, majorities, sums of judgements, rows of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw
from assay.core.score_range import Range
from assay.core.settings import settings
from assay.core.slots import Task, TextTask
from assay.core.verifier import COMPONENT
from assay.engine import evaluation
from assay.rollouts import text
from assay.rollouts.judgements import scores_in
from assay.runs.options.scoring import ScoringOptions
from assay.runs.user_code.reward_range import Ranged
from assay.runs.user_code.rewards import OwnRewards
from assay.statistics.intervals import Estimate, cluster_interval, is_binary
from assay.statistics.passk import majority_at_k, pass_at_k, pass_at_k_intervals
from assay.tasks.language.arithmetic import final_answer
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.file_rows import Rows
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.scoring import check_scored
from assay.tasks.language.votes import Vote, listed, reordered, sampled


@dataclass(frozen=True)
class Scored:
    """Scores [starts, samples], labels of independent starts, the answers as text if there are any, and the rewards
    [starts, samples] that the scores are made of, by name.
    """

    values: np.ndarray
    labels: np.ndarray
    more: dict[str, float]
    rows: list[list[dict[str, Any]]]
    rewards: dict[str, np.ndarray] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def of(self, name: str | None) -> Scored:
        """Returns the scores by one reward alone, mapped from its declared range to 0..1; all of them for None. A
        reward that does not apply counts 0.
        """
        if name is None:
            return self
        low, high = self.ranges.get(name, (0.0, 1.0))
        return replace(self, values=np.nan_to_num((self.rewards[name] - low) / (high - low)))


def check_asked(options: ScoringOptions, task: Task) -> None:
    """Refuses what the task cannot answer: votes and shares of right answers without prompts, a reward that it lacks,
    and shares of right answers by a sum of rewards, or by one that is graded.
    """
    if options.votes:
        if not isinstance(task, PromptTask):
            raise AssayError(f"--votes needs prompts that show responses; '{task.name}' has none. Remove it.")
        reordered(task.items.item(0, 1), range(len(listed(task.items.item(0, 1)))))  # refuses what a vote cannot show
    if (options.passk or options.majority) and not isinstance(task, TextTask):
        raise AssayError(f"--passk and --majority need answers to prompts; '{task.name}' has none. Remove them.")
    rewards, ranges = own_rewards(task)
    names = [] if rewards is None else list(rewards.weights)
    if options.of is not None and options.of not in names:
        has = f"its rewards are {', '.join(names)}" if names else "it has a verifier alone"
        raise AssayError(f"--of is '{options.of}', but of '{task.name}' {has}. Name one of its rewards, or remove it.")
    if (options.passk or options.majority) and len(names) > 1 and options.of is None:
        what = "--passk and --majority count right answers, and this run's scores are sums of"
        raise AssayError(f"{what} {', '.join(names)}. Add --of {names[0]}, or another one that is 0 or 1.")
    if rewards is not None and (options.passk or options.majority):
        check_binary(task, rewards, options.of, ranges)


def own_rewards(task: Task) -> tuple[OwnRewards | None, Mapping[str, Range]]:
    """Returns the own rewards that score a task, and the ranges that they declare; None where its verifier does."""
    scorer = task.scorer if isinstance(task, PromptTask | DialogueTask) else None
    if isinstance(scorer, Ranged):
        return scorer.rewards, scorer.ranges
    return (scorer if isinstance(scorer, OwnRewards) else None), {}


def check_binary(task: Task, rewards: OwnRewards, name: str | None, ranges: Mapping[str, Range]) -> None:
    """Refuses a reward by name, or the only one, that is at neither end of its range on right, wrong and empty
    completions of the first prompts: it would be refused after the sampling.
    """
    low, high = ranges.get(name or "", (0.0, 1.0))
    if name is not None:
        rewards = OwnRewards({key: one for key, one in rewards.components.items() if key == name}, {name: 1.0})
        task = replace(cast(PromptTask, task), scorer=rewards)
    rows, values = check_scored(task)
    graded = [(row, value) for row, value in zip(rows, values, strict=True) if value not in (low, high)]
    if graded:
        said = text.escaped(str(graded[0][0]["completion"]), 40)
        told = f"reward {', '.join(rewards.weights)} gives {graded[0][1]:g} for '{said}'"
        what = f"--passk and --majority count right answers; {told}"
        raise AssayError(f"{what}, neither {low:g} nor {high:g}. Name another with --of, or remove them.")


def scored(options: ScoringOptions, task: Task, policy: Any, reference: Any, rows: int = 0) -> Scored:
    """Returns the policy's scores on a task, sampled `rows` at a time (0: all at once)."""
    greedy, samples = True if options.greedy else None, options.samples
    found = evaluation.evaluate(
        policy, task, num=options.starts, samples=samples, greedy=greedy, reference=reference, rows=rows
    )
    values = found.values.reshape(-1, 1 if isinstance(task, PairsTask) else samples)
    labels = evaluation.labels(task, len(values))
    texts = task.texts(found.played, 1) if found.played is not None and isinstance(task, TextTask) else []
    answers = [texts[k : k + samples] for k in range(0, len(texts), samples)]
    parts = {} if found.played is None else found.played.extra
    named = {name.removeprefix(COMPONENT): value for name, value in parts.items() if name.startswith(COMPONENT)}
    rewards = {name: value.double().cpu().numpy().reshape(values.shape) for name, value in named.items()}
    return Scored(values, labels, found.more, answers, rewards, own_rewards(task)[1])


def passed(found: Scored, ks: list[int]) -> tuple[Estimate, ...]:
    """Returns the mean pass@k over prompts, for each k; Wilson's interval if each prompt's is 0 or 1, since resampling
    sees no spread there.
    """
    if not is_binary(found.values.ravel()):
        raise AssayError("--passk needs scores that are 0 or 1; this task gives others. Remove it.")
    samples, correct = found.values.shape[1], found.values.sum(1).astype(int)
    each = pass_at_k(samples, correct, ks)
    resampled = pass_at_k_intervals(samples, correct, ks)
    plain = [cluster_interval(each[:, place], found.labels, bounds=(0.0, 1.0)) for place in range(len(ks))]
    is_plain = [is_binary(each[:, place]) for place in range(len(ks))]
    return tuple(one if here else other for one, other, here in zip(plain, resampled, is_plain, strict=True))


def voted(task: Task, found: Scored) -> Estimate:
    """Returns the mean score of the majority's answer: 1 if it is right, ties count by their share. An answer is what
    the verifier of a file compares, or the final answer of a text.
    """
    items = task.items if isinstance(task, PromptTask) else None
    shares = []
    for values, rows in zip(found.values, found.rows, strict=True):
        said = [row["completion"] for row in rows]
        answers = [items.stated(one) if isinstance(items, Rows) else final_answer(one) or None for one in said]
        right = [answer for answer, value in zip(answers, values, strict=True) if value >= 1 and answer is not None]
        shares.append(majority_at_k(answers, right[0]) if right else 0.0)
    return cluster_interval(shares, found.labels, bounds=(0.0, 1.0))


def summed(samples: int, recipe: Recipe, task: PromptTask, policy: Any, labels: np.ndarray) -> tuple[Estimate, float]:
    """Returns how often the sums of so many judgements put the best response first, and the share of judgements with
    a score for each response.
    """
    marks = [str(value) for path, value in settings(recipe).items() if path[0] == "rewards" and path[-1] == "mark"]
    vote, judged = Vote(samples, mark=next(iter(marks), Vote.mark)), sampled(task, policy, Draw(0, (7,)))
    said = list[str]()

    def write(*asked: Any) -> list[str]:
        said.extend(judged(*asked))
        return said

    right = vote.right(task, write, range(len(labels)), Draw(0, (10,)))
    wanted = [len(listed(item)) for item in task.items_of(np.arange(len(labels)), 1) for _ in range(samples)]
    pairs = zip(said, wanted, strict=True)
    readable = float(np.mean([len(scores_in(one, vote.mark) or ()) == number for one, number in pairs]))
    if not readable:
        example = text.escaped(said[0], 60)
        raise AssayError(
            f"none of the {len(said):,} judgements has scores such as 7,3 (the first is '{example}'), so that there is "
            "nothing to sum. Train the judge first: assay train sft --task FILE"
        )
    return cluster_interval(right, labels, bounds=(0.0, 1.0)), readable


def write_rows(path: Path, found: Scored) -> None:
    """Writes one JSON line per start: the prompt, its answer and facts, the samples and their scores."""
    lines = []
    for place, values in enumerate(found.values):
        rows = found.rows[place] if found.rows else []
        shared = {name: value for name, value in (rows[0] if rows else {}).items() if name not in ("completion", "cut")}
        several = {"samples": [row["completion"] for row in rows], "cut": [row.get("cut", False) for row in rows]}
        record = {"start": place, **shared, **(several if rows else {}), "scores": values.tolist()}
        if found.rewards:
            each = {name: found.rewards[name][place].tolist() for name in found.rewards}
            record["rewards"] = {
                name: [None if value != value else value for value in one] for name, one in each.items()
            }
        lines.append(json.dumps(record, default=str))
    store.write_text(path, "\n".join(lines) + "\n")
