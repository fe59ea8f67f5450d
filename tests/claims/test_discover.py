"""Parts are found by walking the folders; a class that cannot be checked is named with the line that it needs."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest

from assay.claims import discover
from assay.claims.laws.contracts import CONTRACTS
from assay.core.errors import AssayError
from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, Scene
from tests.claims.examples import EXAMPLES


def test_slots_of_known_parts() -> None:
    slots = {part.cls.__name__: part.slot for part in discover.parts(EXAMPLES)}
    expected = {
        "Policy": "actor", "Transformer": "body", "Greedy": "actor_head", "Value": "critic_head",
        "Multiplier": "constraint", "Gae": "credit", "KlInReward": "prepare",
        "GroupMean": "statistic", "Informative": "select", "Critic": "critic", "Td": "critic_loss",
        "InOrder": "curriculum",
        "PolicyGradient": "objective", "SequenceRatio": "ratio", "Clip": "trust", "TokenMean": "aggregation",
        "KlToReference": "regularizer", "FromFunction": "reward", "Episodes": "rollout", "EpsilonGreedy": "explore",
        "Linear": "schedule", "Replay": "source",
    }  # fmt: skip
    assert expected.items() <= slots.items()


WITHOUT_LAWS = {"prediction"}  # checked inside the critic losses that use one


def test_every_slot_that_can_be_found_has_a_contract() -> None:
    assert {part.slot for part in discover.parts(EXAMPLES)} == set(CONTRACTS) | WITHOUT_LAWS


def test_no_public_frozen_dataclass_of_the_part_folders_is_left_out() -> None:
    found = {part.cls for part in discover.parts(EXAMPLES)}
    for place in discover.PLACES:
        for module in discover.modules_of(place):
            if any(f"{module.__name__}.".count(f"{one}.") for one in discover.WITHOUT_PARTS):
                continue
            for _, cls in inspect.getmembers(module, discover.is_frozen):
                if cls.__module__ == module.__name__ and not cls.__name__.startswith("_"):
                    assert cls in found or cls.not_a_part, f"{cls} is neither a part nor says why not"


@dataclass(frozen=True)
class Sized(Credit):
    """A credit with a setting that has no default."""

    size: int
    needs: ClassVar[frozenset[Need]] = frozenset()
    centred: ClassVar[bool] = False

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return experience


@dataclass(frozen=True)
class WithExamples(Sized):
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"size": 2}, {"size": 3})


@dataclass(frozen=True)
class Stranger:
    """Inherits no slot."""

    def hello(self) -> str:
        return "hello"


@dataclass(frozen=True)
class NoPart(Stranger):
    not_a_part: ClassVar[str] = "a value that a part hands on"


def with_module(monkeypatch: pytest.MonkeyPatch, *classes: type) -> None:
    """A module of credit that defines these classes and no others."""
    module = ModuleType("assay.parts.made_up")
    for cls in classes:
        monkeypatch.setattr(cls, "__module__", module.__name__)
        setattr(module, cls.__name__, cls)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(discover, "modules_of", lambda name: iter([module] if name == "parts" else []))


def test_a_required_setting_without_examples_is_an_error_that_shows_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with_module(monkeypatch, Sized)
    with pytest.raises(AssayError, match=r'Sized .*examples: ClassVar.*\(\{"size": \.\.\.\},\)'):
        discover.parts()


def test_examples_give_the_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    with_module(monkeypatch, WithExamples)
    (part,) = discover.parts({"WithExamples": ({"size": 5},)})
    assert part.slot == "credit"
    assert [instance.size for instance in part.instances] == [2, 3, 5]


def test_a_class_that_inherits_no_slot_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with_module(monkeypatch, Stranger)
    with pytest.raises(AssayError, match=r"Stranger inherits no slot.*not_a_part"):
        discover.parts()


def test_a_value_can_say_that_it_is_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    with_module(monkeypatch, NoPart)
    assert discover.parts() == []
