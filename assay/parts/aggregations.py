"""Aggregations: how the losses of a batch's decisions are weighted and summed. Axes: B sequences, T decisions.

    loss = sum_bt weight_bt * loss_bt / count

The engine divides by the count of the whole update batch, so that micro-batches and padding do not change a loss. A
term declares its count by one of three bases: `Weighed` takes an aggregation, `OverDecisions` counts all decisions,
`OverTransitions` those that have a next state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Need
from assay.core.slots import Aggregation, Annotation
from assay.ops import groups


def decisions_per_episode(batch: Experience) -> Tensor:
    """Returns the number of decisions in the whole episode (of each player) of each row, [B], at least 1."""
    per_row = batch.mask.sum(1)
    if batch.episode is None:
        return per_row.clamp(min=1)
    episodes = groups.episode_groups(batch)
    return groups.total(per_row, episodes)[episodes.index].clamp(min=1)


def num_episodes(batch: Experience) -> Tensor:
    """Returns the number of episodes with a decision; in a game each player's episode counts separately."""
    has_decision, label = batch.mask.any(1), groups.episode_label(batch)
    if label is None:
        return has_decision.sum()
    return has_decision.new_ones((), dtype=torch.long) * torch.unique(label[has_decision]).numel()


@dataclass(frozen=True)
class TokenMean(Aggregation):
    """Weights every decision of the batch equally, so long sequences count more (DAPO, arXiv:2503.14476).

    Degenerate: if all episodes are equally long, the loss is that of SequenceMean; an empty mask has count 0. Assumes
    that each decision is as much evidence as any other.
    """

    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        return batch.weight

    def count(self, batch: Experience) -> Tensor:
        return batch.num_decisions


class OverEpisodes:
    """An aggregation that averages over episodes, whose rows stay together. Degenerate: an empty mask has count 0.

    Source: arXiv:2402.03300. Assumes that all rows of an episode are in the batch.
    """

    together: ClassVar[str | None] = "episode"

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of episodes with a decision."""
        return num_episodes(batch)


@dataclass(frozen=True)
class SequenceMean(OverEpisodes, Aggregation):
    """Averages over each episode's decisions, then over episodes: the original GRPO (arXiv:2402.03300).

    Degenerate: an episode without a decision has weight 0 and is not counted. Assumes that each episode is as much
    evidence as any other, however long.
    """

    def weigh(self, batch: Experience) -> Tensor:
        """Returns mask / decisions of the episode."""
        return batch.mask / decisions_per_episode(batch).unsqueeze(1).to(batch.reward.dtype)


@dataclass(frozen=True)
class FixedLength(OverEpisodes, Aggregation):
    """Sums over decisions, divides by a constant, averages over episodes: no length bias (Dr. GRPO,
    arXiv:2503.20783).

    `length` 0 is the most decisions that the task allows an episode (`--max-tokens`), as in the paper's code; a run
    fills it in before it begins. Every term with its own mean (entropy, KL per token) weighs limit / length times as
    much beside this one as beside SequenceMean: answers that use an eighth of the limit have an eighth of the policy
    loss. Degenerate: length 1 is SequenceSum. Assumes that no episode is longer than the limit.
    """

    length: int = 0

    def __post_init__(self) -> None:
        if self.length < 0:
            raise AssayError(f"length is {self.length}. Use 0 (the task's limit of an answer) or a number of tokens")

    def with_limit(self, limit: int) -> FixedLength:
        """Returns the aggregation with its length: its own if one is set, else the task's limit."""
        return self if self.length else replace(self, length=limit)

    def weigh(self, batch: Experience) -> Tensor:
        """Returns mask / length. AssayError outside of a run if the length is the task's."""
        if not self.length:
            raise AssayError("FixedLength has length 0, the task's limit, and no run filled it in. Use FixedLength(N)")
        return batch.weight / self.length


@dataclass(frozen=True)
class SequenceSum(OverEpisodes, Aggregation):
    """Sums over decisions, averages over episodes: the likelihood of whole episodes (REINFORCE, RLOO).

    Degenerate: if every episode has one decision, the loss is that of TokenMean. Source: Williams 1992. Assumes that
    all decisions of an episode are in the batch.
    """

    def weigh(self, batch: Experience) -> Tensor:
        return batch.weight


@dataclass(frozen=True)
class Among(Aggregation):
    """Averages by `inner` over decisions whose column, [B, T] or of rows [B], is `holds`: w_bt = [column_bt = holds]
    inner w_bt.

    Degenerate: without the column, or where it is false, `holds` true has weights and count 0, false is `inner`.
    Source: by definition. Assumes that other decisions are no evidence.
    """

    inner: Aggregation = TokenMean()
    column: str = "foreign"
    holds: bool = True

    @property
    def together(self) -> str | None:
        return self.inner.together

    def chosen(self, batch: Experience) -> Experience:
        """Returns these decisions alone."""
        found = batch.extra.get(self.column, torch.zeros_like(batch.mask)).bool()
        marked = found if found.dim() > 1 else found.unsqueeze(1)
        return batch.with_columns(mask=batch.mask & (marked == self.holds))

    def weigh(self, batch: Experience) -> Tensor:
        return self.inner.weigh(self.chosen(batch))

    def count(self, batch: Experience) -> Tensor:
        return self.inner.count(self.chosen(batch))


# ------------------------------------------------------------------------------------------------ counts of terms
class Weighed:
    """A term whose decisions are weighted by its setting `aggregate`. Degenerate: TokenMean counts as OverDecisions.

    Source: by definition. Assumes that `aggregate` is an aggregation of decisions.
    """

    aggregate: Aggregation

    @property
    def together(self) -> str | None:
        """Returns which rows the aggregation needs in one micro-batch."""
        return self.aggregate.together

    def count(self, batch: Experience) -> Tensor:
        """Returns the count of the aggregation."""
        return self.aggregate.count(batch)


class OverDecisions(Protocol):
    """A term that sums over all decisions; reads nothing besides the record and treats rows independently.

    Degenerate: an empty mask has count 0. Source: by definition. Assumes that rows are independent.
    """

    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of decisions."""
        return batch.num_decisions


class OverTransitions(Protocol):
    """A term that sums over the decisions of `batch.now`, each paired with its next column in `batch.after`.

    Reads nothing besides the record and treats rows independently, unless the term declares otherwise. Degenerate: a
    decision in the last column has no next column and is not counted. Source: by definition. Assumes that the next
    column of a row is the next context of its episode.
    """

    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of decisions with a column after them."""
        return batch.now.num_decisions
