"""Evaluation of a policy on held-out starts, the same ones for every method and seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Certified, Draw, Need, State
from assay.core.slots import (
    Certificate,
    CountedTask,
    ExactTask,
    GameTask,
    Models,
    PairedTask,
    PromptedTask,
    Reward,
    Scene,
    Task,
    UncertainTask,
    most_decisions,
)
from assay.core.spaces import Vocabulary
from assay.engine.memory import ROWS, parts_below, whole_numbers

PROMPTS, EPISODES, PAIRS = 256, 20, 64
"""Held-out starts of one evaluation, for language tasks, control tasks and preference pairs."""
MOST, SHARE = 10, 0.1
"""Evaluations in a run by default, at most, and decisions of evaluations as a share of those trained."""
FIRST_CERTIFIED, SEARCHED = 1_000_000, 10_000
"""The first held-out start of certificates, far from those of evaluations, and how many are searched for prompts."""
LEAST_CERTIFIED = 30
"""Distinct held-out prompts without which no certificate is given."""


def default_starts(task: Task) -> int:
    """Returns the default number of starts of an evaluation: the task's own if it names one; for an uncertain task, as
    many for each regime.
    """
    if isinstance(task, CountedTask):
        return task.num_held_out
    if isinstance(task, UncertainTask):
        return EPISODES * len(task.regimes)
    return PROMPTS if isinstance(task.spec.action, Vocabulary) else EPISODES


def evaluated_every(recipe: Recipe, task: Task, num_steps: int, num: int | None = None) -> int:
    """Returns the steps between evaluations: at most `MOST` in a run, and evaluated decisions are at most `SHARE` of
    the trained ones. 0 means that only the first and the last evaluation are left, which always happen.

    Counted in decisions of the longest episodes, so that it is a function of the plan and not of a clock.
    """
    starts = (PAIRS if isinstance(task, PairedTask) else default_starts(task)) if num is None else num
    trained = trained_decisions(recipe, task)
    fewest = -(-starts * most_decisions(task) // max(1, int(SHARE * trained))) if trained else 0
    every = max(1, num_steps // MOST, fewest)
    return every if every < num_steps else 0


def trained_decisions(recipe: Recipe, task: Task) -> int:
    """Returns the decisions in the update batches of one step, with episodes of full length."""
    length = most_decisions(task)
    row = length if isinstance(task.spec.action, Vocabulary) else 1  # sources of tokens draw whole sequences
    gathered = sum(
        math.prod(sizes.values()) * (whole_numbers(part, ("steps",)).get("steps", 1) if "num_envs" in sizes else length)
        for _, part in parts_below(recipe.rollout, "rollout")
        if (sizes := whole_numbers(part, ROWS))
    )
    total = 0
    for _, part in (pair for feed in recipe.feeds for pair in parts_below(feed.source, "source")):
        sizes = whole_numbers(part, ("batch", "updates", "epochs", "episodes"))
        if "batch" in sizes:
            total += sizes["batch"] * sizes.get("updates", 1) * row
        elif "epochs" in sizes:
            total += gathered * sizes["epochs"]
    return total or gathered


@torch.no_grad()
def scores(
    actor: Any, task: Task, *, num: int | None = None, samples: int = 1, greedy: bool | None = None
) -> np.ndarray:
    """Returns the score of each (start, sample), [num * samples], on split 1.

    By default a token policy is evaluated with its samples (temperature 1), which is what training improves, and a
    control policy with its mode. Players of games are evaluated with their samples too: the mode of a mixed strategy
    is another strategy. Preference pairs score 1 if the policy finds the chosen completion likelier than the rejected
    one.
    """
    return outcomes(actor, task, num=num, samples=samples, greedy=greedy)[0]


@torch.no_grad()
def outcomes(
    actor: Any, task: Task, *, num: int | None = None, samples: int = 1, greedy: bool | None = None
) -> tuple[np.ndarray, dict[str, float]]:
    """Returns `scores`; for a task with costs also `evaluation_cost`, the mean total cost of an episode; for an
    uncertain task also `evaluation_worst`, the mean score under the worst regime; for an exact task its quantities.
    """
    if isinstance(task, PairedTask):
        return pair_scores(actor, task, PAIRS if num is None else num), {}
    count = default_starts(task) if num is None else num
    if greedy is None:
        greedy = not isinstance(task.spec.action, Vocabulary) and not isinstance(task, GameTask)
    starts = np.repeat(np.arange(count, dtype=np.int64), samples)
    which = np.tile(np.arange(samples, dtype=np.int64), count)
    played = task.play(actor, starts, which, Draw(0, (7,)), split=1, greedy=greedy)
    result: np.ndarray = task.judge(played, 1).column("score").double().numpy()
    more = task.exact(actor) if isinstance(task, ExactTask) else {}
    if isinstance(task, UncertainTask):
        by_start, num = result.reshape(count, samples), len(task.regimes)
        more["evaluation_worst"] = min(float(by_start[regime::num].mean()) for regime in range(min(num, count)))
    if played.cost is not None:
        more["evaluation_cost"] = float((played.cost * played.mask.unsqueeze(-1)).sum() / len(played))
    return result, more


@torch.no_grad()
def certified(
    certificate: Certificate,
    rewards: Sequence[Reward],
    actor: Any,
    task: Task,
    models: Models,
    states: Sequence[State],
) -> Certified:
    """Returns a certificate's verdict on a policy that acts as in training (samples), on `certified_starts`; the
    recipe's rewards write the costs.
    """
    starts = certified_starts(task, certificate.num_starts)
    played = task.play(actor, starts, np.zeros_like(starts), Draw(0, (8,)), split=1, greedy=False)
    scene = Scene(task, models, Draw(0, (9,)), split=1)
    for reward, state in zip(rewards, states, strict=True):
        played = reward(played, scene, deepcopy(state))
    return certificate(played)


def certified_starts(task: Task, num: int) -> np.ndarray:
    """Returns the held-out starts of a certificate: none is that of an evaluation, and no prompt occurs twice.

    A bound counts independent episodes, so a file of prompts is not counted round and round: there are fewer starts if
    it has fewer. AssayError if fewer than `LEAST_CERTIFIED` (or `num`) prompts are left.
    """
    starts = FIRST_CERTIFIED + np.arange(SEARCHED, dtype=np.int64)
    if not isinstance(task, PromptedTask):
        return starts[:num]
    evaluated = np.arange(default_starts(task), dtype=np.int64)
    known, own = set(task.prompts(evaluated, 1)), dict[str, int]()
    for some in np.split(starts, SEARCHED // 100):
        for prompt, start in zip(task.prompts(some, 1), some.tolist(), strict=True):
            if prompt not in known:
                own.setdefault(prompt, start)
        if len(own) >= num:
            break
    if len(own) < min(LEAST_CERTIFIED, num):
        found = f"'{task.name}' has {len(own)} held-out prompts besides the {len(known)} of evaluations"
        raise AssayError(
            f"{found}, and a certificate needs at least {min(LEAST_CERTIFIED, num)}. Give more held-out rows "
            "(TRAIN.jsonl,TEST.jsonl), or use a method without a certificate"
        )
    return np.array(list(own.values())[:num], dtype=np.int64)


def pair_scores(actor: Any, task: PairedTask, num: int) -> np.ndarray:
    """Returns 1 if log pi(chosen) > log pi(rejected), else 0, for each held-out pair."""
    pairs = task.pairs(np.arange(num, dtype=np.int64), 1).to(next(actor.parameters()).device)
    logp = actor.score(pairs, frozenset({Need.LOGP})).logp.sum(1)
    result: np.ndarray = (logp[0::2] > logp[1::2]).double().cpu().numpy()
    return result
