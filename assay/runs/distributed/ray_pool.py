"""Jobs as Ray tasks, on this machine or on a cluster: `--on ray`, `--on HOST:6379`.

Every machine must see the run folders under the same path and have the same code; both are checked on each machine
before the first job, and the code again by every job, since machines may join later.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.faults import Fault, any_fault
from assay.runs.distributed.ray_cluster import check_same_code, cluster, differing, first_line, observer, show_names
from assay.runs.pools import PATIENCE, Child, Ended, Job, Pool, pickled, reason_of, unpickled
from assay.runs.user_code.consent import Code


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
            reason, fault = self.ray.get(child.reference, timeout=PATIENCE)
            return Ended(child, reason, fault=fault)
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


# ---------------------------------------------------------------------------------------------------- on the worker
def run_there(
    sources: Sequence[str], sent: bytes, code: Code, facts: Mapping[str, Any], cwd: str
) -> tuple[str, Fault | None]:
    """Runs the job in a Ray worker; returns "" or the error, and where code failed. Paths are relative to the folder of
    the command.
    """
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
    except Exception as error:
        return reason_of(error), any_fault(error)
    return "", None


def check_own_code(here: Code, there: Code) -> None:
    """Refuses own code that differs on the worker; names the files."""
    changed = [
        f"{name} of {source}"
        for source in sorted({*here, *there})
        for name in differing(here.get(source, {}), there.get(source, {}))
    ]
    if changed:
        raise AssayError(
            f"the worker on {socket.gethostname()} has other own code than this machine ({show_names(changed)}). Copy "
            "the files there, or keep them in a shared folder."
        )


@contextmanager
def ray_pool(on: str, folder: Path) -> Iterator[RayPool]:
    """Starts or joins Ray (see `cluster`); yields a pool for jobs under `folder`."""
    with cluster(on, folder) as (ray, facts):
        yield RayPool(ray, facts)
