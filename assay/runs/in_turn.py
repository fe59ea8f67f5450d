"""A pool that runs jobs in this process, one after the other: for runs of objects that no other process knows."""

from __future__ import annotations

import time
from collections.abc import Sequence

from assay.core.faults import any_fault
from assay.runs.pools import Child, Ended, Job, Pool, reason_of
from assay.runs.progress import Mode
from assay.runs.run import execute
from assay.runs.user_code.consent import Code


class InTurn(Pool):
    """Runs each job in this process when it is waited for. A crash of own code ends the process."""

    @property
    def size(self) -> int:
        """One job at a time."""
        return 1

    def start(self, job: Job, code: Code) -> Child:
        """Takes the job; it runs when it is waited for, and this process knows its code already."""
        return Child(job, time.monotonic())

    def wait(self, children: Sequence[Child], timeout: float) -> list[Ended]:
        """Runs the first job to its end, however long that takes."""
        ended = []
        for child in children[:1]:
            try:
                execute(child.job.plan(), child.job.folder, mode=Mode.SILENT)
                ended.append(Ended(child, ""))
            except Exception as error:
                ended.append(Ended(child, reason_of(error), fault=any_fault(error)))
        return ended

    def stop(self, children: Sequence[Child]) -> None:
        """Does nothing: a job that was not waited for has not begun."""
