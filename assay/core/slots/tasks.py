"""Protocols of tasks: the required interface, and optional ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from assay.core.record import Draw, Experience, State
from assay.core.spaces import Context, Spec


class Simulation(Protocol):
    """N instances of a stepping task, side by side, with Gymnasium's next-step autoreset: the step after an episode's
    end ignores its action, starts the next episode and returns its first observation with reward 0.

    Law: `restore(snapshot())` continues bitwise.
    """

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance; the k-th episode of an instance is a function of (its seed, k)."""

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Steps all instances: (context [N, ...], reward [N], terminal [N], truncated [N], cost [N, K] or None)."""

    def snapshot(self) -> State:
        """Returns everything that `restore` needs."""

    def restore(self, state: State) -> None:
        """Continues from the snapshot."""


Answers = tuple[np.ndarray, Context, Tensor, Tensor, Tensor, Tensor | None]
"""The instances that have answered [n], ascending, and what a step returns, of these alone."""


@runtime_checkable
class ReadySimulation(Simulation, Protocol):
    """A simulation whose instances are stepped apart, so that a slow one does not hold up the others.

    Law: what an instance answers depends on its own actions alone, as if it were stepped by itself.
    """

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The instances that are sent together at first, ascending; later those that answered together are."""

    def send(self, rows: np.ndarray, action: Tensor) -> None:
        """Steps these instances, none of which is in flight, with an action each."""

    def receive(self) -> Answers:
        """Waits until as many as a group, or all that are in flight, have answered; returns those, first come."""


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
class DemonstratedTask(Task, Protocol):
    """A task with demonstrations."""

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Returns one good sequence for each start; `logp` is 0 and `source` marks that the policy did not act."""


@runtime_checkable
class ResumableTask(Task, Protocol):
    """A task whose episodes can start at any point of an episode: after a prefix of tokens, or in a state that given
    actions lead to. Branches, windows and starts inside a stored solution are made of these two calls.

    Law: `resume(begin(starts))` is `play(starts)`, in one call or in several with a limit.
    """

    def begin(self, starts: np.ndarray, split: int) -> Experience:
        """Returns one sequence for each start, without any decision yet."""

    def resume(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int, limit: int | None = None
    ) -> Experience:
        """Continues after the decisions of `begun` (column `answer`, else its mask), which become context: mask
        false.

        At most `limit` new decisions per row; a row that stops there has not ended. The column `answer` [B, T] is
        true on all decisions of the episode in the row, no matter which policy took them: it is what a verifier
        reads. Random numbers belong to (start, sample, time), time being the column `elapsed` [B] of `begun`, else
        its number of decisions.
        """


@runtime_checkable
class AnsweringTask(Task, Protocol):
    """A task whose episodes are answers or conversations of limited length, shorter than its horizon."""

    @property
    def max_decisions(self) -> int:
        """The most decisions of an episode."""


def has_turns(task: ResumableTask) -> bool:
    """Returns whether episodes are conversations of turns, which are continued as a whole only."""
    return task.begin(np.arange(1), 0).turn is not None


def most_decisions(task: Task) -> int:
    """Returns the most decisions of an episode: the limit of answers, or the horizon."""
    return task.max_decisions if isinstance(task, AnsweringTask) else task.spec.horizon


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
class SourcedTask(Task, Protocol):
    """A task whose training starts come from several sources, so that a curriculum can choose between them.

    Law: `source_of(start_in(source, place))` is `source`, and starts of different places differ.
    """

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of the sources; none if the task does not tell its starts apart."""

    def start_in(self, source: int, place: int) -> int:
        """Returns the ordinal of start `place` of a source, in the training split."""

    def source_of(self, start: int) -> int:
        """Returns the number of the source that a training start belongs to."""


@runtime_checkable
class TextTask(Task, Protocol):
    """A task whose rows can be read as text without verification: the input of reward functions and judges."""

    def texts(self, experience: Experience, split: int) -> list[dict[str, Any]]:
        """Returns prompt, completion, answer and the prompt's facts (label, source, ...) of each row, as written."""


@runtime_checkable
class ReplayableTask(TextTask, Protocol):
    """A task of answers or conversations that can be played from changed prompts, and in which the policy can be asked
    something: with lessons from earlier episodes. The law of `PromptedTask` holds.
    """

    def prompts(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the task's own prompt of each start."""

    def play_prompts(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int
    ) -> Experience:
        """Plays like `play`, from these prompts; rows still belong to their starts, by which they are verified."""

    def told(self, prompts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of prompts that a part has written; ValueError for a text that it cannot write."""

    def say(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw
    ) -> tuple[list[str], int]:
        """Returns what the actor writes after each prompt, one answer or utterance, and how many tokens it took."""


@runtime_checkable
class PromptedTask(TextTask, Protocol):
    """A task of prompts that can also be played from changed prompts: with a hint, feedback or privileged text.

    Law: `play` and evaluation use the task's own prompts, whatever prompts a rollout used.
    """

    def prompts(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the task's own prompt of each start."""

    def play_prompts(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int
    ) -> Experience:
        """Plays like `play`, from these prompts; rows still belong to their starts, by which they are verified."""

    def onto(self, experience: Experience, prompts: Sequence[str]) -> Experience:
        """Returns the same decisions, with their log-probabilities and other columns, after other prompts."""

    def bare(self, experience: Experience) -> Experience:
        """Returns the same decisions after the start token alone: without a prompt and without a chat template."""


@runtime_checkable
class PairedTask(Task, Protocol):
    """Prompts with a better and a worse completion."""

    def pairs(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the chosen and the rejected completion of pair i as rows 2i and 2i + 1; `chosen` is +1 and -1."""


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
