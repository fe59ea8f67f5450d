"""Each law of credit, shaping, selection and aggregation catches a part that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from assay.claims.laws.aggregation import AGGREGATION
from assay.claims.laws.credit import CREDIT, EVERY, PREPARE, SELECT, STATISTIC, as_credit, check_credit, looks_forward
from assay.core.record import Experience, Need, State
from assay.core.slots import Aggregation, Credit, Scene, Select
from assay.ops import groups, returns
from assay.parts.credit.outcome import Constant, GroupDeviation, GroupMean, OutcomeCredit
from assay.parts.credit.temporal import Gae, RewardToGo
from tests.claims.breaking import assert_caught, finding, not_covered


@dataclass(frozen=True)
class Toy(Credit):
    """A credit out of a function of the experience that gives advantages, or the whole new experience."""

    value: Callable[[Experience], Tensor | Experience]
    centred: bool = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        value = self.value(experience)
        return value if isinstance(value, Experience) else experience.add({"advantage": value})


def good(experience: Experience) -> Tensor:
    """The outcome of the row's episode, on each of its decisions."""
    return groups.outcome(experience.map(torch.Tensor.detach)).unsqueeze(1) * experience.mask


def in_place(experience: Experience) -> Tensor:
    experience.reward.mul_(0.5)
    return good(experience)


def row_group(experience: Experience) -> Tensor:
    return experience.group if experience.group is not None else torch.arange(len(experience))


def group_mean(experience: Experience, there: Tensor) -> Tensor:
    """Outcome minus the mean over the rows that are `there`, in each group."""
    outcome, label = groups.outcome(experience).detach(), row_group(experience)
    same = (label.unsqueeze(1) == label).to(outcome.dtype) * there
    mean = same @ outcome / same.sum(1).clamp(min=1)
    return (outcome - mean).unsqueeze(1) * experience.mask


def batch_mean(experience: Experience) -> Tensor:
    """Outcome minus the mean of all rows with a decision, whatever their group."""
    outcome, there = groups.outcome(experience).detach(), experience.mask.any(1)
    return (outcome - outcome[there].mean()).unsqueeze(1) * experience.mask


def row_deviation(experience: Experience) -> Tensor:
    """Standard deviation of the outcomes of each row's group, faulty rows included."""
    outcome, label = groups.outcome(experience).detach(), row_group(experience)
    return torch.stack([outcome[label == one].std(correction=0) for one in label.tolist()])


def by_deviation(experience: Experience) -> Tensor:
    return (groups.outcome(experience).detach() / row_deviation(experience)).unsqueeze(1) * experience.mask


def standardised(experience: Experience) -> Tensor:
    """As a mean in float32 and a small number beside the deviation give it."""
    outcome, by_group = groups.outcome(experience).detach(), groups.row_groups(experience)
    share = by_group.share.to(outcome.dtype)
    mean = (groups.total(outcome * share, by_group) / groups.total(share, by_group).clamp(min=1))[by_group.index]
    apart = (outcome - mean) * share
    deviation = groups.total(apart.square(), by_group).sqrt()[by_group.index]
    return (apart / (deviation + 1e-6)).unsqueeze(1) * experience.mask


def always_bootstraps(experience: Experience) -> Tensor:
    never = experience.terminal & False
    value = experience.column("value").detach()
    return returns.gae(experience.reward.detach(), value, experience.mask, never, experience.truncated, 0.9, 0.9)


def never_bootstraps_when_cut(experience: Experience) -> Tensor:
    ends = experience.terminal | experience.truncated
    value = experience.column("value").detach()
    return returns.gae(experience.reward.detach(), value, experience.mask, ends, experience.truncated, 0.9, 0.9)


def across_episodes(experience: Experience) -> Tensor:
    reward = experience.reward.detach() * experience.mask
    return reward.flip(1).cumsum(1).flip(1) * experience.mask


BROKEN: dict[str, Toy] = {
    "advantage": Toy(lambda experience: experience),
    "repeats": Toy(lambda experience: good(experience) * torch.rand(())),
    "unmodified": Toy(in_place),
    "dtype": Toy(lambda experience: good(experience).float()),
    "padding": Toy(lambda experience: good(experience) / experience.num_columns),
    "permutation": Toy(lambda experience: good(experience) * torch.arange(len(experience)).unsqueeze(1)),
    "no_gradient": Toy(lambda experience: groups.outcome(experience).unsqueeze(1) * experience.mask),
    "finite": Toy(by_deviation),
    "masked": Toy(lambda experience: groups.outcome(experience).detach().unsqueeze(1).expand_as(experience.reward)),
    "absent": Toy(lambda experience: group_mean(experience, torch.ones(len(experience), dtype=torch.bool))),
    "groups_apart": Toy(lambda experience: batch_mean(experience)),
    "centred": Toy(good, centred=True),
    "tied": Toy(standardised, centred=True),
    "episodes": Toy(lambda experience: group_mean(experience, experience.mask.any(1))),
    "ends": Toy(always_bootstraps),
}


def wipe(experience: Experience) -> Experience:
    return replace(experience, extra={name: value for name, value in experience.extra.items() if name != "advantage"})


BROKEN["advantage"] = Toy(wipe)


@pytest.mark.parametrize("law", BROKEN)
def test_law_catches_a_broken_credit(law: str) -> None:
    assert_caught(CREDIT, law, BROKEN[law])


def test_every_law_of_credit_is_shown_to_fail() -> None:
    assert not_covered(CREDIT, BROKEN) == set()
    assert not_covered(PREPARE, ("groups_apart",), EVERY) == set()


def test_a_good_credit_obeys_every_law() -> None:
    assert [one for one in check_credit(Toy(good)) if not one.held] == []


@pytest.mark.parametrize(
    ("value", "words"),
    [(never_bootstraps_when_cut, "truncated step does not"), (across_episodes, "next episode's rewards")],
)
def test_ends_are_seen_from_every_side(value: Callable[[Experience], Tensor], words: str) -> None:
    assert words in finding(CREDIT, "ends", Toy(value)).detail


@pytest.mark.parametrize(("part", "expected"), [(Gae(), True), (RewardToGo(), True), (OutcomeCredit(), False)])
def test_credit_along_time_is_told_from_credit_of_outcomes(part: Any, expected: bool) -> None:
    assert looks_forward(part) is expected


def test_a_credit_that_returns_no_experience_is_reported_once() -> None:
    class Nothing(Toy):
        def apply(self, experience: Experience, scene: Scene, state: State) -> Any:
            return None

    (found,) = CREDIT.check(Nothing(good))
    assert "raises AttributeError" in found.detail


def test_a_statistic_stands_where_it_can() -> None:
    assert as_credit(GroupMean()) == OutcomeCredit(baseline=GroupMean())
    assert as_credit(GroupDeviation()) == OutcomeCredit(Constant(), GroupDeviation())
    assert finding(STATISTIC, "repeats", GroupMean()).held


# ---------------------------------------------------------------------------------------------------------- selection
@dataclass(frozen=True)
class Keep(Select):
    rows: Callable[[Experience], Any]
    max_rounds: int = 1

    def apply(self, experience: Experience, scene: Scene, state: State) -> Any:
        rows = self.rows(experience)
        return experience.rows(rows) if isinstance(rows, Tensor) else rows


SELECTIONS = {
    "permutation": Keep(lambda experience: torch.arange(len(experience)) % 2 == 0),
    "absent_rows": Keep(lambda experience: row_deviation(experience) > 1e-6),
    "whole_episodes": Keep(
        lambda experience: groups.differs(groups.outcome(experience), groups.row_groups(experience))
    ),
    "groups_kept_apart": Keep(lambda experience: batch_mean(experience).abs().sum(1) > 0.1),
}


@pytest.mark.parametrize("law", SELECTIONS)
def test_law_catches_a_broken_selection(law: str) -> None:
    assert_caught(SELECT, law, SELECTIONS[law])


def test_every_law_of_selections_is_shown_to_fail() -> None:
    assert not_covered(SELECT, SELECTIONS, EVERY) == set()


def test_a_selection_returns_the_rows_that_it_keeps() -> None:
    (found,) = SELECT.check(Keep(lambda experience: [True] * len(experience)))
    assert "returned list; a selection returns the experience" in found.detail


# -------------------------------------------------------------------------------------------------------- aggregation
@dataclass(frozen=True)
class Weigh(Aggregation):
    weight: Callable[[Experience], Tensor] = lambda batch: batch.mask.to(batch.reward.dtype)
    total: Callable[[Experience], Tensor] = lambda batch: batch.mask.sum()
    together: Any = None

    def weigh(self, batch: Experience) -> Tensor:
        return self.weight(batch)

    def count(self, batch: Experience) -> Tensor:
        return self.total(batch)


def even(batch: Experience) -> Tensor:
    return batch.mask.to(batch.reward.dtype)


def spoilt(batch: Experience) -> Tensor:
    weight = even(batch)
    batch.reward.zero_()
    return weight


AGGREGATIONS = {
    "weights": Weigh(lambda batch: torch.ones_like(batch.reward)),
    "declared": Weigh(together="turn"),
    "repeats": Weigh(lambda batch: even(batch) * torch.rand(())),
    "unmodified": Weigh(spoilt),
    "dtype": Weigh(lambda batch: batch.mask.float()),
    "padding": Weigh(lambda batch: even(batch) / batch.num_columns),
    "permutation": Weigh(lambda batch: even(batch) * torch.arange(len(batch)).unsqueeze(1)),
    "micro_batches": Weigh(lambda batch: even(batch) / batch.mask.sum().clamp(min=1)),
    "empty": Weigh(total=lambda batch: batch.mask.sum() + 1),
}


@pytest.mark.parametrize("law", AGGREGATIONS)
def test_law_catches_a_broken_aggregation(law: str) -> None:
    assert_caught(AGGREGATION, law, AGGREGATIONS[law])


def test_every_law_of_aggregations_is_shown_to_fail() -> None:
    assert not_covered(AGGREGATION, AGGREGATIONS) == set()


def test_an_aggregation_that_keeps_groups_whole_may_divide_by_them() -> None:
    def mean(batch: Experience) -> Tensor:
        same = (row_group(batch).unsqueeze(1) == row_group(batch)).long()
        return even(batch) / (same @ batch.mask.sum(1)).clamp(min=1).unsqueeze(1)

    def num_groups(batch: Experience) -> Tensor:
        return torch.tensor(len(row_group(batch)[batch.mask.any(1)].unique()))

    assert finding(AGGREGATION, "micro_batches", Weigh(mean, num_groups, "group")).held
    assert not finding(AGGREGATION, "micro_batches", Weigh(mean, num_groups)).held
