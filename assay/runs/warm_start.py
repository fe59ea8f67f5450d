"""Warm starts: the weights of another run's checkpoint, by folder and step, checked against a run's own models.

Weights have the shapes of parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError
from assay.engine.engine import Engine
from assay.runs.saving import best_step
from assay.runs.signals import resume_command

BEST = "best"


@dataclass(frozen=True)
class Start:
    """A checkpoint whose weights another run starts from: its folder, and a hash of its tensors."""

    path: str
    hash: str


def chosen(folder: Path, which: str | int | None) -> store.Checkpoint:
    """Returns a checkpoint of a run: the newest, that of a step, or "best", the one with the best held-out score of
    those that are kept.
    """
    checkpoints = folder / "checkpoints"
    if which not in (None, BEST):
        if not str(which).isdecimal():
            raise AssayError(f"checkpoint is {which!r}. Use a step, or 'best'.")
        return store.load_step(checkpoints, int(which))
    newest = store.load(checkpoints)
    if newest is None:
        raise AssayError(f"{folder} has no checkpoint yet. Start it with: {resume_command(folder)}")
    if which != BEST:
        return newest
    step = best_step(newest.tree["scores"], store.saved_steps(checkpoints))
    if step is None:
        raise AssayError(f"no checkpoint of {folder} was evaluated. Train with --best, or name a step.")
    return newest if step == newest.step else store.load_step(checkpoints, step)


def start_of(address: str) -> Start:
    """Returns the checkpoint that RUN, RUN@STEP or RUN@best names, with the hash of its tensors."""
    folder, _, which = address.partition("@") if not Path(address).is_dir() else (address, "", "")
    if not (Path(folder) / "config.json").is_file():
        raise AssayError(f"--from {address} is not a run folder: it has no config.json. Use RUN, RUN@STEP or RUN@best.")
    found = chosen(Path(folder).resolve(), which or None)
    return Start(str(found.path), found.manifest["files"][store.TENSORS]["sha256"][:16])


def weights_from(start: Start, engine: Engine, copies: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the weights of the checkpoint by full name for the models of this run that it has; target networks
    copy theirs. AssayError if the actor has other weights, or another shape, or if the checkpoint has changed.
    """
    checkpoint = store.load_path(Path(start.path))
    if checkpoint.manifest["files"][store.TENSORS]["sha256"][:16] != start.hash:
        raise AssayError(f"{start.path} has changed since the run was planned. Start it again")
    models = checkpoint.tree["loop"]["engine"]["models"]
    kept = (model for model in models if model not in copies)
    found = {name: tensor for model in kept for name, tensor in tensors_by_path(model, models[model])}
    for model, flat in engine.flats.items():
        if model in copies or (model != "actor" and model not in models):
            continue
        for own, tensor in zip(flat.names, flat.tensors, strict=True):
            given = found.get(f"{model}.{own}")
            if given is None or given.shape != tensor.shape:
                there = "is missing there" if given is None else f"has shape {list(given.shape)} there"
                raise AssayError(
                    f"--from {start.path}: the weight {model}.{own} {there} and has shape {list(tensor.shape)} here. "
                    "Use the same model in both runs"
                )
    return found


def tensors_by_path(path: str, value: Any) -> list[tuple[str, Tensor]]:
    """Returns the tensors of a model's state by full name, those of grown modules too."""
    if isinstance(value, Tensor):
        return [(path, value)]
    return [pair for name in value for pair in tensors_by_path(f"{path}.{name}", value[name])]
