"""The slots of a recipe: one protocol each. The docstring of a slot is its list of laws, and `checks/` enforces them.

A part is a frozen dataclass of its few settings. A part that remembers something has `init`, which gives its state: a
tree of plain values that the run saves; the part may change that tree, inside its own call only.

Laws of every part: equal inputs and state give equal outputs; inputs are not modified; float32 and float64 agree;
extra padding changes nothing; permuting sequences permutes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from assay.types import Context, Draw, Experience, Loss, Need, Outcome, Progress, Scored, Spec, State, Sums


# ---------------------------------------------------------------------------------------------------- models
class Actor(Protocol):
    """Who decides. An `nn.Module` with two faces: acting, and scoring what was done.

    Laws: the log-probability of its own sample is finite; probabilities sum (or integrate) to one; `score` gives the
    log-probability that `act` recorded; a row's result does not depend on the other rows.
    """

    @property
    def num_draws(self) -> int:
        """Uniform numbers that one decision consumes."""

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Decides for N rows of one column: (action [N] or [N, A], logp [N]).

        `uniform` [N, num_draws] in (0, 1) goes through the inverse distribution function; None means the mode.
        """

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the recorded decisions, [B, T], zero where the mask is false; more only if asked."""


class ModelSpec(Protocol):
    """A frozen description of a model that can build it for a task. Parameters come from torch's generator, which the
    run seeds per model."""

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task; raises AssayError where the task's spaces do not fit."""


class View(Protocol):
    """The models bound to this stage's parameters: what a term may look at besides its batch."""

    @property
    def scored(self) -> Scored:
        """The actor on the batch, computed once and shared by the stage's terms."""

    @property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """(action, logp) that the actor itself takes in all columns but the last, with gradient; sampled once."""

    def model(self, name: str) -> Any:
        """`actor`, a critic, or a copy such as `reference`. Gradient reaches only what the stage trains."""

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Uniform numbers in (0, 1) that belong to this update and this `tag`."""


# ---------------------------------------------------------------------------------------------------- tasks
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
class ScriptedTask(Task, Protocol):
    """A task whose expert can be asked in any context, so that data of any quality can be made of it."""

    @property
    def expert(self) -> Callable[[Context], Tensor] | None:
        """A good action for each row; None where nobody wrote one."""


@runtime_checkable
class VerifiedTask(Task, Protocol):
    """Prompts with a verifier."""

    def verify(self, prompts: Sequence[str], completions: Sequence[str], items: Sequence[Any]) -> list[Outcome]:
        """One outcome for each completion; never raises because of a completion's text."""


@runtime_checkable
class PairedTask(Task, Protocol):
    """Prompts with a better and a worse completion."""

    def pairs(self, starts: np.ndarray, split: int) -> Experience:
        """Rows 2i and 2i + 1 are the chosen and the rejected completion of pair i; column `chosen` is +1 and -1."""


# ---------------------------------------------------------------------------------------------------- parts
class Rollout(Protocol):
    """How experience is gathered.

    Laws: recorded log-probabilities equal recomputed ones under the same weights; the seed determines the batch.
    """

    def init(self, task: Task) -> State:
        """The state at the start of a run."""

    @property
    def num_starts(self) -> int:
        """How many starts it asks the curriculum for (0: it starts by itself)."""

    def __call__(self, task: Task, actor: Any, starts: np.ndarray, draw: Draw, state: State) -> Experience:
        """Fresh experience; `starts` are ordinals."""


class Explore(Protocol):
    """An actor around the actor while gathering: epsilon-greedy, action noise. The recorded logp is the mixture's."""

    def wrap(self, actor: Any) -> Any:
        """The exploring actor."""


class Reward(Protocol):
    """What it was worth: writes `reward` (and `cost`); sees whole groups.

    Laws: finite; the same decisions get the same reward unless it declares `stochastic`; one number for each decision;
    an infrastructure fault is never a number.
    """

    def __call__(self, experience: Experience, task: Task, split: int) -> Experience:
        """The experience with its rewards."""


class Select(Protocol):
    """Which fresh sequences are kept, and whether more must be gathered (dynamic sampling, rejection)."""

    @property
    def max_rounds(self) -> int:
        """How often to gather at most."""

    def __call__(self, experience: Experience) -> Tensor:
        """Bool [B]: true where the row is kept."""


class Prepare(Protocol):
    """Works once on the fresh experience, without gradient, and writes columns: shaping, filters, credit."""

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """What it reads besides the record."""

    def __call__(self, experience: Experience) -> Experience:
        """The experience with its new columns."""


class Credit(Prepare, Protocol):
    """Which decision earned it: writes `advantage` [B, T], and `return` where a critic is to learn it.

    Laws: shape [B, T]; zero where masked; no gradient; finite for a group of one and for equal rewards; sums to zero
    in each group where it declares `centred`.
    """


Over = Callable[[Experience, Callable[[Any, Experience], Tensor]], Tensor]
"""`over(experience, function)`: function(model, rows) on each micro-batch without gradient, results put together."""


class Annotation(Protocol):
    """A column that a model computes on the fresh experience, once, without gradient: a frozen value among `needs`.

    For what the engine does not know by itself: the same decisions under another context, another critic's values,
    statistics of a whole distribution. Laws: what speaks of decisions is zero where masked (what speaks of contexts, as
    values do, is not), and no row depends on padding.
    """

    @property
    def column(self) -> str:
        """The name of the column."""

    @property
    def model(self) -> str:
        """The model that computes it: `actor`, a critic, or a copy."""

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """The column, [B, T, ...]."""


class Term(Protocol):
    """A loss of one stage: `(batch, view) -> (sum, count, metrics)`.

    Laws: sums and counts over micro-batches add up to the whole (rows that share `together` stay in one micro-batch);
    never divides by itself; `count` needs no model.
    """

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """What it reads besides the record."""

    @property
    def together(self) -> str | None:
        """Name of the column whose equal rows must not be separated; None where rows are independent."""

    def count(self, batch: Experience) -> Tensor:
        """The denominator that belongs to this batch."""

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Sum with gradient, its count, and metrics."""


class Objective(Term, Protocol):
    """The loss that improves the actor.

    Laws: zero credit gives zero gradient; no gradient into old or reference log-probabilities; at ratio one its
    gradient equals REINFORCE's where it declares `first_order`; masked decisions carry no gradient.
    """


class Regularizer(Term, Protocol):
    """An extra loss: KL, entropy, smoothness, behaviour.

    Laws: gradient only into the policy; where it declares `divergence`: not negative, and zero at the reference.
    """


class CriticLoss(Term, Protocol):
    """The loss of a learned value.

    Laws: targets carry no gradient; terminal steps do not bootstrap, truncated ones do.
    """


class Aggregation(Protocol):
    """How decisions are weighed into one number. Laws: weights are zero where masked; counts add over micro-batches."""

    @property
    def together(self) -> str | None:
        """Name of the column whose equal rows must not be separated."""

    def weigh(self, batch: Experience) -> Tensor:
        """Weight of each decision, [B, T]."""

    def count(self, batch: Experience) -> Tensor:
        """The denominator."""


class Constraint(Protocol):
    """What must hold: multipliers, gates, certificates.

    Laws: the multiplier stays not negative, rises on violation and falls on slack; its state survives save and load.
    """

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """What it reads besides the record: a cost critic's values, for one."""

    def init(self) -> State:
        """The state at the start of a run."""

    def __call__(self, experience: Experience, state: State) -> Experience:
        """Merges costs into the credit with the multiplier of `state`."""

    def observe(self, experience: Experience, state: State) -> Mapping[str, float]:
        """Moves the multiplier by what was just seen; returns metrics."""


class Curriculum(Protocol):
    """What to try next. Laws: proposes only starts of the task; resuming reproduces the order."""

    def init(self) -> State:
        """The state at the start of a run."""

    def __call__(self, num_starts: int, draw: Draw, state: State) -> np.ndarray:
        """Ordinals of the next starts."""

    def observe(self, experience: Experience, state: State) -> None:
        """Learns from how the starts went: rewards, and the credit they got."""


class Source(Protocol):
    """Where training batches come from: fresh data, replay, a dataset. Law: resuming reproduces the order."""

    def init(self, task: Task) -> State:
        """The state at the start of a run (replay memory, a cursor)."""

    def __call__(self, task: Task, fresh: Experience | None, draw: Draw, state: State) -> Iterator[Experience]:
        """Takes in the fresh experience and yields this step's batches."""


class Optimizer(Protocol):
    """How a stage's parameters move. Law: its state, saved and restored, goes on bitwise."""

    @property
    def learning_rate(self) -> float | Schedule:
        """How far; 0 holds everything still."""

    @property
    def clip_norm(self) -> float:
        """The norm to which gradients are scaled down before a step; 0 leaves them."""

    def init(self, values: Sequence[Tensor]) -> State:
        """The state at the start of a run, for these flat tensors of parameters."""

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Moves the values and the state in place; `sums` are the metrics of this update's losses."""


class Schedule(Protocol):
    """A setting that moves with progress; stands where a number stands."""

    def at(self, progress: Progress) -> float:
        """Its value now."""


def number(setting: float | Schedule) -> float:
    """A setting as a number; the loop has replaced schedules by their values before any part runs."""
    assert isinstance(setting, int | float), f"{setting} was not resolved: call recipe.at(progress) first"
    return float(setting)
