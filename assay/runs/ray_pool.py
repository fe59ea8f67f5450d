"""Jobs as Ray tasks, on this machine or on a cluster: `--on ray`, `--on HOST:6379`. The only module that imports Ray.

Every machine must see the run folders under the same path and have the same code; both are checked on each machine
before the first job, and the code again by every job, since machines may join later.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.runs.own.consent import Code
from assay.runs.pools import PATIENCE, Child, Ended, Job, Pool, pickled, unpickled

REACH = 10.0
"""Seconds in which the address must take a connection."""
ANSWER = 60.0
"""Seconds in which every machine must answer the first question: its worker starts and imports torch."""
STORE = 100 * 2**20
"""Bytes of Ray's object store on this machine: jobs hand on folders, not tensors."""


@dataclass(eq=False)
class Task(Child):
    """A job as a Ray task."""

    reference: Any


class RayPool(Pool):
    """Every job is a Ray task of one core. A worker process is kept for the next job."""

    def __init__(self, ray: Any, facts: Mapping[str, Any]) -> None:
        self.ray = ray
        self.task = ray.remote(num_cpus=1, max_retries=0)(run_there)
        self.facts = ray.put(dict(facts))

    @property
    def size(self) -> int:
        """One job for each core of the cluster."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def start(self, job: Job, code: Code) -> Task:
        """Hands the job to Ray, with the digests of its own code."""
        sent = pickled(replace(job, folder=job.folder.absolute()))
        return Task(job, time.monotonic(), self.task.remote(*sent, code, self.facts, os.getcwd()))

    def wait(self, children: Sequence[Task], timeout: float) -> list[Ended]:
        """Waits for a result or the death of a worker."""
        if not children:
            return []
        ready, _ = self.ray.wait([child.reference for child in children], timeout=timeout)
        return [self.ended(child) for child in children if child.reference in ready]

    def ended(self, child: Task) -> Ended:
        """Returns the end of a task that is over."""
        try:
            return Ended(child, self.ray.get(child.reference, timeout=PATIENCE))
        except self.ray.exceptions.RayTaskError as error:
            return Ended(child, f"{type(error.cause).__name__}: {error.cause}")
        except self.ray.exceptions.RayError as error:
            return Ended(child, f"the worker died ({type(error).__name__}): {first_line(error)}", died=True)

    def stop(self, children: Sequence[Task]) -> None:
        """Interrupts the tasks, which save and return; then ends their workers."""
        references = [child.reference for child in children]
        for forced, patience in ((False, PATIENCE), (True, PATIENCE)):
            if not references:
                return
            for reference in references:
                self.ray.cancel(reference, force=forced)
            _, references = self.ray.wait(references, num_returns=len(references), timeout=patience)


def first_line(error: Exception) -> str:
    """Returns the first line of an error, without its full stop."""
    return (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")


# ---------------------------------------------------------------------------------------------------- on the worker
def run_there(sources: Sequence[str], sent: bytes, code: Code, facts: Mapping[str, Any], cwd: str) -> str:
    """Runs the job in a Ray worker; returns "" or the error. Paths are relative to the folder of the command."""
    import torch

    from assay.runs.progress import Mode
    from assay.runs.run import execute

    torch.set_num_threads(1)
    if Path(cwd).is_dir():
        os.chdir(cwd)
    try:
        check_same_code(facts, observer()(""))
        job = unpickled(sources, sent)
        plan = job.plan()
        check_own_code(code, plan.code)
        execute(plan, job.folder, mode=Mode.SILENT)
    except AssayError as error:
        return str(error)
    return ""


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
            f"the worker on {there['host']} has another assay than this machine ({shown(changed)}). Install the same "
            "version on both."
        )


def check_own_code(here: Code, there: Code) -> None:
    """Refuses own code that differs on the worker; names the files."""
    changed = [
        f"{name} of {source}"
        for source in sorted({*here, *there})
        for name in differing(here.get(source, {}), there.get(source, {}))
    ]
    if changed:
        raise AssayError(
            f"the worker on {socket.gethostname()} has other own code than this machine ({shown(changed)}). Copy the "
            "files there, or keep them in a shared folder."
        )


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Returns the names of files whose digests differ or that one side lacks."""
    return [name for name in sorted({*here, *there}) if here.get(name) != there.get(name)]


def shown(names: Sequence[str]) -> str:
    """Returns the first three names, and how many there are besides."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ---------------------------------------------------------------------------------------------------- the cluster
@contextmanager
def ray_pool(on: str, folder: Path) -> Iterator[RayPool]:
    """Starts Ray here (`ray`) or joins the cluster at HOST:PORT; yields a pool for jobs under `folder`.

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
        yield RayPool(ray, check_machines(ray, folder))
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
