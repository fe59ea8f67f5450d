"""Laws of parts with a state: saved and loaded, through the store that runs use, they continue as if nothing was."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from assay.claims.laws.choice import is_same
from assay.claims.laws.laws import Law, law, other_streams
from assay.core import store
from assay.core.errors import AssayError
from assay.engine.loop import freeze_states, thaw_states


def saved_and_loaded(state: Any, fresh: Any) -> Any:
    """Returns the state after a save to disk and a load into the state of a new start."""
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        try:
            path = store.save(Path(folder), 0, {"state": freeze_states(state)}, facts={})
        except (TypeError, ValueError) as error:
            raise AssayError(f"its state cannot be saved: {error}") from error
        tree = store.load_path(path).tree
    return thaw_states(fresh, tree["state"])


def untouched(value: Any) -> Any:
    """Returns a deep copy; simulations are copied by their snapshots."""
    return copy.deepcopy(freeze_states(value))


class Continuing(NamedTuple):
    """The laws of a state."""

    repeats: Law
    resumes: Law


def continuing(begin: Callable[[Any, Any], Any], step: Callable[[Any, Any, Any, int], Any]) -> Continuing:
    """Returns the laws of `begin(part, case)`, a state, and `step(part, case, state, time)`, what the part gives at a
    time, with the state changed in place.
    """

    def walk(part: Any, case: Any, state: Any, times: range) -> list[Any]:
        return [copy.deepcopy(step(part, case, state, time)) for time in times]

    @law("equal inputs and states give equal results")
    def repeats(part: Any, case: Any) -> Iterator[str]:
        """Two runs of three steps, with the global random streams at different places."""
        runs = []
        for seed in (1, 2):
            with other_streams(seed):
                runs.append(walk(part, case, begin(part, case), range(3)))
        yield from (f"step {time} differs" for time in range(3) if not is_same(runs[0][time], runs[1][time]))

    @law("its state, saved and loaded, continues bitwise")
    def resumes(part: Any, case: Any) -> Iterator[str]:
        """Saved after two steps, loaded into a new start; the next three are those of the uninterrupted run. Without a
        state, the next one.
        """
        state = begin(part, case)
        walk(part, case, state, range(2))
        loaded = saved_and_loaded(untouched(state), begin(part, case))
        through, resumed = (walk(part, case, one, range(2, 5 if state else 3)) for one in (state, loaded))
        for time, (one, other) in enumerate(zip(through, resumed, strict=True), start=2):
            if not is_same(one, other):
                yield f"step {time} differs after resuming"

    return Continuing(repeats, resumes)
