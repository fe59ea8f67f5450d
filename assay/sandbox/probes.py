"""Looks at a box from the inside before it is trusted: what is open is said, and then nothing runs in it."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.sandbox.commands import FILE_SIZE, OUTSIDE, SHARED_MEMORY
from assay.sandbox.decoding import plain_value
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.values import Calls, Completed, Limits

LOOKING_OUT = Path(__file__).with_name("looking_out.py").read_text(encoding="utf-8")
ROOT = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr"}
SEEN = {"HOME", "LANG", "PATH", "PWD", "PYTHONHASHSEED", "SHLVL", "_", "LC_CTYPE"}
INSTALL = (
    "Install it (apt install bubblewrap) and allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), name "
    "another sandbox (--sandbox gvisor, or the address of one), or run the code without a box: --sandbox unsafe"
)


def describe_sandbox(sandbox: LocalSandbox, limits: Limits = Limits()) -> dict[str, Any]:
    """Returns what a program in a box of this sandbox sees; AssayError if no box can be started."""
    with tempfile.NamedTemporaryFile(prefix="assay-canary-") as canary, socket.socket() as listener:
        os.chmod(canary.name, 0o644)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        call = f"facts({canary.name!r}, {listener.getsockname()[1]})"
        result = sandbox.run(LOOKING_OUT, Calls((call,)), limits)
    if isinstance(result, Completed) and result.values and result.values[0][0] == "v":
        found: dict[str, Any] = plain_value(result.values[0][1])
        return found
    raise AssayError(f"the sandbox '{sandbox.kind}' does not run programs: {result!r:.300}. {INSTALL}")


def holes(facts: dict[str, Any], limits: Limits = Limits()) -> list[str]:
    """Returns in words what is open in a box that has these facts; nothing if it holds."""
    host = {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}
    most = {
        "nproc": limits.processes, "as": limits.address_space, "fsize": min(FILE_SIZE, limits.disk), "nofile": 128,
        "core": 0, "cpu": limits.cpu_seconds + 2,
    }  # fmt: skip
    found = {
        "variables of the environment": set(facts["environment"]) - SEEN,
        "the environment of the first process": first_variables(facts["first_environment"]) - set(OUTSIDE),
        "the user id of the machine's root": facts["owns_system"],
        "groups": facts["groups"],
        "capabilities": any(facts["capabilities"]),
        "new privileges": facts["new_privileges"],
        "system calls without a filter": not facts["filtered"],
        **{f"the limit {name}": not -1 < facts["limits"][name] <= value for name, value in most.items()},
        "files of the machine": facts["canary"] or set(facts["root"]) - ROOT,
        "files to write": facts["writable"],
        "file systems to write": {"/usr", "/", "/dev"} - set(facts["read_only"]),
        "the size of /tmp": not 0 < facts["sizes"]["/tmp"] <= limits.disk,
        "the size of /dev/shm": not 0 < facts["sizes"]["/dev/shm"] <= SHARED_MEMORY,
        "the folder": facts["folder"] != "/tmp",
        "the session": facts["session"] == 0,
        "namespaces": [name for name, own in facts["namespaces"].items() if shares(name, own, host)],
        "processes of the machine": facts["processes"] > 8,
        "descriptors": set(facts["descriptors"]) - {0, 1, 2, 3, 4},
        "the network": facts["connects"],
        "sockets of other families": facts["families"],
        "calls": facts["called"],
    }
    return [f"{name}: {value}" for name, value in found.items() if value]


def shares(name: str, own: str, host: dict[str, str]) -> bool:
    """Returns whether a namespace that must be the box's own is the machine's."""
    return name in ("user", "ipc", "pid", "net", "uts", "cgroup", "mnt") and own == host.get(name)


def first_variables(content: str) -> set[str]:
    """Returns the names of variables in an environment as the kernel shows it."""
    return {entry.partition("=")[0] for entry in content.split("\0") if entry}


def check(sandbox: LocalSandbox) -> dict[str, Any]:
    """Returns the facts of a sandbox that holds; AssayError says what is open in one that does not."""
    facts = describe_sandbox(sandbox)
    if sandbox.kind == "bubblewrap" and (found := holes(facts)):
        raise AssayError(f"the sandbox '{sandbox.kind}' does not hold on this machine ({'; '.join(found)}). {INSTALL}")
    return facts
