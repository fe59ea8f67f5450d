"""Finds the claims of a method: `assay/claims/KEY.py` of a built-in one, CLAIMS in the file of an own one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from assay.claims.claim import Claims
from assay.core.errors import AssayError
from assay.runs import catalogue, method_index
from assay.runs.user_code.loading import load


def find_claims(name: str) -> Claims:
    """Returns the claims of a method or of a variant's method; without claims, an empty `Claims`.

    The file of an own method states them as CLAIMS, a `Claims` or a tuple of claims.
    """
    own = catalogue.method_address(name)
    if own is None:
        return built_in_claims(catalogue.method_key(name))
    found = vars(load(own.source))
    stated, method = found.get("CLAIMS", ()), found.get("METHOD")
    if isinstance(stated, Claims):
        return stated
    listed = (*getattr(method, "claims", ()), *stated)
    return Claims(tuple(dict.fromkeys(listed)), getattr(method, "mutants", ()), getattr(method, "equivalent", {}))


@cache
def built_in_claims(key: str) -> Claims:
    """Returns the CLAIMS of `assay/claims/KEY.py`; AssayError names a file that cannot be imported."""
    try:
        claims: Claims = importlib.import_module(f"assay.claims.{method_index.stem_of(key)}").CLAIMS
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
