"""Modules and functions that have moved since version 0.2.

Old paths of modules work until version 0.4: importing one warns and gives the module at its new place. Functions that a
recipe names keep the name that run folders and verdicts of 0.2 recorded for them, so that those stay valid.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MODULES = {
    "app": "cli",
    "app.cli": "cli.main",
    "app.report": "report",
    "claims.policies": "claims.metrics",
    "defaults": "recipes.presets",
    "engine.alarms": "engine.guards.alarms",
    "engine.learning": "engine.guards.learning",
    "engine.sharding": "engine.fsdp",
    "engine.shards": "engine.batch_shards",
    "engine.slices": "engine.optimizer_shards",
    "evidence": "statistics",
    "ledger": "runs.distributed.ledger",
    "models.held": "models.decoder_handle",
    "models.pretrained.shards": "models.pretrained.weight_index",
    "playing": "rollouts",
    "playing.decoding": "decoding.decode",
    "playing.narrowing": "decoding.sampling_parameters",
    "playing.ready": "rollouts.async_stepping",
    "playing.remote": "rollouts.remote_dialogues",
    "playing.resumed": "rollouts.resumed_episodes",
    "playing.versions": "decoding.weight_versions",
    "proof": "claims",
    "proof.discover": "claims.discover",
    "proof.laws": "claims.laws",
    "proof.mutants": "claims.mutants",
    "proof.panel": "claims.panel",
    "proof.stamps": "claims.stamps",
    "proof.verdicts": "claims.verdicts",
    "recipes.defaults": "recipes.presets",
    "runs.gather_checks": "runs.distributed.checks",
    "runs.gather_pool": "runs.distributed.worker_pool",
    "runs.gatherers": "runs.distributed.gatherers",
    "runs.ipc": "runs.distributed.gpu_memory",
    "runs.own": "runs.user_code",
    "runs.own.things": "runs.user_code.methods_and_tasks",
    "runs.ranks": "runs.distributed.ranks",
    "runs.ray_cluster": "runs.distributed.ray_cluster",
    "runs.ray_pool": "runs.distributed.ray_pool",
    "runs.sampler": "runs.distributed.rollout_worker",
    "runs.servers": "runs.distributed.servers",
    "runs.serving": "runs.distributed.serving",
    "runs.starts": "runs.warm_start",
    "runs.versions": "runs.library_versions",
    "runs.weights": "runs.distributed.weights",
    "sampling": "decoding",
    "sampling.sampler": "decoding.scheduler",
    "sampling.stacks": "decoding.layers",
    "tasks.testbeds": "claims.testbeds",
}
"""Old path -> new path, without the leading `assay.`; the longest one that fits decides."""

FUNCTIONS = {
    "assay.methods.dph_rl": "regularizers",
    "assay.methods.lp_reg": "parts",
    "assay.methods.mpo_meta": "parts",
    "assay.methods.nft": "objectives",
    "assay.methods.orpo_occupancy": "parts",
    "assay.methods.retroagent": "progress",
    "assay.methods.sdpo": "objectives",
}
"""Method -> the module of its folder in 0.2 that held the functions which its recipe names."""


def recorded_name(function: Any) -> str:
    """Returns the name under which run folders and verdicts record a function; of a callable object, its class's."""
    module = getattr(function, "__module__", None) or type(function).__module__
    module = f"{module}.{FUNCTIONS[module]}" if module in FUNCTIONS else module
    return f"{module}.{getattr(function, '__qualname__', None) or type(function).__qualname__}"


def moved_to(name: str) -> str | None:
    """Returns the new path of a module that has moved; None for any other."""
    words = name.removeprefix("assay.").split(".")
    for length in range(len(words), 0, -1):
        if new := MODULES.get(".".join(words[:length])):
            return ".".join(["assay", new, *words[length:]])
    return None


def import_moved(name: str) -> ModuleType:
    """Imports a module of this package by its old path."""
    return importlib.import_module(f"assay.{name}")


class MovedModules:
    """Finds modules under their old paths, with a warning."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """Returns a spec for an old path of this package; None for any other module."""
        if not name.startswith("assay.") or moved_to(name) is None:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        """Imports the module at its new place."""
        new = str(moved_to(spec.name))
        text = f"{spec.name} has moved to {new}; the old path goes with version 0.4"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module its own spec back; it was executed at its new place."""
        old = module.__spec__
        module.__spec__ = None if old is None else old.loader_state


def install() -> None:
    """Makes old paths importable. First, since `assay.proof.laws` must not be found through `assay.proof` as a second
    copy of `assay.claims.laws`.
    """
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
