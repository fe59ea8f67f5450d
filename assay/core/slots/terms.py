"""Slots of losses, and of the parts losses consist of. Axes: B sequences, T decisions, N critics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Protocol

from torch import Tensor

from assay.core.record import Experience, Loss, Need, Regressed
from assay.core.slots.models import View
from assay.core.slots.transforms import Annotation


class Term(Protocol):
    """A loss of one stage: `(batch, view) -> (sum, count, metrics)`.

    Laws: sums and counts over micro-batches add up to the whole (rows that share `together` stay in one micro-batch);
    never divides by itself; `count` needs no model; every model it reads is a setting (`q: str = model_name("q")`);
    actions in other units give the same sum and gradients.
    """

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """Inputs that it reads besides the record."""

    @property
    def reads(self) -> Collection[str]:
        """Columns of `extra` that it reads and that another part writes; a plan without such a part is an error."""
        return ()

    @property
    def together(self) -> str | None:
        """Name of the column whose equal rows must stay in one micro-batch; None if rows are independent."""

    @property
    def title(self) -> str:
        """The name of its loss among the metrics."""
        return type(self).__name__

    def count(self, batch: Experience) -> Tensor:
        """Returns the denominator for this batch."""

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the sum with gradient, its count, and metrics."""


class Objective(Term, Protocol):
    """The loss that improves the actor.

    Laws: zero credit gives zero gradient; no gradient into old or reference log-probabilities; at ratio one its
    gradient equals REINFORCE's where it declares `first_order`; masked decisions carry no gradient; with a ratio it
    changes with the recorded log-probabilities; where it clips, a gain already taken has no gradient, or, where it
    clips smoothly, ever less; a KL term inside it pulls towards the reference; more entropy never increases it.
    """

    slot: ClassVar[str] = "objective"


class Regularizer(Term, Protocol):
    """An extra loss: KL, entropy, smoothness, behaviour.

    Laws: gradient only into the policy; where it declares `divergence`: not negative, zero at the reference; it pulls
    towards the reference; more entropy never increases it (declare `bonus` where the entropy is its own).
    """

    slot: ClassVar[str] = "regularizer"


class CriticLoss(Term, Protocol):
    """The loss of a learned value.

    Laws: targets carry no gradient; terminal steps do not bootstrap, truncated ones do.
    """

    slot: ClassVar[str] = "critic_loss"


class Target(Protocol):
    """Computes the value that a critic's prediction is fitted to.

    Laws: it carries no gradient; terminal steps do not bootstrap, truncated ones do; padding, order and precision
    change nothing; every model it reads is a setting.
    """

    slot: ClassVar[str] = "target"

    @property
    def reads(self) -> Collection[str]:
        """Columns of `extra` that it reads and that another part writes."""
        return ()

    def rows(self, batch: Experience) -> Experience:
        """Returns the decisions that have a target: by default those with a column after them."""
        return batch.now

    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns the targets of the decisions in `rows`: [B, T], or [N, B, T] with one for each member."""


class Prediction(Protocol):
    """Selects the model and output that a loss fits: a state value, the value of the recorded action."""

    slot: ClassVar[str] = "prediction"

    @property
    def model(self) -> str:
        """The name of the model."""

    @property
    def title(self) -> str:
        """The name of the value among the metrics."""
        return self.model

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        """Returns values [..., B, T] of the decisions."""

    def outputs(self, critic: Any, rows: Experience) -> Tensor:
        """Returns the raw outputs of the values, [..., B, T, M]: logits over bins, for a critic that has them."""


class Regression(Protocol):
    """Computes the loss of each decision from its prediction and target.

    Laws: no gradient into the target; a decision's loss depends on its own prediction and target alone; the gradient
    moves the prediction towards the target, from either side.
    """

    slot: ClassVar[str] = "fit"

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the loss and the predicted value of each decision."""


class Aggregation(Protocol):
    """Weights decisions into one number. Laws: weights are zero where masked; counts add over micro-batches."""

    slot: ClassVar[str] = "aggregation"

    @property
    def together(self) -> str | None:
        """Name of the column whose equal rows must stay in one micro-batch."""

    def weigh(self, batch: Experience) -> Tensor:
        """Returns the weight of each decision, [B, T]."""

    def count(self, batch: Experience) -> Tensor:
        """Returns the denominator."""


class RatioLevel(Protocol):
    """Computes log ratios [B, T] of current to acting policy."""

    slot: ClassVar[str] = "ratio"

    @property
    def together(self) -> str | None:
        """Name of the column whose equal rows must stay in one micro-batch."""

    def __call__(self, logp_BT: Tensor, batch: Experience) -> Tensor:
        """Returns the log ratios, zero where masked, with gradient into `logp_BT` only."""


class TrustRegion(Protocol):
    """Computes the loss of each decision from its ratio and advantage."""

    slot: ClassVar[str] = "trust"

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss [B, T], bool [B, T]: whether the decision is clipped)."""


class LabelLoss(Protocol):
    """Computes the loss of answers that are classified as right or wrong by a score."""

    slot: ClassVar[str] = "choice"

    def __call__(self, score_B: Tensor, right_B: Tensor, by_group: Any) -> Tensor:
        """Returns the loss of each row, [B]; `by_group` are the rows' groups (`assay.ops.groups`)."""

    def count(self, by_group: Any) -> Tensor:
        """Returns the denominator."""
