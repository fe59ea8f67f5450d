"""Every part of the package under every law of its slot. Parts are discovered; none can opt out.

A part that rightly breaks a law says so in its class (`breaks = {"law": "reason"}`); an entry that is no longer true
fails here. VARIANTS adds settings worth checking besides the defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from assay.core.recipe import Recipe
from assay.core.settings import describe
from assay.models.transformer import Transformer
from assay.ops import divergences
from assay.parts.aggregations import FixedLength, PromptMean, SequenceMean, SequenceSum
from assay.parts.credit.outcome import GroupDeviation, GroupMean, LeaveOneOut, OutcomeCredit
from assay.parts.credit.temporal import Gae, RewardToGo, Whiten
from assay.parts.critics.value import ValueLoss
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.ratio import ProductRatio, SequenceRatio
from assay.parts.objectives.trust import NoTrust
from assay.parts.regularizers.divergence import EntropyBonus, KlToReference
from assay.parts.sources.fresh import FreshSequences
from assay.proof import discover
from assay.proof.laws.bench import Bench, benches_of
from assay.proof.laws.contracts import CONTRACTS
from assay.proof.laws.laws import Unsuited, assert_laws, settled
from assay.proof.laws.term import cases_on
from assay.runs import catalogue
from tests.proof.examples import EXAMPLES

VARIANTS: tuple[tuple[str, Any], ...] = (
    ("actor", Transformer(width=16, layers=1, heads=2, pack_to=16)),
    ("credit", Gae(discount=0.9, decay=0.0)),
    ("credit", Gae(discount=1.0, decay=1.0)),
    ("credit", OutcomeCredit(GroupMean(), GroupDeviation())),
    ("credit", OutcomeCredit(LeaveOneOut())),
    ("credit", RewardToGo(discount=0.9)),
    ("credit", Whiten(centre=False)),
    ("critic_loss", ValueLoss(aggregate=SequenceMean())),
    ("objective", LogLikelihood(aggregate=PromptMean())),
    ("objective", PolicyGradient(ratio=ProductRatio(), aggregate=SequenceSum())),
    ("objective", PolicyGradient(ratio=SequenceRatio(), aggregate=SequenceMean())),
    ("objective", PolicyGradient(aggregate=FixedLength(8))),
    ("objective", PolicyGradient(aggregate=PromptMean())),
    ("objective", PolicyGradient(trust=NoTrust(), aggregate=SequenceSum())),
    ("regularizer", EntropyBonus(aggregate=SequenceMean())),
    ("regularizer", KlToReference(estimator=divergences.k1)),
    ("regularizer", KlToReference(estimator=divergences.k2, aggregate=SequenceMean())),
    ("source", FreshSequences(epochs=2, minibatches=3)),
)

PARTS: list[tuple[str, Any]] = [
    (part.slot, instance) for part in discover.parts(EXAMPLES) if part.slot in CONTRACTS for instance in part.instances
] + list(VARIANTS)


def name_of(index: int) -> str:
    """Slot, class, and a number where a class comes more than once."""
    slot, part = PARTS[index]
    same = [other for other, (_, one) in enumerate(PARTS) if type(one) is type(part)]
    return f"{slot}-{type(part).__name__}" + (f"-{same.index(index)}" if len(same) > 1 else "")


@cache
def recipes() -> tuple[Recipe, ...]:
    """Every recipe of a method or of a side of its claims, and the phases before it."""
    methods = catalogue.methods().values()
    programs = [method.recipe(world) for method in methods for world in method.worlds]
    sides = [side for method in methods for claim in method.measured for side in (claim.ours, claim.theirs)]
    programs += [side for side in sides if isinstance(side, Recipe)]
    return tuple(one for last in programs for one in (last, *(phase.recipe for phase in last.before)))


@cache
def users() -> dict[type, list[int]]:
    """The recipes, by number, whose stages hold a term of this class."""
    found: dict[type, list[int]] = {}
    for number, recipe in enumerate(recipes()):
        for term in {type(term) for stage in recipe.stages for term in stage.terms}:
            found.setdefault(term, []).append(number)
    return found


@cache
def benches(number: int) -> list[Bench]:
    """The benches of a recipe, built once for all terms."""
    return benches_of(recipes()[number])


def inputs(slot: str, part: Any) -> Sequence[Any]:
    """The slot's own inputs; those of a method's models for a term that no standard bench suits."""
    standard = CONTRACTS[slot].cases(settled(CONTRACTS[slot].holder(part)))
    mine = users().get(type(part), []) if any(isinstance(case, Unsuited) for case in standard) else []
    return cases_on(part, [bench for number in mine for bench in benches(number)]) if mine else standard


@pytest.mark.parametrize("index", range(len(PARTS)), ids=name_of)
def test_part_obeys_the_laws_of_its_slot(index: int) -> None:
    slot, part = PARTS[index]
    found = CONTRACTS[slot].check(part, inputs(slot, part))
    assert_laws(found)
    tried = {finding.law for finding in found}
    assert [law.name for law in CONTRACTS[slot].binding(part) if law.name not in tried] == []


def test_every_slot_with_parts_has_laws_and_every_part_has_several() -> None:
    assert {slot for slot, _ in PARTS} <= set(CONTRACTS)
    assert all(CONTRACTS[slot].binding(part) for slot, part in PARTS)


def test_variants_are_no_defaults() -> None:
    defaults = [describe(instance) for part in discover.parts(EXAMPLES) for instance in part.instances]
    assert [part for _, part in VARIANTS if describe(part) in defaults] == []


def test_examples_name_parts_that_have_none_of_their_own() -> None:
    classes = {part.cls.__name__: part.cls for part in discover.parts(EXAMPLES)}
    assert set(EXAMPLES) <= set(classes)
    own = [name for name in EXAMPLES if "examples" in vars(classes[name])]
    assert own == [], f"these classes have examples of their own now; remove them from EXAMPLES: {own}"


def test_the_same_policy_gradient_is_checked_in_both_worlds() -> None:
    inputs = [case.name for case in CONTRACTS["objective"].cases(PolicyGradient())]
    assert any(name.startswith("tokens") for name in inputs)
    assert any(name.startswith("torques") for name in inputs)
