"""Asserting that a law can fail: a deliberately broken part, the law that must catch it, and all laws covered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from assay.claims.laws.laws import Contract, Finding, Law


def finding(contract: Contract, law: str, part: Any) -> Finding:
    """What a law says about a part."""
    (found,) = contract.check(part, only=law)
    return found


def assert_caught(contract: Contract, law: str, part: Any) -> None:
    """The law breaks on the part, and the finding names it and the input."""
    found = finding(contract, law, part)
    assert not found.held, f"{law} held on a part that breaks it"
    assert found.law == law
    assert found.input
    assert "raises" not in found.detail, f"the part fails for another reason: {found.detail}"
    assert "; here " in found.detail


def not_covered(contract: Contract, covered: Iterable[str], elsewhere: Iterable[Law] = ()) -> set[str]:
    """Laws of the contract that no broken part was shown to; `elsewhere` are tested with another slot."""
    return {law.name for law in contract.laws} - set(covered) - {law.name for law in elsewhere}
