"""What tasks must do, and what some of them can do besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from assay.core.record import Draw, Experience, Outcome, State
from assay.core.spaces import Context, Spec


class Simulation(Protocol):
    """N instances of a stepping task, side by side, with Gymnasium's next-step autoreset: the step after an episode's
    end ignores its action, starts the next episode and returns its first observation with reward 0.

    Law: `restore(snapshot())` continues bitwise.
    """

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance; the k-th episode of an instance is a function of (its seed, k)."""

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """One step of all: (context [N, ...], reward [N], terminal [N], truncated [N], cost [N, K] or None)."""

    def snapshot(self) -> State:
        """Everything that `restore` needs."""

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""


@runtime_checkable
class Task(Protocol):
    """Where decisions are made. `split` 0 is for training, 1 is held out: no start is in both where the task can tell.

    Law: start `ordinal` of a split is a function of the ordinal alone.
    """

    @property
    def name(self) -> str:
        """The name it is found by."""

    @property
    def spec(self) -> Spec:
        """What is seen and decided."""

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Whole episodes, one row for each (start, sample); column `start` in `extra` keeps the ordinals."""

    def judge(self, experience: Experience, split: int) -> Experience:
        """Puts rewards on experience that `play` left unrewarded (verifiers); identity where steps carry rewards."""

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """One sequence for people to read."""


@runtime_checkable
class SteppingTask(Task, Protocol):
    """A task with an inner state that can be stepped: control, games, bandits, tables."""

    def simulate(self, num: int) -> Simulation:
        """N instances side by side."""


@runtime_checkable
class DemonstratedTask(Task, Protocol):
    """A task that can show how it is done."""

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """One good sequence for each start; `logp` is 0 and `source` says that the policy did not act."""


@runtime_checkable
class ResumableTask(Task, Protocol):
    """A task whose episodes can start at any point of an episode: after a prefix of tokens, in a state that given
    actions lead to. Branches, windows and starts inside a stored solution are made of these two calls.

    Law: `resume(begin(starts))` is `play(starts)`, in one call or in several with a limit.
    """

    def begin(self, starts: np.ndarray, split: int) -> Experience:
        """One sequence for each start in which nothing has been decided yet."""

    def resume(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int, limit: int | None = None
    ) -> Experience:
        """Goes on from the decisions of `begun` (column `answer`, else its mask), which are context: mask false.

        At most `limit` new decisions a row; a row that stops there has not ended. The column `answer` [B, T] is true on
        all decisions of the episode that the row shows, whoever took them: what a verifier reads. Random numbers
        belong to (start, sample, time), time being the column `elapsed` [B] of `begun`, else its number of decisions.
        """


@runtime_checkable
class PresetTask(Task, Protocol):
    """A task that names the preset of defaults which suits it (see `assay.recipes.defaults`)."""

    @property
    def preset(self) -> str:
        """`classic`, or the name of another preset."""


@runtime_checkable
class ScriptedTask(Task, Protocol):
    """A task whose expert can be asked in any context, so that data of any quality can be made of it."""

    @property
    def expert(self) -> Callable[[Context], Tensor] | None:
        """A good action for each row; None where nobody wrote one."""


@runtime_checkable
class RoamingTask(Task, Protocol):
    """A task with goals that can also be wandered in: one goal after the other, no end. Play data are made of it."""

    @property
    def roaming(self) -> Task | None:
        """The same task with goals that follow each other; None where nobody wrote one."""

    @property
    def distance(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """Steps of the shortest way from what was `achieved` to a `goal`; for judging what was learned, never for
        learning. None where nobody knows."""


@runtime_checkable
class CostlyTask(Task, Protocol):
    """A task with a script that does not heed costs, beside an expert that does."""

    @property
    def reckless(self) -> Callable[[Context], Tensor] | None:
        """A rewarding action for each row, whatever it costs; None where nothing costs, or nobody wrote it."""


@runtime_checkable
class VerifiedTask(Task, Protocol):
    """Prompts with a verifier."""

    def verify(self, prompts: Sequence[str], completions: Sequence[str], items: Sequence[Any]) -> list[Outcome]:
        """One outcome for each completion; never raises because of a completion's text."""


@runtime_checkable
class TextTask(Task, Protocol):
    """A task whose rows can be read as text, without verifying them: what reward functions and judges get."""

    def texts(self, experience: Experience, split: int) -> list[dict[str, Any]]:
        """Returns prompt, completion, answer and the prompt's facts (label, source, ...) of each row, as written."""


@runtime_checkable
class PromptedTask(TextTask, Protocol):
    """A task of prompts that can also be played from other prompts: with a hint, feedback or privileged text in them.

    Law: `play` and an evaluation use the task's own prompts, whatever a rollout showed while it gathered.
    """

    def prompts(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the task's own prompt of each start."""

    def play_prompts(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int
    ) -> Experience:
        """Plays as `play` does, from these prompts; rows still belong to their starts, which they are verified by."""

    def onto(self, experience: Experience, prompts: Sequence[str]) -> Experience:
        """Returns the same decisions after other prompts; recorded log-probabilities and all columns of decisions
        stay with their decisions.
        """


@runtime_checkable
class PairedTask(Task, Protocol):
    """Prompts with a better and a worse completion."""

    def pairs(self, starts: np.ndarray, split: int) -> Experience:
        """Rows 2i and 2i + 1 are the chosen and the rejected completion of pair i; column `chosen` is +1 and -1."""


@runtime_checkable
class GameTask(Task, Protocol):
    """A task in which several players decide. One policy plays them all in training (self-play).

    `play` on split 0 gives one row for each (start, sample, player), each with what that player saw; the others' moves
    are context: mask false. Rows of one game share `episode`, `player` [B] counts from 0, and `group` holds the rows of
    one start and player. On split 1 there is one row for each (start, sample), the evaluated player's: the ordinal of
    the start says its seat and against whom it plays, which may be players that training never meets.
    """

    @property
    def num_players(self) -> int:
        """How many players a game has."""

    def play_against(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, player: int, split: int
    ) -> Experience:
        """Games in which the task's own fixed opponents take all seats but `player`: the rows of that player alone."""


@runtime_checkable
class UncertainTask(Task, Protocol):
    """A task whose transitions are known up to a set of regimes; nature holds one of them for the whole episode.

    Training happens in the first, the nominal one. Held-out start o is played under regime o modulo their number: an
    evaluation is of all of them.
    """

    @property
    def regimes(self) -> Sequence[Any]:
        """The regimes, the nominal one first."""

    def under(self, regime: Any) -> Task:
        """The task in which this regime holds."""

    def mixed(self) -> Task:
        """The task in which every episode draws its regime evenly."""
