"""Finds the claims of a method: `assay/claims/KEY.py` of a built-in one, CLAIMS in the file of an own one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from assay.claims.claim import Claims
from assay.claims.shipped import recorded_settings
from assay.claims.wiring import wiring_claims
from assay.core.errors import AssayError
from assay.runs import catalogue, method_index
from assay.runs.user_code.loading import load


def find_claims(name: str) -> Claims:
    """Returns the claims of a method or of a variant's method; without claims, an empty `Claims`.

    The file of an own method states them as CLAIMS, a `Claims` or a tuple of claims. Claims on the wiring follow, of an
    own method once its settings are recorded.
    """
    own = catalogue.method_address(name)
    if own is None:
        return built_in_claims(catalogue.method_key(name))
    stated = stated_in(vars(load(own.source)))
    more = () if recorded_settings(name) is None else wiring_claims(name, catalogue.find_method(name)[1])
    return replace(stated, claims=(*stated.claims, *more))


def stated_in(found: Mapping[str, Any]) -> Claims:
    """Returns the claims that the names of an own file state."""
    stated, method = found.get("CLAIMS", ()), found.get("METHOD")
    if isinstance(stated, Claims):
        return stated
    listed = (*getattr(method, "claims", ()), *stated)
    return Claims(tuple(dict.fromkeys(listed)), getattr(method, "mutants", ()), getattr(method, "equivalent", {}))


@cache
def built_in_claims(key: str) -> Claims:
    """Returns the CLAIMS of `assay/claims/KEY.py`, then those on its wiring, which every method has; AssayError names a
    file that cannot be imported.
    """
    try:
        own: Claims = importlib.import_module(f"assay.claims.{method_index.stem_of(key)}").CLAIMS
        claims = replace(own, claims=(*own.claims, *wiring_claims(key, method_index.import_method(key))))
    except Exception as error:  # one broken file must not stop the claims of other methods
        raise AssayError(f"the claims of '{key}' cannot be imported: {type(error).__name__}: {error}") from error
    return claims


def all_claims() -> Mapping[str, Claims]:
    """Returns the claims of every built-in method, by key, as far as both can be imported."""
    broken = broken_claims()
    return {key: built_in_claims(key) for key in catalogue.methods() if key not in broken}


@cache
def broken_claims() -> Mapping[str, str]:
    """Returns the built-in methods whose claims cannot be imported, and why."""
    found = {}
    for key in catalogue.methods():
        try:
            built_in_claims(key)
        except AssayError as error:
            found[key] = str(error)
    return found
