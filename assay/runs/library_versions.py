"""What a run is compared with besides its settings when it is resumed or reproduced: the files of a frozen base model,
and the versions of the code and of every package that computes.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from assay.core.errors import AssayError
from assay.engine.engine import Engine
from assay.runs.plan import Plan
from assay.version import __version__

BASE = "base_files"
"""Entry of config.json: size, time and sha256 of the files of a frozen base model, which checkpoints do not hold."""

VERSIONS = "versions"
"""Entry of config.json: commit of assay, and the version of every installed package that computes."""
COMPUTING = (
    "torch", "numpy", "safetensors", "scipy", "gymnasium", "mujoco", "ale-py", "pettingzoo", "minari", "h5py",
    "envpool", "transformers", "tokenizers", "peft", "accelerate", "triton", "liger-kernel", "reasoning-gym", "vllm",
    "ray",
)  # fmt: skip
"""Packages whose version can change the numbers of a run."""


def library_versions() -> dict[str, str]:
    """Returns the versions of assay and of the installed packages that compute, by name, and `commit`, that of the
    source of assay, if it is a checkout of git.
    """
    packages = {name: version for name in COMPUTING if (version := installed_version(name)) is not None}
    commit = source_commit(Path(__file__).resolve().parents[2])
    return {"assay": __version__, **({"commit": commit} if commit else {}), **packages}


def installed_version(name: str) -> str | None:
    """Returns the version of an installed package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@cache
def source_commit(folder: Path) -> str:
    """Returns the commit of a checkout, with "+changed" if its package differs from it; "" for an installed package."""
    if not (folder / ".git").exists():
        return ""
    git = ["git", "-C", str(folder)]
    asked = (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "assay"])
    try:
        answers = [
            subprocess.run([*git, *one], capture_output=True, text=True, timeout=20, check=False) for one in asked
        ]
    except (OSError, subprocess.TimeoutExpired):
        return ""
    commit, changes = answers
    return "" if commit.returncode else commit.stdout.strip() + "+changed" * bool(changes.stdout.strip())


def base_files(plan: Plan, engine: Engine) -> dict[str, Any]:
    """Returns the entry for config.json; empty if every weight is trained, and so is in the checkpoints."""
    files = files_of(plan, engine)
    return {BASE: {name: file_facts(path) for name, path in files.items()}} if files else {}


def files_of(plan: Plan, engine: Engine) -> dict[str, Path]:
    """Returns the weight files of frozen models: the pretrained base if some of its weights are, and teachers, with the
    name of the model before that of the file.
    """
    if plan.model is None:
        return {}
    from assay.models.pretrained.teacher import PretrainedTeacher
    from assay.models.pretrained.transformers import folder_of, pinned

    critics = plan.recipe.critics.items()
    models = {f"{name}/": spec.model for name, spec in critics if isinstance(spec, PretrainedTeacher)}
    others = [flat for name, flat in engine.flats.items() if f"{name}/" not in models]
    if any(flat.num_parameters != sum(map(torch.numel, flat.tensors)) for flat in others):
        models[""] = pinned(plan.model)
    paths = [(at, path) for at, model in models.items() for path in sorted(folder_of(model).glob("*.safetensors"))]
    return {at + path.name: path for at, path in paths}


def file_facts(path: Path) -> dict[str, Any]:
    """Returns size, time and sha256 of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"size": path.stat().st_size, "time": path.stat().st_mtime_ns, "sha256": digest}


def check_base(folder: Path, plan: Plan, engine: Engine) -> None:
    """Raises AssayError naming the file of the base model that has changed since the run was started.

    A file of the same size and time is not read again.
    """
    recorded = json.loads((folder / "config.json").read_text()).get(BASE)
    if not recorded:
        return
    there = files_of(plan, engine)
    for name, before in recorded.items():
        path = there.get(name)
        if path is None:
            raise AssayError(f"the base model or teacher of {folder} lacks {name} now ({plan.model}). Restore it")
        now = path.stat()
        if (now.st_size, now.st_mtime_ns) == (before["size"], before["time"]):
            continue
        if file_facts(path)["sha256"] != before["sha256"]:
            raise AssayError(
                f"{path} has changed since {folder} was started: what it learned belongs to other frozen weights. "
                "Restore the file, or start a new run"
            )


def compared_versions(facts: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each library whose version differs from the one that saved the checkpoint."""
    here = {"assay": __version__, "torch": str(torch.__version__)}
    return [
        f"this run was saved with {name} {facts[name]} and is resumed with {version}: its numbers may differ from "
        "those of an uninterrupted run"
        for name, version in here.items()
        if name in facts and facts[name] != version
    ]
