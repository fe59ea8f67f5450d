"""Sandboxes by name: bubblewrap, gvisor, an address, or unsafe. One that does not hold is refused at once."""

from __future__ import annotations

import atexit
import functools
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from typing import Protocol

from assay.core.errors import AssayError
from assay.sandbox import probes
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.remote import RemoteSandbox
from assay.sandbox.seccomp import MACHINES
from assay.sandbox.values import Inputs, Job, Limits, Result

NAMES = ("bubblewrap", "gvisor", "unsafe")
LOUD = (
    "WARNING: --sandbox unsafe: code that the model writes runs on this machine without a box, as the user "
    "{user}, with its files, its network and its keys."
)


class Sandbox(Protocol):
    """Runs programs that are not trusted; infrastructure that fails is a SandboxFault, never a result."""

    kind: str

    def run(self, code: str, inputs: Inputs = ..., limits: Limits = ...) -> Result:
        """Runs a program with inputs, within limits, in a box that nothing else uses before or after."""

    def run_all(self, jobs: Sequence[Job]) -> list[Result]:
        """Runs several programs, each in a box of its own; the results are in the order of the jobs."""

    def close(self) -> None:
        """Ends what the sandbox holds."""


def check_name(name: str) -> None:
    """Refuses an unknown sandbox, and one whose program is not installed."""
    if name.startswith(("http://", "https://")):
        RemoteSandbox(name)
        return
    if name not in NAMES:
        raise AssayError(f"there is no sandbox '{name}'. Use one of {', '.join(NAMES)}, or an address http://HOST:PORT")
    program = {"bubblewrap": "bwrap", "gvisor": "runsc"}.get(name, "")
    if program and shutil.which(program, path="/usr/bin:/usr/local/bin:/bin") is None:
        what = f"code that a model writes runs in a box, and the program '{program}' is not installed"
        raise AssayError(f"{what}. {probes.INSTALL}")


@functools.cache
def sandbox_of(name: str = "bubblewrap", num_slots: int = 32) -> Sandbox:
    """Returns the sandbox of a name, after it was looked at from the inside; AssayError says what to install."""
    check_name(name)
    if name.startswith(("http://", "https://")):
        return RemoteSandbox(name, num_slots)
    if name == "bubblewrap" and platform.machine() not in MACHINES:
        known = ", ".join(MACHINES)
        raise AssayError(
            f"there is no filter of system calls for {platform.machine()}, only for {known}. {probes.INSTALL}"
        )
    if name == "unsafe":
        print(LOUD.format(user=os.geteuid()), file=sys.stderr, flush=True)
    sandbox = LocalSandbox(name, num_slots)
    probes.check(sandbox)
    atexit.register(sandbox.close)
    return sandbox
