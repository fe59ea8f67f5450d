"""What the name of a method means, without importing any: a built-in method, a variant, or own code.

Nothing here needs torch, so that a wrong name is refused at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata

from assay.core.errors import AssayError
from assay.core.hints import nearest
from assay.runs import method_index
from assay.runs.user_code.addresses import METHODS, Address, installed_address, parsed_address

INSTEAD = {"kto": "dpo trains on completions with labels, joined to pairs."}
"""What trains on the data of a method that is not built in."""


def method_key(name: str) -> str:
    """Returns the name that a method's claims are kept under: without the variant, or the address of an own method."""
    return (method_index.key_of(name.partition(":")[0]) or name) if method_address(name) is None else name


def unknown(kind: str, name: str, known: Iterable[str], hint: str) -> AssayError:
    """Returns the error of an unknown name; it suggests a similar known name, if there is one."""
    near = nearest(name, known)
    meant = f" Did you mean '{near}'?" if near else ""
    return AssayError(f"there is no {kind} '{name}'.{meant} {hint}")


def method_address(name: str) -> Address | None:
    """Returns the address of an own method: FILE.py, FILE.py:NAME, package.module:NAME, or the name that an installed
    package gives it; None for a built-in method and any other name.
    """
    if method_index.key_of(name.partition(":")[0]) is not None:
        return None
    return installed_address(METHODS, name) or parsed_address(name)


def known_method(name: str) -> tuple[str, str]:
    """Returns the key and the variant ("" without one) of a built-in method's name: KEY, an alias or METHOD:VARIANT;
    '-' and '_' are the same, and so are capitals. AssayError for a name that means no method.
    """
    asked, sign, variant = name.lower().replace("_", "-").partition(":")
    key = method_index.key_of(asked)
    if key is None or (sign and not variant):
        first = [entry.key for entry in method_index.entries().values() if entry.start_for]  # of equally near names
        known = [*first, *method_index.names(), *metadata.entry_points(group=METHODS).names]
        short = [full for full in known if full.endswith(f":{asked}")]
        meant = f"assay list shows all; '{asked}' is a variant: {short[0]}." if short else INSTEAD.get(asked, "")
        raise unknown("method", name, known, meant or "assay list shows all; a file (FILE.py) works too.")
    return key, variant


def method_meant(name: str) -> str:
    """Returns a sentence on a name that other libraries have for a class (PPO, GRPOTrainer) if it means a built-in
    method; '' for any other name.
    """
    for end in ("Trainer", "Config"):
        name = name.removesuffix(end)
    key = method_index.key_of(name) if name else None
    return f"Methods are given by name: assay.train('{key}', TASK)." if key else ""
