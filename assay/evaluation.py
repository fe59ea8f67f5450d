"""How good a policy is: held-out starts, the same ones for every method and seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from assay.slots import PairedTask, Task
from assay.types import Draw, Need, Vocabulary

PROMPTS, EPISODES = 256, 20
"""Held-out starts of one evaluation, for token tasks and for control."""


def default_starts(task: Task) -> int:
    """How many starts an evaluation uses unless told."""
    return PROMPTS if isinstance(task.spec.action, Vocabulary) else EPISODES


@torch.no_grad()
def scores(
    actor: Any, task: Task, *, num: int | None = None, samples: int = 1, greedy: bool | None = None
) -> np.ndarray:
    """Score of each (start, sample), [num * samples], on split 1.

    Unless told, a token policy is scored as it samples (temperature 1), which is what training improves, and a control
    policy by its mode.
    Preference pairs are scored by whether the policy finds the chosen completion likelier than the rejected one.
    """
    if isinstance(task, PairedTask):
        return pair_scores(actor, task, 64 if num is None else num)
    count = default_starts(task) if num is None else num
    if greedy is None:
        greedy = not isinstance(task.spec.action, Vocabulary)
    starts = np.repeat(np.arange(count, dtype=np.int64), samples)
    which = np.tile(np.arange(samples, dtype=np.int64), count)
    played = task.play(actor, starts, which, Draw(0, (7,)), split=1, greedy=greedy)
    result: np.ndarray = task.judge(played, 1).column("score").double().numpy()
    return result


def pair_scores(actor: Any, task: PairedTask, num: int) -> np.ndarray:
    """1 where log pi(chosen) > log pi(rejected), else 0, for each held-out pair."""
    pairs = task.pairs(np.arange(num, dtype=np.int64), 1).to(next(actor.parameters()).device)
    logp = actor.score(pairs, frozenset({Need.LOGP})).logp.sum(1)
    result: np.ndarray = (logp[0::2] > logp[1::2]).double().cpu().numpy()
    return result
