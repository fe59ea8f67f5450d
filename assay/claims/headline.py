"""The verdict of a method's headline: of its measured claims that are about what the paper promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.claims import stamps, verdicts
from assay.claims.claim import About
from assay.claims.find import find_claims
from assay.claims.headline_texts import NO_HEADLINE as NO_HEADLINE
from assay.claims.headline_texts import STUDIED, is_studied


def abouts(method: str) -> dict[str, str]:
    """Returns what each measured claim of a method is about, by its name."""
    return {claim.name: claim.about.value for claim in find_claims(method).measured}


def headline_entries(method: str, verdict: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Returns the measured entries of a verdict that are about the headline."""
    about, entries = abouts(method), verdicts.entries_of(verdict or {"claims": []})
    return [one for name, one in entries.items() if about.get(name) == About.HEADLINE.value]


def headline_word(method: str, verdict: Mapping[str, Any] | None) -> str:
    """Returns the worst verdict of the headline's claims; `no headline` if none is measured, `studied` for a method
    that is only that.
    """
    if is_studied(method):
        return STUDIED
    entries = headline_entries(method, verdict)
    return verdicts.overall(entries) if entries else NO_HEADLINE


def headline_state(method: str, verdict: Mapping[str, Any] | None) -> str | None:
    """Returns the worst recorded state of the headline's claims, also of one that is not measured yet; None if none is
    measured.
    """
    if is_studied(method) or verdict is None or not headline_entries(method, verdict):
        return None
    states = verdicts.states(method, verdict)
    return stamps.worst([states[name] for name, about in abouts(method).items() if about == About.HEADLINE.value])
