"""The functions behind rlpr's claims: given probabilities, an independent formula on a network, the filter, the AUC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Outcome, Progress, Scored
from assay.core.slots import Scene
from assay.core.slots.scene import OnRows
from assay.engine.loop import Loop
from assay.methods.rlpr.parts import Reduce, ReferenceProbability
from assay.playing.text import CharacterTokenizer
from assay.tasks.language.arithmetic import exact_match
from assay.tasks.language.prompts import Item, PromptTask
from assay.tasks.language.scratch import scratch

STEEP, FLAT = (0.9, 0.9, 0.9, 0.01), (0.6, 0.6, 0.6, 0.6)
"""Probabilities of four reference tokens: three likely and one not, and all the same."""


@dataclass(frozen=True)
class Named:
    """Models by name, without an engine."""

    by_name: dict[str, Any]

    def model(self, name: str) -> Any:
        """The model."""
        return self.by_name[name]

    @torch.no_grad()
    def over(self, name: str, experience: Experience, function: OnRows) -> Tensor:
        """All rows at once."""
        return function(self.by_name[name], experience)


@dataclass(frozen=True)
class Saying:
    """An actor that gives the decisions of row b these probabilities, in order; the last row's to all further ones."""

    probs: tuple[Sequence[float], ...]

    def score(self, batch: Experience, needs: Any) -> Scored:
        """Their logarithms."""
        logp = torch.zeros(batch.mask.shape, dtype=torch.float64)
        for row, mask in enumerate(batch.mask):
            given = self.probs[min(row, len(self.probs) - 1)]
            logp[row, mask] = torch.tensor(given, dtype=torch.float64).log()[: int(mask.sum())]
        return Scored(logp)


@dataclass(frozen=True)
class Letters:
    """One prompt whose reference is "abcd"."""

    def item(self, ordinal: int, split: int) -> Item:
        """Always the same."""
        return Item("q=", "abcd", ">abcd")

    def verify(self, item: Item, completion: str) -> Outcome:
        """Not asked."""
        return exact_match(item.answer, completion)


LETTERS = PromptTask("letters", Letters(), CharacterTokenizer(), max_prompt=4, max_tokens=12)


def rewarded(
    recipe: Recipe,
    said: Sequence[str],
    probs: Sequence[Sequence[float]],
    start: float,
    faults: Sequence[int] = (),
    cut: Sequence[int] = (),
) -> Tensor:
    """Total reward [B] by the recipe's own rewards, if the reference is as likely as given; the start says `start`."""
    batch = probes.completed(LETTERS, said, [0] * len(said), faults=faults, cut=cut)
    scene = Scene(LETTERS, Named({"actor": Saying(tuple(probs)), "start": Saying(((start,) * 4,))}))
    batch = batch.with_columns(reward=batch.reward.double())
    for part in recipe.rewards:
        batch = part(batch, scene)
    return (batch.reward * batch.mask).sum(1)


def reward_error(recipe: Recipe) -> Tensor:
    """Against 0.9 max(0, B - 0.6) + 0.1 format: steep, flat, below the start, no mark, two marks, fault, cut."""
    said = ["x>abcx", "x>abcd", ">a", "abcd", "x>a>b", "x>abcd", "x>ab"]
    probs = [STEEP, FLAT, [0.3] * 4, [1.0] * 4, [1.0] * 4, [1.0] * 4, [0.9] * 4]
    expected = torch.tensor([0.16975, 0.1, 0.1, 0.0, 0.0, 0.0, 0.37], dtype=torch.float64)
    return (rewarded(recipe, said, probs, 0.6, faults=(5,), cut=(6,)) - expected).abs().max()


def reduced(reduce: Reduce, probs: Sequence[float]) -> float:
    """What the reduction makes of four probabilities; a fifth, masked one must not count."""
    logp = torch.tensor([[*probs, 0.5]], dtype=torch.float64).log()
    return float(reduce(logp, torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0]], dtype=torch.float64)))


def advantages(recipe: Recipe, probs: Sequence[float], start: float) -> Tensor:
    """Advantage of each member of a group, by the recipe's rewards and credit."""
    said = [f"{step}>abcd" for step in range(len(probs))]
    total = rewarded(recipe, said, [[prob] * 4 for prob in probs], start)
    group = probes.bandit_experience([0] * len(probs), total, torch.zeros(2))
    return probes.credited(recipe, group).column("advantage")[:, 0]


def network_error(recipe: Recipe) -> float:
    """On real networks: total reward minus the formula with one softmax for each reference token, decoded in turn."""
    task, said = scratch(3), ["012>31", ">22", "4>0", "9"]
    loop = Loop(recipe, task, seed=3, num_steps=1)
    actor, start = loop.engine.models["actor"], loop.engine.models["start"]
    for parameter in actor.parameters():
        parameter.data.mul_(3.0)
    batch = probes.completed(task, said, [0, 1, 1, 2])
    paid, error = recipe.rewards[0](batch, Scene(task, loop.engine)).reward.sum(1), 0.0
    for row, told in enumerate(task.texts(batch, 0)):
        z, mark, _ = told["completion"].partition(">")
        own = mean_probability(task, actor, told["prompt"] + z + mark, told["answer"]) if mark else 0.0
        plain = mean_probability(task, start, told["prompt"], told["answer"])
        error = max(error, abs(0.9 * max(0.0, own - plain) + 0.1 * bool(mark) - float(paid[row])))
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


def push_at(recipe: Recipe, ratio: float) -> Tensor:
    """How hard a good answer whose ratio has already moved is still pushed."""
    pulls = probes.bandit_experience([0, 1], [1.0, 0.0], torch.zeros(2))
    return probes.decision_weights(recipe, pulls, pulls.logp + torch.tensor([[ratio], [1.0]]).log())[0, 0]


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
    loop = Loop(recipes.sft(), task, seed=seed, num_steps=100)
    for _ in range(100):
        loop.step()
    starts, samples = np.repeat(np.arange(64), 8), np.tile(np.arange(8), 64)
    played = task.play(loop.actor, starts, samples, Draw(seed, (1,)), split=1, greedy=False)
    right = task.judge(played, 1).column("score") > 0.5
    scene = Scene(task, Named({"actor": loop.actor, "start": loop.actor}), split=1)
    paid = [ReferenceProbability(bare=">", reduce=one)(played, scene).column("score") for one in (ours, theirs)]
    return auc(paid[0], right) - auc(paid[1], right)


def auc(value: Tensor, is_right: Tensor) -> float:
    """P(a right row has the larger value), ties a half."""
    right, wrong = value[is_right].unsqueeze(1), value[~is_right]
    return float(((right > wrong).double() + (right == wrong).double() / 2).mean())
