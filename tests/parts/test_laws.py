"""Every part of the package under every law of its slot. Parts are discovered; none can opt out.

A part that rightly breaks a law says so in its class (`breaks = {"law": "reason"}`); an entry that is no longer true
fails here. VARIANTS adds settings worth checking besides the defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from assay.claims import discover
from assay.claims.find import all_claims
from assay.claims.laws.benches import Bench, benches_of
from assay.claims.laws.contracts import CONTRACTS
from assay.claims.laws.laws import Unsuited, assert_laws, settled
from assay.claims.laws.regression import cases_with_targets
from assay.claims.laws.term import cases_on
from assay.claims.laws.wrapper import wrapper_cases
from assay.core.recipe import Recipe
from assay.core.settings import children, describe
from assay.methods.gbrl.models import Trees
from assay.methods.hc_rlhf import pessimistic
from assay.methods.safe_rl_review import projection
from assay.methods.stream_x.models import Scaled
from assay.models.bodies.transformer import Transformer
from assay.models.heads.value import Greedy
from assay.models.model import Policy
from assay.ops import divergences
from assay.parts.aggregations import FixedLength, SequenceMean, SequenceSum
from assay.parts.credit.outcome import GroupDeviation, GroupMean, LeaveOneOut, OutcomeCredit
from assay.parts.credit.temporal import Gae, RewardToGo, Whiten
from assay.parts.critics.td import Td
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.ratio import ProductRatio, SequenceRatio
from assay.parts.objectives.trust import NoTrust
from assay.parts.predictions import OfState
from assay.parts.regularizers.divergence import EntropyBonus, KlToReference
from assay.parts.sources.fresh import FreshSequences
from assay.parts.targets.recorded import Column
from assay.runs import catalogue
from tests.claims.examples import EXAMPLES

VARIANTS: tuple[tuple[str, Any], ...] = (
    ("actor", Policy(Transformer(width=16, layers=1, heads=2, pack_to=16))),
    ("actor", Policy(Scaled())),
    ("actor", Policy(Scaled(), Greedy())),
    ("actor", Policy(Trees())),
    ("constraint", pessimistic()),
    ("constraint", projection()),
    ("credit", Gae(discount=0.9, gae_lambda=0.0)),
    ("credit", Gae(discount=1.0, gae_lambda=1.0)),
    ("credit", OutcomeCredit(GroupMean(), GroupDeviation())),
    ("credit", OutcomeCredit(LeaveOneOut())),
    ("credit", RewardToGo(discount=0.9)),
    ("credit", Whiten(centre=False)),
    ("critic_loss", Td(Column(), of=OfState(), aggregate=SequenceMean())),
    ("objective", PolicyGradient(ratio=ProductRatio(), aggregate=SequenceSum())),
    ("objective", PolicyGradient(ratio=SequenceRatio(), aggregate=SequenceMean())),
    ("objective", PolicyGradient(aggregate=FixedLength(8))),
    ("objective", PolicyGradient(trust=NoTrust(), aggregate=SequenceSum())),
    ("regularizer", EntropyBonus(aggregate=SequenceMean())),
    ("regularizer", KlToReference(estimator=divergences.k1)),
    ("regularizer", KlToReference(estimator=divergences.k2, aggregate=SequenceMean())),
    ("source", FreshSequences(epochs=2, minibatches=3)),
)

PARTS: list[tuple[str, Any]] = [
    (part.slot, instance) for part in discover.parts(EXAMPLES) for instance in part.instances
] + list(VARIANTS)


@cache
def recipes() -> list[Recipe]:
    """Every recipe of a method, in each world, of its measured claims and of their phases."""
    methods = catalogue.methods().values()
    programs = [method.recipe(world) for method in methods for world in method.presets]
    sides = [side for one in all_claims().values() for claim in one.measured for side in (claim.ours, claim.theirs)]
    programs += [side for side in sides if isinstance(side, Recipe)]
    return [one for last in programs for one in (last, *(phase.recipe for phase in last.before))]


def composed() -> dict[str, tuple[Td, int]]:
    """Each composition of target, fit and prediction that a recipe uses, with the number of a recipe that does."""
    found = [(term, number) for number, one in enumerate(recipes()) for stage in one.stages for term in stage.critic]
    return {repr(term): (term, number) for term, number in found if isinstance(term, Td)}


def name_of(index: int) -> str:
    """Slot, class, and a number where a class comes more than once."""
    slot, part = PARTS[index]
    same = [other for other, (_, one) in enumerate(PARTS) if type(one) is type(part)]
    return f"{slot}-{type(part).__name__}" + (f"-{same.index(index)}" if len(same) > 1 else "")


def kinds(part: Any) -> set[type]:
    """The classes of a part and of all parts inside it."""
    return {type(part)}.union(*(kinds(below) for _, below in children(part)))


@cache
def users() -> dict[type, list[int]]:
    """The recipes, by number, with a term that is, or holds, a part of this class."""
    found: dict[type, list[int]] = {}
    for number, recipe in enumerate(recipes()):
        for cls in set().union(*(kinds(stage.terms) for stage in recipe.stages)):
            found.setdefault(cls, []).append(number)
    return found


@cache
def benches(number: int) -> list[Bench]:
    """The benches of a recipe, built once for all parts."""
    return benches_of(recipes()[number])


def inputs(slot: str, part: Any) -> Sequence[Any]:
    """The slot's own inputs; those of a method's models for a wrapper, and for a part that no standard bench suits."""
    if slot == "wrapper":
        return wrapper_cases(part, next((one for one in recipes() if type(one.wrapper) is type(part)), None))
    held = CONTRACTS[slot].holder(part)
    standard = CONTRACTS[slot].cases(settled(held))
    mine = users().get(type(part), []) if any(isinstance(case, Unsuited) for case in standard) else []
    tried = cases_with_targets if slot in ("target", "fit") else cases_on
    return tried(held, [bench for number in mine for bench in benches(number)]) if mine else standard


@pytest.mark.parametrize("index", range(len(PARTS)), ids=name_of)
def test_part_obeys_the_laws_of_its_slot(index: int) -> None:
    slot, part = PARTS[index]
    found = CONTRACTS[slot].check(part, inputs(slot, part))
    assert_laws(found)
    tried = {finding.law for finding in found}
    assert [law.name for law in CONTRACTS[slot].binding(part) if law.name not in tried] == []


COMPOSED = composed()


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_critic_loss_obeys_the_laws(name: str) -> None:
    part, number = COMPOSED[name]
    assert_laws(CONTRACTS["critic_loss"].check(part, cases_on(part, benches(number))))


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
