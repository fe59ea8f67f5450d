"""Slots of parts that process fresh experience once: rewards, selection, credit, constraints; and annotations.

Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.settings import models_read
from assay.core.slots.scene import ALONE, Scene


class Transform(Protocol):
    """A part that processes fresh experience once, without gradient: reward, selection, shaping, credit, constraint.

    Shape: `(experience, scene, state) -> Experience`. A part implements `apply`; callers call the part, outside of a
    run with the experience alone if they like. `state` is the part's own and may be changed in place; it is saved.
    """

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Columns that models compute before the part is called."""
        return frozenset()

    @property
    def reads(self) -> Collection[str]:
        """Columns of `extra` that it reads (`core.columns`); a plan in which no earlier part writes one is an error."""
        return ()

    @property
    def writes(self) -> Collection[str]:
        """Columns of `extra` that it writes, by name with axes and meaning (`core.columns`)."""
        return ()

    @property
    def models(self) -> tuple[str, ...]:
        """Models it uses through `scene.models`, by default all that its settings and parts name (`model_name`); a plan
        without one of them is an error.
        """
        return tuple(models_read(self))

    def init(self, scene: Scene) -> State:
        """Returns the state at the start of a run."""
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the part's changes and new columns."""

    def updated(self, metrics: Mapping[str, float], state: State) -> None:
        """Changes its state by the metrics of a step, after the step's updates; by default it does nothing."""
        return

    def __call__(self, experience: Experience, scene: Scene = ALONE, state: State | None = None) -> Experience:
        """Applies the part, with its initial state if none is given."""
        return self.apply(experience, scene, self.init(scene) if state is None else state)


class Reward(Transform, Protocol):
    """Computes the rewards (and costs) of a batch; sees whole groups.

    Laws: finite; the same decisions get the same reward unless it declares `stochastic`; one number for each decision;
    no row depends on other rows, or, where it declares `compares_group`, on other groups; the right answer beats a list
    of all candidates; an infrastructure fault is never a number; its state survives save and load.
    """

    slot: ClassVar[str] = "reward"


class Select(Transform, Protocol):
    """Keeps some of the fresh sequences; the loop gathers again while too few are kept (dynamic sampling, rejection).

    `apply` returns the rows that are kept. Laws: the rows of an episode, those of all players, are kept or dropped
    together; whether a group is kept does not depend on the others.
    """

    slot: ClassVar[str] = "select"

    @property
    def max_rounds(self) -> int:
        """Maximum number of gathering rounds per step."""


class Prepare(Transform, Protocol):
    """Changes or annotates fresh experience before and after credit: shaping, filters, segments."""

    slot: ClassVar[str] = "prepare"


class Credit(Transform, Protocol):
    """Computes which decision earned the reward: writes `advantage` [B, T], and `return` where a critic learns it.

    Laws: shape [B, T]; zero where masked; no gradient; finite for a group of one and for equal rewards; independent of
    other groups; sums to zero in each group where it declares `centred`, and is 0 where its rewards are equal.
    """

    slot: ClassVar[str] = "credit"


Over = Callable[[Experience, Callable[[Any, Experience], Tensor]], Tensor]
"""`over(experience, function)`: function(model, rows) on each micro-batch without gradient, results concatenated."""


class Annotation(Protocol):
    """A column that a model computes on a batch, without gradient: a frozen value among the `needs` of other parts.

    For columns the engine has no built-in for: the same decisions under another context, another critic's values,
    statistics of a whole distribution. Laws: a column about decisions is zero where masked (one about contexts, such
    as values, is not), and no row depends on padding.
    """

    slot: ClassVar[str] = "annotation"

    @property
    def column(self) -> str:
        """The name of the column."""

    @property
    def means(self) -> str:
        """Axes and meaning of the column (`core.columns`)."""
        return ""

    @property
    def model(self) -> str:
        """The model that computes it: `actor`, a critic, or a target network."""

    @property
    def of_decisions(self) -> bool:
        """Whether the column is about decisions and therefore zero where masked; values of contexts are not."""
        return True

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns the column, [B, T, ...]."""


class Constraint(Transform, Protocol):
    """Merges costs into the credit with a multiplier in its state, then updates the multiplier from the observed
    costs.

    Laws: the multiplier stays not negative, rises on violation and falls on slack; its state survives save and load.
    """

    slot: ClassVar[str] = "constraint"


class RowStatistic(Protocol):
    """Computes a number for each row from the outcomes of all rows."""

    slot: ClassVar[str] = "statistic"

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the statistic, [B]."""


class CreditWeight(Protocol):
    """Computes what the advantage of each decision is multiplied by, from the advantages of all rows."""

    slot: ClassVar[str] = "choice"

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Columns that models compute before the rule is called."""
        return frozenset()

    @property
    def breaks(self) -> dict[str, str]:
        """Laws of credit that the rule does not obey, with the reason."""
        return {}

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        """Returns weights that broadcast to [B, T], without gradient."""
