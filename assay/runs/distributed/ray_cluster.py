"""Ray on this machine or a cluster, whose machines must have the same code and see the same folder.

The only module that imports Ray.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.extras import require

REACH = 10.0
"""Seconds in which the address must take a connection."""
ANSWER = 60.0
"""Seconds in which every machine must answer the first question: its worker starts and imports torch."""
STORE = 100 * 2**20
"""Bytes of Ray's object store on this machine: jobs hand on folders, not tensors."""


@contextmanager
def cluster(on: str, folder: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Starts Ray here (`ray`) or joins the cluster at HOST:PORT; yields Ray and what this machine has, for work under
    `folder`.

    A Ray that this process has started before is used and left running. AssayError in one sentence if Ray is missing,
    nothing answers at the address, a machine does not see the folder, or has other code.
    """
    if on != "ray" and not on.rpartition(":")[2].isdigit():
        raise AssayError(f"--on is '{on}'. Use ray, which starts Ray on this machine, or HOST:PORT of a Ray cluster.")
    ray = require("ray", "ray", f"--on {on}")
    is_ours = not ray.is_initialized()
    if is_ours:
        connect(ray, on)
    try:
        yield ray, check_machines(ray, folder)
    finally:
        if is_ours:
            ray.shutdown()


def connect(ray: Any, on: str) -> None:
    """Starts or joins; AssayError if that fails."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if on == "ray":
            small = {"include_dashboard": False, "object_store_memory": STORE}
            ray.init(address="local", num_cpus=os.cpu_count(), **small, **quiet)
        else:
            check_reachable(on)
            ray.init(address=on, **quiet)
    except (OSError, RuntimeError, ValueError, SystemExit, ray.exceptions.RayError) as error:
        raise AssayError(f"--on {on}: Ray does not start ({type(error).__name__}: {error}). Run: ray status") from error


def check_reachable(address: str) -> None:
    """AssayError unless a Ray head answers at the address; Ray itself would try for two minutes and then exit."""
    host, _, port = address.rpartition(":")
    fix = f"Start one there: ray start --head --port={port}"
    try:
        socket.create_connection((host, int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise AssayError(f"--on {address}: nothing answers at this address ({error}). {fix}") from None
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=ANSWER, check=False)
    except subprocess.TimeoutExpired:
        raise AssayError(f"--on {address}: what answers at this address is not a Ray head. {fix}") from None
    if "InvalidAuthToken" in answer.stderr + answer.stdout:
        raise AssayError(
            f"--on {address}: the cluster asks for its token. Copy ~/.ray/auth_token from the head to this machine and "
            "set RAY_AUTH_MODE=token."
        )
    if answer.returncode != 0:
        raise AssayError(f"--on {address}: what answers at this address is not a Ray head. {fix}")


def check_machines(ray: Any, folder: Path) -> dict[str, Any]:
    """Asks a worker on every machine for its code and for a file just written to the folder; AssayError if one differs.

    Returns what this machine has.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    folder.mkdir(parents=True, exist_ok=True)
    probe = folder.absolute() / f".probe-{socket.gethostname()}-{secrets.token_hex(4)}"
    probe.write_text(secrets.token_hex(8))
    try:
        here = observer()(str(probe))
        asked = ray.remote(num_cpus=0, max_retries=0)(observer())
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
        answers = [asked.options(scheduling_strategy=place).remote(str(probe)) for place in places]
        try:
            machines = ray.get(answers, timeout=ANSWER)
        except ray.exceptions.RayError as error:
            raise AssayError(f"a machine does not answer ({first_line(error)}). Look at it: ray status") from error
    finally:
        probe.unlink(missing_ok=True)
    for there in machines:
        check_same_code(here, there)
        if there["probe"] != here["probe"]:
            raise AssayError(
                f"the worker on {there['host']} does not see {folder.absolute()}. Use --out in a folder that all "
                "machines share under one path."
            )
    return here


# ---------------------------------------------------------------------------------------------------- machines
def observer() -> Callable[[str], dict[str, Any]]:
    """Returns a function that tells what a machine has. It travels as source, so that it runs where assay differs."""

    def observed(probe: str) -> dict[str, Any]:
        import hashlib
        import importlib.metadata
        import importlib.util
        import pathlib
        import platform
        import socket

        spec = importlib.util.find_spec("assay")
        root = pathlib.Path(spec.origin).parent if spec is not None and spec.origin else None
        paths = [] if root is None else sorted(root.rglob("*.py"))
        files = {
            str(path.relative_to(root.parent)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            for path in paths
            if root is not None
        }
        versions = {"python": ".".join(platform.python_version_tuple()[:2])}
        versions |= {name: importlib.metadata.version(name).partition("+")[0] for name in ("torch", "numpy")}
        there = pathlib.Path(probe)
        text = there.read_text() if probe and there.is_file() else ""
        return {"host": socket.gethostname(), "files": files, "versions": versions, "probe": text}

    return observed


def check_same_code(here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Refuses a worker with other versions or other files of assay; names what differs."""
    for name, version in here["versions"].items():
        if there["versions"][name] != version:
            raise AssayError(
                f"the worker on {there['host']} has {name} {there['versions'][name]}, this machine {version}. Install "
                "the same version on both."
            )
    changed = differing(here["files"], there["files"])
    if changed:
        raise AssayError(
            f"the worker on {there['host']} has another assay than this machine ({show_names(changed)}). Install the "
            "same version on both."
        )


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Returns the names of files whose digests differ or that one side lacks."""
    return [name for name in sorted({*here, *there}) if here.get(name) != there.get(name)]


def show_names(names: Sequence[str]) -> str:
    """Returns the first three names, and how many there are besides."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def first_line(error: Exception) -> str:
    """Returns the first line of an error, without its full stop."""
    return (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")
