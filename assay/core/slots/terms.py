"""Slots of losses, and of what losses are made of."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from torch import Tensor

from assay.core.record import Experience, Loss, Need, Regressed
from assay.core.slots.models import View
from assay.core.slots.transforms import Annotation


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
