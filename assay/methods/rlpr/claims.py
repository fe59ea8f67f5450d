"""The functions behind rlpr's claims: its reward on networks, the filter, the loss by hand, the AUC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay import recipes
from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Progress
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.rlpr.parts import Reduce, ReferenceProbability
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.scratch import scratch


# ---------------------------------------------------------------------------------------------------- the reward
def reward_error(recipe: Recipe) -> float:
    """On networks: the reward minus 0.9 max(0, B - A0) + 0.1 format with one softmax for each reference token, decoded
    in turn: marked, at once, without a mark, with two, cut, and a row that left training.
    """
    task, said = scratch(3), ["012>31", ">22", "4>0", "9", "1>2>3", "7>", "3>1", "3>1"]
    loop = Loop(recipe.set("actor.width", 16).set("actor.layers", 1), task, seed=3, num_steps=1)
    actor, start = loop.engine.models["actor"], loop.engine.models["start"]
    for parameter in start.parameters():  # sharp and mostly wrong, so that the actor is above it on most rows
        parameter.data.mul_(6.0)
    batch = probes.completed(task, said, [0, 1, 1, 2, 2, 3, 3, 4], cut=[6], faults=[7])
    paid, error = probes.rewarded(recipe, task, batch, loop.engine), float(batch.mask[7].any())
    for row, told in enumerate(task.texts(batch, 0)):
        (z, mark, rest), once = said[row].partition(">"), said[row].count(">") == 1
        own = mean_probability(task, actor, told["prompt"] + z + mark, told["answer"]) if once else 0.0
        plain = mean_probability(task, start, told["prompt"], told["answer"])
        right = 0.9 * max(0.0, own - plain) + 0.1 * (bool(rest) and once)
        error = max(error, abs((right if row < 7 else 0.0) - float(paid[row])))
    return error


@torch.no_grad()
def mean_probability(task: PromptTask, actor: Any, told: str, answer: str) -> float:
    """The mean over the answer's tokens of their probability, decoded one after the other."""
    ids = task.tokenizer.encode(answer)
    decoder = actor.decoder([[task.tokenizer.vocabulary.bos, *task.tokenizer.encode(told)]], [1], len(ids))
    probs = []
    for token in ids:
        probs.append(float(decoder.logits().softmax(-1)[0, token]))
        decoder.push(torch.tensor([token]))
    return sum(probs) / len(probs)


def reduced(reduce: Reduce) -> float:
    """What the reduction makes of (.9, .9, .9, .01); a fifth, masked probability must not count."""
    logp = torch.tensor([[0.9, 0.9, 0.9, 0.01, 0.5]], dtype=torch.float64).log()
    return float(reduce(logp, torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0]], dtype=torch.float64)))


def loss_by_hand(seen: probes.Seen) -> Tensor:
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience, epsilon=1e-6), 0.2, 0.27)


# ---------------------------------------------------------------------------------------------------- the filter
def groups_of(deviations: Sequence[float]) -> Experience:
    """Pairs of rewards with these deviations (n - 1)."""
    rewards = [value for one in deviations for value in (0.5, 0.5 + one * 2.0**0.5)]
    return probes.bandit_experience([0] * len(rewards), rewards, torch.zeros(2), members=2)


def filtered(recipe: Recipe) -> tuple[list[int], float]:
    """Which of the deviations 0.30, 0.10, 0.04 are kept at step 11 with E = 0.2, and E after it."""
    assert recipe.select is not None
    state = {"mean": 0.2, "batches": 5}
    kept = recipe.select(groups_of((0.30, 0.10, 0.04)), Scene(progress=Progress(10, 20)), state).group
    return sorted(set(() if kept is None else kept.tolist())), state["mean"]


def kept_wrongly(recipe: Recipe) -> int:
    """Groups on which the filter differs from: the first two."""
    return len({0, 1} ^ set(filtered(recipe)[0]))


def first_mean_error(recipe: Recipe) -> float:
    """E after ten steps with deviations 1, 2, ..., 10 minus the mean of the last five; infinite if a group is lost."""
    assert recipe.select is not None
    state = recipe.select.init(Scene())
    for step in range(10):
        batch = groups_of((1.0 + step, 1.0 + step))
        if len(recipe.select(batch, Scene(progress=Progress(step, 20)), state)) < len(batch):
            return float("inf")
    return abs(float(state["mean"]) - 8.0)


# ---------------------------------------------------------------------------------------------------- measured
def auc_above_likelihood(seed: int, ours: Reduce, theirs: Reduce) -> float:
    """AUC, for right against wrong rollouts of a start, of the reward with one reduction minus that with another."""
    task = scratch(3)
    loop = probes.trained(recipes.sft(), task, seed, 100)
    starts, samples = np.repeat(np.arange(64), 8), np.tile(np.arange(8), 64)
    played = task.play(loop.actor, starts, samples, Draw(seed, (1,)), split=1, greedy=False)
    right = task.judge(played, 1).column("score") > 0.5
    scene = Scene(task, loop.engine, split=1)
    made = [ReferenceProbability(bare=">", reduce=one, start="actor") for one in (ours, theirs)]
    paid = [part(played, scene).column("score") for part in made]
    return auc(paid[0], right) - auc(paid[1], right)


def auc(value: Tensor, is_right: Tensor) -> float:
    """P(a right row has the larger value), ties a half."""
    right, wrong = value[is_right].unsqueeze(1), value[~is_right]
    return float(((right > wrong).double() + (right == wrong).double() / 2).mean())
