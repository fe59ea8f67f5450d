"""refuel: two conversations from a random turn of the policy's own; their returns are the target of that turn alone.

    loss = mean over pairs of (V - V' - (s - s') / eta)^2 eta / 4,   s = sum over turn h of log pi(y) - log pi_old(y)
    V: rewards from turn h to the end,   h uniform in 0..l, l uniform over the turns of the first conversation

Gao et al. 2024. Each iteration is a least squares problem whose minimum, over all pairs of a context, is
pi_old exp(eta Q) / Z at every turn: earlier turns are context, later ones are the environment. Both conversations come
from the current policy, so that it learns in the states that it meets. With one turn it is REBEL.

Axes: B rows, T columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch

from assay.method import DISCARDED, LANGUAGE, AssayError, Choice, Draw, Experience, Method, Prepare, Preset, Recipe
from assay.method import ResumableTask, Rollout, Scene, State, concatenate, first_decisions, is_last_true, random
from assay.method import recipes, with_policy
from assay.parts import FreshSequences, RegressLogRatio


class Turn(Choice, Protocol):
    """Which turn of a conversation is decided again."""

    def __call__(self, num_B: np.ndarray, starts: np.ndarray, draw: Draw) -> np.ndarray:
        """Returns a turn below `num_B`, the number of turns, for each row."""


@dataclass(frozen=True)
class EarlyTurn(Turn):
    """h uniform in 0..l, l uniform: P(h) = (1/H) sum of 1/(l + 1) over l >= h, .457 .257 .157 .090 .040 if H = 5."""

    def __call__(self, num_B: np.ndarray, starts: np.ndarray, draw: Draw) -> np.ndarray:
        upper = num_B
        for tag in range(2):
            upper = 1 + (random.uniform(draw.at(tag), starts) * upper).astype(np.int64)
        return upper - 1


@dataclass(frozen=True)
class LastTurn(Turn):
    """The last turn: preferences of last turns, as single-turn methods have them."""

    def __call__(self, num_B: np.ndarray, starts: np.ndarray, draw: Draw) -> np.ndarray:
        return num_B - 1


@dataclass(frozen=True)
class PairsFromTurn(Rollout):
    """Plays one conversation for each start, then a second one that shares it up to a turn and goes on by itself.

    The two rows are a group. Their decisions begin with that turn, `pair_turn`; those before it are context, count as
    spent, and are what the partner answers to in both. Degenerate: without turns both are answers to the prompt.
    """

    num_starts: int = 64
    turn: Turn = EarlyTurn()
    writes: ClassVar[Mapping[str, str]] = {"pair_turn": "B: the turn from which the two conversations of a pair differ"}

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task's conversations cannot be resumed."""
        if not isinstance(scene.task, ResumableTask):
            raise AssayError(f"PairsFromTurn resumes conversations; task '{scene.task.name}' cannot be. Use Episodes")
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        assert isinstance(task, ResumableTask)
        first = task.play(actor, starts, np.zeros_like(starts), draw, split=0, greedy=False)
        turn = first.mask.long() * 0 if first.turn is None else first.turn
        num = 1 + turn.amax(1).numpy()
        pair_turn = torch.from_numpy(self.turn(num, starts, draw.at(13)))
        is_shared = first.mask & (turn < pair_turn.unsqueeze(1))
        begun = first_decisions(first, is_shared.sum(1))
        second = task.resume(actor, begun, np.ones_like(starts), draw, split=0)
        scene.log(DISCARDED, float(is_shared.sum()))
        first = replace(first, mask=first.mask & ~is_shared).add({"answer": first.mask})
        both = concatenate([first, second])
        return both.add({"pair_turn": pair_turn.repeat(2)})


@dataclass(frozen=True)
class FutureOfTurn(Prepare):
    """Keeps the decisions of the turn `pair_turn` alone, and moves the rewards from it to the end to its last decision.

    Degenerate: without turns, or without pairs of them, all decisions stay, with their sum of rewards.
    """

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `mask` and `reward`."""
        mask = later = experience.mask
        if experience.turn is not None and "pair_turn" in experience.extra:
            since = experience.turn - experience.column("pair_turn").unsqueeze(1)
            mask, later = mask & (since == 0), later & (since >= 0)
        future = (experience.reward * later).sum(1, keepdim=True)
        return replace(experience, mask=mask, reward=torch.where(is_last_true(mask), future, 0.0))


def recipe(preset: Preset = LANGUAGE, eta: float = 1.0, epochs: int = 2, pairs: int = 128) -> Recipe:
    """Returns regression of pairs of conversations that differ from a random turn on."""
    base = with_policy(recipes.rloo(preset), "refuel", RegressLogRatio(1.0 / eta, reference=False))
    return replace(base, credit=(FutureOfTurn(),), rollout=PairsFromTurn(pairs), source=FreshSequences(epochs))


def last_turn(preset: Preset = LANGUAGE, eta: float = 1.0, epochs: int = 2, pairs: int = 128) -> Recipe:
    """Pairs that differ in the last turn of the policy's own conversations: REBEL on last turns."""
    ours = recipe(preset, eta, epochs)
    return replace(ours, rollout=PairsFromTurn(pairs, LastTurn()))


METHOD = Method(
    paper="arXiv:2410.04612",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="twenty-questions-2",
    family="preference",
    base=recipes.rloo,
    variants={"refuel-last-turn": last_turn},
    departures=(
        "V is the sum of rewards from turn h to the end, as the paper writes; the authors' code scores by a reward "
        "model the conversation cut after turn l. With one reward at the end both agree where l is the last turn",
        "H is the number of turns that the first conversation had, not a constant",
        "eta 1 with two steps on a batch of 128 pairs, not 1000 with one pass over 64,000; loss over 4 eta, which "
        "changes no minimum; log-probabilities as sampled, not computed again",
        "pairs with equal turns are kept: their loss has no gradient",
        "not measured: a simulated user that is a language model",
    ),
    results=(
        "the regression of whole conversations, all turns at once, is ahead at equal tokens (30 points at 3 turns): "
        "every question there has a right answer of its own, so that a pair may teach all turns, of which this "
        "teaches one; it is ahead of last turns alone, the paper's rival",
        "on twenty-questions-2 with a supervised start, 40 steps took the held-out score from 0.41 to 0.59 (seed 0)",
    ),
)
