"""Restores a loop from a checkpoint, with errors that say what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.core import store
from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.runs.agents import is_agent
from assay.version import __version__


@contextmanager
def fitting(checkpoint: store.Checkpoint, folder: Path) -> Iterator[None]:
    """Turns errors of restoring into one that names the version that saved the checkpoint."""
    by = checkpoint.manifest["facts"].get("assay", "another version")
    try:
        yield
    except (KeyError, ValueError, IndexError, RuntimeError) as error:
        raise AssayError(
            f"the checkpoint of step {checkpoint.step} in {folder} does not fit this version of its parts "
            f"({type(error).__name__}: {error}); it was saved by assay {by}, this is {__version__}. Resume it with the "
            "version that saved it, or start a new run"
        ) from error


def restore(loop: Loop, checkpoint: store.Checkpoint, folder: Path) -> None:
    """Restores a loop; AssayError if the checkpoint lacks a state that this version of a part or guard saves."""
    saved = checkpoint.tree["loop"]
    if is_agent(checkpoint):
        what = f"{folder} is an exported agent: weights, and nothing that training goes on from"
        raise AssayError(f"{what}. Start a run from it: assay train METHOD --from {folder}")
    with fitting(checkpoint, folder):
        mine, theirs = loop.states["guards"], saved["states"]["guards"]
        lacking = [name for own, other in zip(mine, theirs, strict=True) for name in own if name not in other]
        if lacking:
            raise KeyError(lacking[0])
        loop.restore(saved)
