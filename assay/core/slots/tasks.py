"""Protocols of tasks: the required interface, and optional ones. Axes: N instances, B sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.core.slots.simulations import Simulation
from assay.core.spaces import Context, Spec


@runtime_checkable
class Task(Protocol):
    """An environment or a set of prompts. `split` 0 is for training, 1 is held out: no start is in both if the task
    can tell.

    Law: start `ordinal` of a split is a function of the ordinal alone.
    """

    @property
    def name(self) -> str:
        """The name that selects it."""

    @property
    def spec(self) -> Spec:
        """The observation and action spaces, and the episode length."""

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Plays complete episodes, one row for each (start, sample); column `start` in `extra` keeps the ordinals."""

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds rewards to experience that `play` left unrewarded (verifiers); the identity if steps carry rewards."""

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns one sequence as readable text."""


@runtime_checkable
class SteppingTask(Task, Protocol):
    """A task with an inner state that can be stepped: control, games, bandits, tables."""

    def simulate(self, num: int) -> Simulation:
        """Returns N instances side by side."""


@runtime_checkable
class DeviceTask(SteppingTask, Protocol):
    """A task that may be simulated on a device, beside the policy."""

    @property
    def is_portable(self) -> bool:
        """Whether it can be simulated on a device."""

    def on(self, device: str) -> Task:
        """Returns the task whose simulations have their tensors on a device."""


@runtime_checkable
class DemonstratedTask(Task, Protocol):
    """A task with demonstrations."""

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Returns one good sequence for each start; `logp` is 0 and `source` marks that the policy did not act."""


@runtime_checkable
class SupervisedTask(DemonstratedTask, Protocol):
    """A task whose demonstrations may be conversations in which several replies are trained."""

    def supervise(self, starts: np.ndarray, split: int) -> Experience:
        """Returns what `demonstrate` does, with all trained replies of a conversation as decisions: they need not be
        contiguous, and the tokens between them are context.
        """


@runtime_checkable
class ExactTask(Task, Protocol):
    """A task on which quantities of a policy can be computed without sampling; every evaluation logs them.

    Law: the numbers are a function of the policy alone.
    """

    def exact(self, actor: Any) -> dict[str, float]:
        """Returns the exact quantities of a policy by name, such as its pass rate."""


@runtime_checkable
class PresetTask(Task, Protocol):
    """A task that names the preset of defaults that suits it (see `assay.recipes.presets`)."""

    @property
    def preset(self) -> str:
        """`classic`, or the name of another preset."""


@runtime_checkable
class ScriptedTask(Task, Protocol):
    """A task with a scripted expert that acts in any context, so that datasets of any quality can be generated."""

    @property
    def expert(self) -> Callable[[Context], Tensor] | None:
        """The scripted expert's action for each row, or None if the task has no expert."""


@runtime_checkable
class RewardedSuccessTask(Task, Protocol):
    """A task that says whether its reward tells success: a decision has a positive reward if and only if it solves the
    task. Then offline data of it need no column `success`.
    """

    @property
    def rewards_success(self) -> bool:
        """Whether positive rewards, and they alone, are successes."""


@runtime_checkable
class RoamingTask(Task, Protocol):
    """A goal-conditioned task that can also be played without end, one goal after the other, to generate play data."""

    @property
    def roaming(self) -> Task | None:
        """The same task with a new goal after each reached one, or None if it has no such version."""

    @property
    def distance(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """The steps of the shortest path from `achieved` to a `goal`, for evaluation only; None if unknown."""


@runtime_checkable
class LoggedTask(Task, Protocol):
    """A task with an offline dataset of its own, another one for each run seed, so that results over seeds contain the
    variance of the data.

    Law: equal draws give equal datasets.
    """

    @property
    def logged(self) -> Callable[[Draw], Experience] | None:
        """The episodes of the dataset of a draw, or None if the task has no dataset."""


@runtime_checkable
class RepeatingTask(Task, Protocol):
    """A task of prompts that may be finitely many: then start k is row k modulo their number.

    Law: `order` takes every row once in each pass (with weights: as often as they say), as a function of the draw and
    the ordinal alone; different ordinals have different starts.
    """

    @property
    def num_training(self) -> int:
        """The number of training rows; 0 if prompts do not repeat."""

    @property
    def num_testing(self) -> int:
        """The number of held-out rows; 0 if prompts do not repeat."""

    def order(self, ordinals: np.ndarray, draw: Draw) -> np.ndarray:
        """Returns the training start at each place of the run's order; the ordinal itself if prompts do not repeat."""

    def prompts_of(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the prompt of each start: rows with equal prompts are not independent."""


@runtime_checkable
class CountedTask(Task, Protocol):
    """A task that says on how many held-out starts a policy is evaluated."""

    @property
    def num_held_out(self) -> int:
        """The number of held-out starts of one evaluation."""


@runtime_checkable
class CostlyTask(Task, Protocol):
    """A task with a scripted policy that ignores costs, in addition to a cautious expert."""

    @property
    def reckless(self) -> Callable[[Context], Tensor] | None:
        """The action of a scripted policy that ignores costs, for each row; None if there is no such script."""


@runtime_checkable
class ProxyTask(Task, Protocol):
    """A task whose true reward is not available in training, only a proxy of it."""

    @property
    def proxy(self) -> Callable[[Context], Tensor] | None:
        """What a decision is worth by the context after it, as far as can be seen; None where the reward is seen."""


@runtime_checkable
class GameTask(Task, Protocol):
    """A task in which several players decide. One policy plays all of them in training (self-play).

    `play` on split 0 returns one row for each (start, sample, player), each with that player's observations; the
    others' moves are context: mask false. Rows of one game share `episode`, `player` [B] counts from 0, and `group`
    holds the rows of one start and player. On split 1 there is one row for each (start, sample), that of the
    evaluated player: the ordinal of the start determines its seat and its opponents, which may be players that
    training never meets.
    """

    @property
    def num_players(self) -> int:
        """Number of players of a game."""

    def play_against(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, player: int, split: int
    ) -> Experience:
        """Plays games with the task's own fixed opponents in all seats but `player`; returns that player's rows."""


@runtime_checkable
class UncertainTask(Task, Protocol):
    """A task whose transitions are known up to a set of regimes; each episode has one regime.

    Training uses the first regime, the nominal one. Held-out start o is played under regime o modulo their number, so
    that an evaluation covers all of them.
    """

    @property
    def regimes(self) -> Sequence[Any]:
        """The regimes, the nominal one first."""

    def under(self, regime: Any) -> Task:
        """Returns the task under this regime."""

    def mixed(self) -> Task:
        """Returns the task in which every episode draws its regime uniformly."""


@runtime_checkable
class BoxedTask(UncertainTask, Protocol):
    """An uncertain task whose regimes are numbers between bounds; `regimes` are those that an evaluation covers."""

    @property
    def bounds(self) -> tuple[Sequence[float], Sequence[float]] | None:
        """The least and the largest of each number; None if the regimes are a list."""
