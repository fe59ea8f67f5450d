"""Language testbeds by name. Their settings are dials: `--task lock:digits=4`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from assay.claims.testbeds.language.attempts import attempts
from assay.claims.testbeds.language.counting import counting
from assay.claims.testbeds.language.elicitation import elicitation
from assay.claims.testbeds.language.evidence import evidence
from assay.claims.testbeds.language.experts import experts
from assay.claims.testbeds.language.formats import formats
from assay.claims.testbeds.language.graded import hackable, judge
from assay.claims.testbeds.language.lab import lab
from assay.claims.testbeds.language.ladder import dirty, free, ladder
from assay.claims.testbeds.language.places import calls, key_decisions, lock, reading
from assay.claims.testbeds.language.redo import redo
from assay.claims.testbeds.language.repair import repair
from assay.claims.testbeds.language.repeatable import repeatable
from assay.claims.testbeds.language.sparse import levels, many_ways, stale
from assay.claims.testbeds.language.stretched import stretched
from assay.claims.testbeds.language.walk import register_walk
from assay.core.slots import Task

LEVELS: Mapping[str, Callable[..., Task]] = {
    "stale": stale,
    "levels": levels,
    "many-ways": many_ways,
    "key-decisions": key_decisions,
    "lock": lock,
    "reading": reading,
    "calls": calls,
    "judge": judge,
    "hackable": hackable,
    "register-walk": register_walk,
    "redo": redo,
    "repair": repair,
    "repeatable": repeatable,
    "attempts": attempts,
    "formats": formats,
    "counting": counting,
    "evidence": evidence,
    "elicitation": elicitation,
    "experts": experts,
    "lab": lab,
    "dirty": dirty,
    "ladder": ladder,
    "free": free,
    "stretched": stretched,
}
