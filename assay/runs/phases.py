"""The phases of a program: each runs in its own folder, and passes weights and states on by name.

Weights have the shapes of parameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Phase
from assay.engine.flat import weights_of
from assay.runs.config import as_json
from assay.runs.phase_plans import phase_plan, phases_of
from assay.runs.plan import Plan
from assay.runs.progress import Mode
from assay.runs.signals import Stopped


def before(
    plan: Plan, folder: Path, mode: Mode | None, weights: Mapping[str, Tensor], execute: Callable[..., Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Runs with `execute` the phases that are not finished yet, each in a folder of its own inside the run's.

    Returns the initial weights of the plan's own recipe (those given, and those of the phases) and the states that
    the phases pass on, by name.
    """
    handed, data, policy = dict(weights), dict[str, Any](), None
    for place, phase in enumerate(phases_of(plan), 1):
        try:
            inside = folder / f"phase-{place}-{phase.name}"
            planned = phase_plan(plan, phase, policy)
            if planned is None:
                continue
            run = execute(planned, inside, mode=mode, weights=handed, data=data)
        except Stopped as stopped:
            raise Stopped(folder, stopped.number, stopped.how) from None
        policy = run.policy
        for model, module in run.models.items():
            for name, tensor in weights_of(module).items():
                for own, theirs in phase.handed:
                    if f"{model}.{name}".startswith(f"{own}."):
                        handed[theirs + f"{model}.{name}"[len(own) :]] = tensor
        data |= states_of(inside, phase)
    if data:
        note_data(folder, data)
    return handed, data


def states_of(folder: Path, phase: Phase) -> dict[str, Any]:
    """Returns the states that a finished phase passes on, by name, read from its last checkpoint."""
    if not phase.data:
        return {}
    checkpoint = store.load(folder / "checkpoints")
    if checkpoint is None:
        raise AssayError(f"phase '{phase.name}' passes data on, but {folder} has no checkpoint. Start the run again")
    found = {}
    for path, name in phase.data.items():
        value = checkpoint.tree["loop"]["states"]
        for word in path.split("."):
            known = range(len(value)) if isinstance(value, list) else value
            if (int(word) if isinstance(value, list) and word.isdigit() else word) not in known:
                raise AssayError(
                    f"phase '{phase.name}' passes on the state '{path}', which it does not have ('{word}')"
                )
            value = value[int(word)] if isinstance(value, list) else value[word]
        found[name] = value
    return found


def note_data(folder: Path, data: Mapping[str, Any]) -> None:
    """Writes a hash of each state that was passed on; AssayError if a resumed run receives another state."""
    path = folder / "handed.json"
    found = {name: store.fingerprint(as_json(value)) for name, value in data.items()}
    if path.is_file() and json.loads(path.read_text()) != found:
        raise AssayError(f"{folder} was started with other data from its phases than they hold now. Start it again")
    store.write_json(path, found)
