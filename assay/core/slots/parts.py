"""What the parts of a recipe must do. The docstring of a slot is its list of laws, and `checks/` enforces them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from assay.core.record import Certified, Experience, Fit, Loss, Need, Progress, Regressed, State, Sums
from assay.core.slots.models import View
from assay.core.slots.scene import ALONE, Scene
from assay.core.slots.tasks import Task


class Rollout(Protocol):
    """How experience is gathered.

    Shape: gather, `(scene, state) -> Experience`. The scene has the acting policy (`actor`), the ordinals that the
    curriculum chose (`starts`), and `reward`, which rewards rows now: a rollout that looks at rewards while it gathers
    returns rows that all went through it. Random numbers belong to (start, sample, time).
    Laws: recorded log-probabilities equal recomputed ones under the same weights; the seed determines the batch.
    """

    slot: ClassVar[str] = "rollout"

    @property
    def num_starts(self) -> int:
        """How many starts it asks the curriculum for (0: it starts by itself)."""

    @property
    def writes(self) -> tuple[str, ...]:
        """Columns of `extra` that it writes besides the task's own."""
        return ()

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run; refuses a task it cannot gather from."""
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns fresh experience from `scene.starts`."""


@runtime_checkable
class Framing(Rollout, Protocol):
    """A rollout that shows the actor something else than the task does: who learned so is used in its frame.

    Law: used in its frame, a policy decides as when it was gathered.
    """

    @property
    def frame(self) -> Wrapper | None:
        """What is around the actor once training is over, inside the recipe's wrapper; none where nothing is."""


def frame_of(rollout: Rollout | None) -> Wrapper | None:
    """A rollout's frame; none where it shows what the task does."""
    return rollout.frame if isinstance(rollout, Framing) else None


class Explore(Protocol):
    """An actor around the actor while gathering: epsilon-greedy, action noise. The recorded logp is the mixture's."""

    slot: ClassVar[str] = "explore"

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run; saved with the rollout's."""
        return {}

    def wrap(self, actor: Any, scene: Scene, state: State) -> Any:
        """Returns the exploring actor."""


class Transform(Protocol):
    """A part that works once on fresh experience, without gradient: reward, selection, shaping, credit, constraint.

    Shape: `(experience, scene, state) -> Experience`. A part writes `apply`; callers call the part, which outside of a
    run may be called with the experience alone. `state` is the part's own and may be changed in place; it is saved.
    """

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Columns that models compute before the part is called."""
        return frozenset()

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of `extra` that it reads; a plan in which no earlier part writes one is refused."""
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        """Columns of `extra` that it writes."""
        return ()

    @property
    def models(self) -> tuple[str, ...]:
        """Models it looks at through `scene.models`; a plan without one of them is refused."""
        return ()

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run."""
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with what the part changes or adds."""

    def __call__(self, experience: Experience, scene: Scene = ALONE, state: State | None = None) -> Experience:
        """Applies the part; without a state to its initial one."""
        return self.apply(experience, scene, self.init(scene) if state is None else state)


class Reward(Transform, Protocol):
    """Computes the rewards (and costs) of a batch; sees whole groups.

    Laws: finite; the same decisions get the same reward unless it declares `stochastic`; one number for each decision;
    an infrastructure fault is never a number.
    """

    slot: ClassVar[str] = "reward"


class Select(Transform, Protocol):
    """Keeps some of the fresh sequences; the loop gathers again while too few are kept (dynamic sampling, rejection).

    `apply` returns the rows that are kept. Law: the rows of an episode, those of all players, are kept or dropped
    together.
    """

    slot: ClassVar[str] = "select"

    @property
    def max_rounds(self) -> int:
        """How often to gather at most."""


class Prepare(Transform, Protocol):
    """Changes or annotates fresh experience before and after credit: shaping, filters, segments."""

    slot: ClassVar[str] = "prepare"


class Credit(Transform, Protocol):
    """Computes which decision earned the reward: writes `advantage` [B, T], and `return` where a critic learns it.

    Laws: shape [B, T]; zero where masked; no gradient; finite for a group of one and for equal rewards; sums to zero
    in each group where it declares `centred`.
    """

    slot: ClassVar[str] = "credit"


Over = Callable[[Experience, Callable[[Any, Experience], Tensor]], Tensor]
"""`over(experience, function)`: function(model, rows) on each micro-batch without gradient, results put together."""


class Annotation(Protocol):
    """A column that a model computes on a batch, without gradient: a frozen value among the `needs` of other parts.

    For what the engine does not know by itself: the same decisions under another context, another critic's values,
    statistics of a whole distribution. Laws: what speaks of decisions is zero where masked (what speaks of contexts, as
    values do, is not), and no row depends on padding.
    """

    slot: ClassVar[str] = "annotation"

    @property
    def column(self) -> str:
        """The name of the column."""

    @property
    def model(self) -> str:
        """The model that computes it: `actor`, a critic, or a target network."""

    @property
    def of_decisions(self) -> bool:
        """Whether it speaks of decisions and is zero where masked; values of contexts are not."""
        return True

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns the column, [B, T, ...]."""


class Term(Protocol):
    """A loss of one stage: `(batch, view) -> (sum, count, metrics)`.

    Laws: sums and counts over micro-batches add up to the whole (rows that share `together` stay in one micro-batch);
    never divides by itself; `count` needs no model; every model it reads is a setting (`q: str = model_name("q")`).
    """

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """What it reads besides the record."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of `extra` that it reads and that another part writes; a plan in which none does is refused."""
        return ()

    @property
    def together(self) -> str | None:
        """Name of the column whose equal rows must not be separated; None where rows are independent."""

    @property
    def title(self) -> str:
        """The name of its loss among the metrics."""
        return type(self).__name__

    def count(self, batch: Experience) -> Tensor:
        """The denominator that belongs to this batch."""

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Sum with gradient, its count, and metrics."""


class Objective(Term, Protocol):
    """The loss that improves the actor.

    Laws: zero credit gives zero gradient; no gradient into old or reference log-probabilities; at ratio one its
    gradient equals REINFORCE's where it declares `first_order`; masked decisions carry no gradient.
    """

    slot: ClassVar[str] = "objective"


class Regularizer(Term, Protocol):
    """An extra loss: KL, entropy, smoothness, behaviour.

    Laws: gradient only into the policy; where it declares `divergence`: not negative, and zero at the reference.
    """

    slot: ClassVar[str] = "regularizer"


class CriticLoss(Term, Protocol):
    """The loss of a learned value.

    Laws: targets carry no gradient; terminal steps do not bootstrap, truncated ones do.
    """

    slot: ClassVar[str] = "critic_loss"


class Target(Protocol):
    """The value that a critic's prediction is fitted to.

    Laws: it carries no gradient; terminal steps do not bootstrap, truncated ones do; padding, order and precision
    change nothing; every model it reads is a setting.
    """

    slot: ClassVar[str] = "target"

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of `extra` that it reads and that another part writes."""
        return ()

    def rows(self, batch: Experience) -> Experience:
        """The decisions that have a target: those with a column after them, unless the target says otherwise."""
        return batch.now

    def __call__(self, batch: Experience, view: View) -> Tensor:
        """The targets of the decisions in `rows`: [B, T], or [N, B, T] with one for each member of an ensemble."""


class Prediction(Protocol):
    """Which output of which model a loss fits: a state value, the value of the action taken."""

    slot: ClassVar[str] = "prediction"

    @property
    def model(self) -> str:
        """The name of the model."""

    @property
    def title(self) -> str:
        """What the value is called among the metrics."""
        return self.model

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        """Values [..., B, T] of the decisions."""

    def outputs(self, critic: Any, rows: Experience) -> Tensor:
        """What the values are computed from, [..., B, T, M]: logits over bins, for a critic that has them."""


class Regression(Protocol):
    """How a prediction is fitted to a target: the loss of each decision.

    Laws: no gradient into the target; a decision's loss depends on its own prediction and target alone; the gradient
    moves the prediction towards the target, from either side.
    """

    slot: ClassVar[str] = "fit"

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """The loss and the predicted value of each decision."""


class Aggregation(Protocol):
    """How decisions are weighed into one number. Laws: weights are zero where masked; counts add over micro-batches."""

    slot: ClassVar[str] = "aggregation"

    @property
    def together(self) -> str | None:
        """Name of the column whose equal rows must not be separated."""

    def weigh(self, batch: Experience) -> Tensor:
        """Weight of each decision, [B, T]."""

    def count(self, batch: Experience) -> Tensor:
        """The denominator."""


class Constraint(Transform, Protocol):
    """Merges costs into the credit with a multiplier of its state, then moves the multiplier by what was seen.

    Laws: the multiplier stays not negative, rises on violation and falls on slack; its state survives save and load.
    """

    slot: ClassVar[str] = "constraint"


class Wrapper(Protocol):
    """Who acts once training is over: an actor around trained models that re-ranks, averages, filters or shields.

    It acts when the run is evaluated and is what a run hands out; experience for training is gathered by the actor.
    Laws: rows are independent; equal numbers give equal decisions; without numbers it is a function of the context;
    what it decides is a decision of the actor inside.
    """

    slot: ClassVar[str] = "wrapper"

    @property
    def actor(self) -> str:
        """The model that decides inside: `actor`, or a copy of it."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Every model it looks at."""

    def around(self, models: Mapping[str, Any]) -> Any:
        """The actor that is handed out; models by name."""


class Certificate(Protocol):
    """Whether the trained policy may be handed out: asked once, after training, about episodes that training never saw.

    Law: what it says depends on the episodes alone, not on their order.
    """

    slot: ClassVar[str] = "certificate"

    @property
    def num_starts(self) -> int:
        """How many held-out starts it asks for."""

    def __call__(self, experience: Experience) -> Certified:
        """The verdict on these whole, rewarded episodes, one for each start."""


class TaskChange(Protocol):
    """Another task for a phase of a program: harder, shifted, or the worst for the policy so far."""

    slot: ClassVar[str] = "task_change"

    def __call__(self, scene: Scene) -> Task | None:
        """Returns the phase's task, from `scene.task`; `scene.actor` is the policy that the phase before ended with
        (None in the first). None leaves the phase out, and the policy stays.
        """


class Gate(Protocol):
    """Whether a copy may follow its model now: asked whenever the copy is due, and the copy stays where it says no.

    Laws: models are not modified; what it says depends on models and state alone; its state survives save and load.
    """

    slot: ClassVar[str] = "gate"

    def init(self) -> State:
        """The state at the start of a run."""

    def __call__(self, models: Mapping[str, Any], state: State) -> Tensor:
        """True where the copy follows: [] for all of it, [N] for members along the first axis of every parameter."""


class Curriculum(Protocol):
    """Chooses what to try next.

    Shape: gather, `(scene, state) -> ordinals` of `scene.num_starts` starts.
    Laws: proposes only starts of the task; resuming reproduces the order.
    """

    slot: ClassVar[str] = "curriculum"

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run."""
        return {}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the ordinals of the next starts."""

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Learns from how the starts went: rewards, and the credit they got."""


class Source(Protocol):
    """Where training batches come from: fresh data, replay, an offline dataset.

    Shape: gather, `(scene, state) -> batches`; `scene.fresh` is what was just gathered, None without a rollout.
    Law: resuming reproduces the order.
    """

    slot: ClassVar[str] = "source"

    @property
    def writes(self) -> tuple[str, ...]:
        """Columns of `extra` that its batches have besides those of the fresh experience."""
        return ()

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run (replay memory, a cursor)."""
        return {}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Takes in the fresh experience and yields this step's batches."""


class Optimizer(Protocol):
    """How a stage's parameters move. Law: its state, saved and restored, goes on bitwise."""

    slot: ClassVar[str] = "optimizer"

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


@runtime_checkable
class Steady(Optimizer, Protocol):
    """An optimizer that a gradient of NaN moves nowhere, neither values nor state: nobody needs to look at a gradient
    before the step, and the host need not wait for it. Others are only called with finite gradients.
    """

    is_steady: bool


@runtime_checkable
class Grower(Optimizer, Protocol):
    """An optimizer for stages whose models grow instead of moving; parameters that they also have, it moves."""

    def grow(self, fits: Sequence[Fit], state: State) -> None:
        """Adds to each module what goes against its gradient; the stage's modules at once, so that they can share."""


class Schedule(Protocol):
    """A setting that moves with progress; stands where a number stands."""

    slot: ClassVar[str] = "schedule"

    def at(self, progress: Progress) -> float:
        """Its value now."""


def number(setting: float | Schedule) -> float:
    """A setting as a number; the loop has replaced schedules by their values before any part runs."""
    assert isinstance(setting, int | float), f"{setting} was not resolved: call recipe.at(progress) first"
    return float(setting)


class Choice(Protocol):
    """A choice inside a part: a frozen value that says how one thing is done (which decisions learn, which bound).

    The part that asks declares what it calls, as a protocol that inherits this one. Laws: equal settings are equal
    choices and behave equally; equal inputs give equal outputs and are not modified; settings are described as JSON.
    """

    slot: ClassVar[str] = "choice"


class RowStatistic(Protocol):
    """A number for each row from the outcomes of all rows."""

    slot: ClassVar[str] = "statistic"

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """[B]."""


class RatioLevel(Protocol):
    """Log ratios [B, T] of current to acting policy."""

    slot: ClassVar[str] = "ratio"

    @property
    def together(self) -> str | None:
        """Name of the column whose equal rows it needs at once."""

    def __call__(self, logp_BT: Tensor, batch: Experience) -> Tensor:
        """Zero where masked; gradient into `logp_BT` only."""


class TrustRegion(Protocol):
    """The loss of each decision."""

    slot: ClassVar[str] = "trust"

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """(loss [B, T], bool [B, T]: cut off)."""
