"""Language testbeds by name. Their settings are dials: `--task lock:digits=4`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from assay.core.slots import Task
from assay.tasks.testbeds.language.formats import formats
from assay.tasks.testbeds.language.graded import hackable, judge
from assay.tasks.testbeds.language.places import key_decisions, lock
from assay.tasks.testbeds.language.redo import redo
from assay.tasks.testbeds.language.sparse import levels, many_ways, stale
from assay.tasks.testbeds.language.walk import register_walk

LEVELS: Mapping[str, Callable[..., Task]] = {
    "stale": stale,
    "levels": levels,
    "many-ways": many_ways,
    "key-decisions": key_decisions,
    "lock": lock,
    "judge": judge,
    "hackable": hackable,
    "register-walk": register_walk,
    "redo": redo,
    "formats": formats,
}
