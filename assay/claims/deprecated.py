"""Names of version 0.2 that files of users may still have; each warns. They go with version 0.4."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.claims.claim import Edit, Exact, Measured
from assay.recipes.method import Method as PlainMethod
from assay.recipes.presets import Preset


@dataclass(frozen=True)
class Method(PlainMethod):
    """A method with its claims inside; state them as CLAIMS in the same file instead."""

    claims: tuple[Exact | Measured, ...] = ()
    mutants: tuple[Edit, ...] = ()
    equivalent: Mapping[str, str] = field(default_factory=dict)
    worlds: tuple[Preset, ...] = ()
    """The former name of `presets`."""

    def __post_init__(self) -> None:
        if self.worlds:
            object.__setattr__(self, "presets", self.worlds)
        text = "assay.claims.Method is deprecated: use assay.method.Method, and CLAIMS = Claims(...) beside it"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
