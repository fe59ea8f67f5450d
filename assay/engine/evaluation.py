"""Evaluation of a policy on held-out starts, the same ones for every method and seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Certified, Draw, Experience, Need, Scored, State, concatenate
from assay.core.slots import (
    Certificate,
    CountedTask,
    ExactTask,
    GameTask,
    Models,
    PairedTask,
    PromptedTask,
    RepeatingTask,
    Reward,
    Scene,
    SourcedTask,
    Task,
    TextTask,
    UncertainTask,
    most_decisions,
)
from assay.core.spaces import Vocabulary
from assay.core.verifier import COMPONENT
from assay.engine.memory import ROWS, parts_below, whole_numbers

PROMPTS, EPISODES = 256, 20
"""Held-out starts of one evaluation, for language tasks and for control tasks."""
MOST, SHARE = 10, 0.1
"""Evaluations in a run by default, at most, and decisions of evaluations as a share of those trained."""
FIRST_CERTIFIED, SEARCHED = 1_000_000, 10_000
"""The first held-out start of certificates, far from those of evaluations, and how many are searched for prompts."""
PAIRS_AT_ONCE, EVEN = 32, 1e-6
"""Pairs of one forward pass, and the difference of implicit rewards (in nats) up to which they are equal."""
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
    the trained ones, those before the first and after the last step included. 0 means that only these two are left,
    which always happen.

    Counted in decisions of the longest episodes, so that it is a function of the plan and not of a clock.
    """
    evaluated = num_starts(task, num) * most_decisions(task)
    trained = trained_decisions(recipe, task)
    allowed = int(SHARE * trained * num_steps) // max(1, evaluated) - 2 if trained else MOST
    if allowed < 1:
        return 0
    every = max(1, num_steps // MOST, -(-num_steps // (allowed + 1)))
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


def num_starts(task: Task, wanted: int | None = None) -> int:
    """Returns the held-out starts of an evaluation: as many as wanted, but no row of a file twice."""
    number = default_starts(task) if wanted is None else wanted
    rows = task.num_testing if isinstance(task, RepeatingTask) else 0
    return min(number, rows) if rows else number


def labels(task: Task, number: int) -> np.ndarray:
    """Labels the first `number` held-out starts, equal if their prompts are: what is independent has its own label."""
    starts = np.arange(number, dtype=np.int64)
    if not isinstance(task, RepeatingTask):
        return starts
    known = dict[str, int]()
    return np.array([known.setdefault(prompt, len(known)) for prompt in task.prompts_of(starts, 1)], dtype=np.int64)


@dataclass(frozen=True)
class Evaluated:
    """The score of each (start, sample), [num * samples]; other numbers by name; and the judged episodes, if any."""

    values: np.ndarray
    more: dict[str, float]
    played: Experience | None = None


@torch.no_grad()
def scores(
    actor: Any, task: Task, *, num: int | None = None, samples: int = 1, greedy: bool | None = None
) -> np.ndarray:
    """Returns the score of each (start, sample), [num * samples], on split 1.

    By default a token policy is evaluated with its samples (temperature 1), which is what training improves, and a
    control policy with its mode. Players of games are evaluated with their samples too: the mode of a mixed strategy
    is another strategy. Preference pairs: see `pair_scores`.
    """
    return outcomes(actor, task, num=num, samples=samples, greedy=greedy)[0]


def outcomes(
    actor: Any, task: Task, *, num: int | None = None, samples: int = 1, greedy: bool | None = None
) -> tuple[np.ndarray, dict[str, float]]:
    """Returns `scores` and the other numbers of `evaluate`."""
    found = evaluate(actor, task, num=num, samples=samples, greedy=greedy)
    return found.values, found.more


@runtime_checkable
class Scoring(Protocol):
    """A policy with probabilities of given decisions; a search by beams has none."""

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the log-probabilities of the decisions."""

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """Returns its weights."""


@torch.no_grad()
def evaluate(
    actor: Any,
    task: Task,
    *,
    num: int | None = None,
    samples: int = 1,
    greedy: bool | None = None,
    reference: Any = None,
    rows: int = 0,
) -> Evaluated:
    """Returns scores, with at most `rows` episodes played at a time (0: all at once); for a task with costs also
    `evaluation_cost`, the mean total cost of an episode; for an uncertain task also `evaluation_worst`, the mean score
    under the worst regime; for an exact task its quantities; for files with sources also `evaluation_from/SOURCE`; for
    pairs with a `reference` also `evaluation_margin`.
    """
    count = num_starts(task, num)
    if isinstance(task, PairedTask):
        return pair_scores(actor, task, count, reference)
    if greedy is None:
        # Of tokens and in games samples are scored: the mode of a mixed strategy is another strategy.
        greedy = not isinstance(task.spec.action, Vocabulary) and not isinstance(task, GameTask)
    played = played_apart(actor, task, count, samples, greedy=greedy, rows=rows)
    result: np.ndarray = played.column("score").double().cpu().numpy()
    more = task.exact(actor) if isinstance(task, ExactTask) and isinstance(actor, Scoring) else {}
    more |= component_means(played)
    if isinstance(task, UncertainTask):
        by_start, num = result.reshape(count, samples), len(task.regimes)
        more["evaluation_worst"] = min(float(by_start[regime::num].mean()) for regime in range(min(num, count)))
    if played.cost is not None:
        more["evaluation_cost"] = float((played.cost * played.mask.unsqueeze(-1)).sum() / len(played))
    return Evaluated(result, more | by_source(task, played, result), played)


def played_apart(actor: Any, task: Task, count: int, samples: int, *, greedy: bool, rows: int = 0) -> Experience:
    """Returns the judged episodes of the first held-out starts, at most `rows` played at a time; those of a start stay
    together. Draws belong to start and sample, so that the number of rows changes no score.
    """
    size = max(1, rows // samples) if rows else count
    parts = []
    for first in range(0, count, size):
        some = np.arange(first, min(count, first + size), dtype=np.int64)
        # Samples of a start are neighbours in the results, whatever is played at a time.
        which = np.tile(np.arange(samples, dtype=np.int64), len(some))
        played = task.play(actor, np.repeat(some, samples), which, Draw(0, (7,)), split=1, greedy=greedy)
        parts.append(task.judge(played, 1))
    return concatenate(parts)


def describe_samples(found: Evaluated, task: Task, number: int) -> list[dict[str, Any]]:
    """Returns the first held-out answers of a language task as text, marked as held out; none of other tasks."""
    if found.played is None or not isinstance(task.spec.action, Vocabulary):
        return []
    return [{**task.describe(found.played, row), "heldout": True} for row in range(min(number, len(found.played)))]


def source_metrics(fresh: Experience, task: Task) -> dict[str, float]:
    """Returns the mean score of the rows of each source of a file."""
    if not isinstance(task, RepeatingTask) or not task.num_training or "score" not in fresh.extra:
        return {}
    if not isinstance(task, SourcedTask) or not task.source_names:
        return {}
    found = torch.tensor([task.source_of(start) for start in fresh.column("start").tolist()])
    score = fresh.extra["score"].to(found.device)
    there = [(name, score[found == place]) for place, name in enumerate(task.source_names)]
    return {f"reward_from/{name}": float(own.mean()) for name, own in there if len(own)}


def by_source(task: Task, played: Experience, values: np.ndarray) -> dict[str, float]:
    """Returns the mean score of the held-out rows of each source of a file."""
    if not (isinstance(task, RepeatingTask) and isinstance(task, TextTask) and task.num_testing):
        return {}
    named = [str(row.get("source", "")) for row in task.texts(played, 1)]
    sources = sorted({name for name in named if name})
    return {f"evaluation_from/{name}": float(values[[own == name for own in named]].mean()) for name in sources}


def component_means(judged: Experience) -> dict[str, float]:
    """Returns `evaluation_reward/NAME`, the mean of each component of the scores over the rows that it applies to."""
    found = {name.removeprefix(COMPONENT): value for name, value in judged.extra.items() if name.startswith(COMPONENT)}
    return {
        f"evaluation_reward/{name}": float(value.nanmean()) for name, value in found.items() if not value.isnan().all()
    }


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
        # A copy: what is certified must not train the reward.
        played = reward(played, scene, deepcopy(state))
    return certificate(played, task)


def certified_starts(task: Task, num: int) -> np.ndarray:
    """Returns the held-out starts of a certificate: none is that of an evaluation, and no prompt occurs twice.

    A bound counts independent episodes, so a file of prompts is not counted round and round: there are fewer starts if
    it has fewer. AssayError if fewer than `LEAST_CERTIFIED` (or `num`) prompts are left.
    """
    starts = FIRST_CERTIFIED + np.arange(SEARCHED, dtype=np.int64)
    if not isinstance(task, PromptedTask):
        return starts[:num]
    evaluated = np.arange(num_starts(task), dtype=np.int64)
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


def pair_scores(actor: Any, task: PairedTask, num: int, reference: Any) -> Evaluated:
    """Returns 1 if h(chosen) > h(rejected), 0.5 if they are equal, else 0, for each held-out pair; h is the implicit
    reward log pi - log pi_ref, and log pi alone without a reference. `evaluation_margin` is the mean of h(chosen) -
    h(rejected), in nats; an untrained policy has accuracy 0.5 and margin 0.
    """
    margins = []
    device = next(actor.parameters()).device
    for begin in range(0, num, PAIRS_AT_ONCE):
        starts = np.arange(begin, min(num, begin + PAIRS_AT_ONCE), dtype=np.int64)
        pairs = task.pairs(starts, 1).to(device)
        value = actor.score(pairs, frozenset({Need.LOGP})).logp.double().sum(1)
        if reference is not None:
            value = value - reference.score(pairs, frozenset({Need.LOGP})).logp.double().sum(1)
        margins.append((value[0::2] - value[1::2]).cpu().numpy())
    # Rounding makes equal policies differ in the last bits: that is no preference.
    margin = np.concatenate(margins)
    values: np.ndarray = np.where(np.abs(margin) <= EVEN, 0.5, margin > 0).astype(np.float64)
    return Evaluated(values, {} if reference is None else {"evaluation_margin": float(margin.mean())})
