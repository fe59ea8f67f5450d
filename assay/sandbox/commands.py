"""Command lines that put a program into a box, for each kind of box.

Every protection has a name, so that tests can leave out one of them and see that something notices.
"""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from assay.sandbox.values import MIB, Limits

PYTHON = "/usr/bin/python3"
SECCOMP, STATUS = 9, 8
"""Descriptors of the filter of system calls, and of what bubblewrap says about its child."""
SHARED_MEMORY = 16 * MIB
FILE_SIZE = 32 * MIB
LINKS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
OUTSIDE = {"PATH": "/usr/bin:/bin", "OUTSIDE": "1"}
"""The environment in which bubblewrap starts: a box can read it, so it has nothing of this process."""

Without = frozenset[str]
"""Names of protections that are left out, for tests."""


@dataclass(frozen=True)
class Slot:
    """A place for one box: its number, and its user id; 0 if boxes run as the user of this process."""

    number: int
    uid: int = 0


def rlimits(limits: Limits, without: Without = frozenset()) -> list[str]:
    """Returns the command that limits each process; the supervisor measures the sum over processes."""
    chosen = {
        "nproc": limits.processes,
        "as": limits.address_space,
        "fsize": min(FILE_SIZE, limits.disk),
        "nofile": 128,
        "core": 0,
        "cpu": math.ceil(limits.cpu_seconds) + 1,
    }
    return ["/usr/bin/prlimit", *(f"--{name}={value}" for name, value in chosen.items() if name not in without), "--"]


def mounts(limits: Limits, without: Without = frozenset()) -> list[str]:
    """Returns the arguments of bubblewrap for files: the system's programs, and a folder of bounded size."""
    links: list[str] = []
    for path in LINKS:
        if os.path.islink(path):
            links += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            links += ["--ro-bind", path, path]
    if os.path.isdir("/etc/alternatives"):  # where Debian's names of programs point to
        links += ["--ro-bind", "/etc/alternatives", "/etc/alternatives"]
    pieces = {
        "ro-usr": ["--ro-bind", "/usr", "/usr"],
        "links": links,
        "proc": ["--proc", "/proc"],
        "dev": ["--dev", "/dev"],
        "shm-size": ["--size", str(SHARED_MEMORY)],
        "shm": ["--tmpfs", "/dev/shm"],
        "ro-dev": ["--remount-ro", "/dev"],
        "tmp-size": ["--size", str(limits.disk)],
        "tmp": ["--tmpfs", "/tmp"],
        "chdir": ["--chdir", "/tmp"],
        "ro-root": ["--remount-ro", "/"],
    }
    if "own-root" in without:
        pieces |= {"ro-usr": ["--ro-bind", "/", "/"], "links": []}
    if "ro-usr" in without:
        pieces["ro-usr"] = ["--bind", "/usr", "/usr"]
    if "tmp" in without:
        pieces |= {"tmp-size": [], "tmp": ["--dir", "/tmp"]}
    kept = {name: words for name, words in pieces.items() if name not in without or name in ("ro-usr", "tmp")}
    return [word for words in kept.values() for word in words]


WALLS = {
    "user": "--unshare-user", "ipc": "--unshare-ipc", "pid": "--unshare-pid", "net": "--unshare-net",
    "uts": "--unshare-uts", "cgroup": "--unshare-cgroup-try", "userns": "--disable-userns", "caps": "--cap-drop ALL",
    "session": "--new-session", "die": "--die-with-parent", "clearenv": "--clearenv",
    "seccomp": f"--seccomp {SECCOMP}",
}  # fmt: skip
PROTECTIONS = (
    "environment", "uid", "groups", "nproc", "as", "fsize", "nofile", "core", "cpu", "own-root", "ro-usr", "shm-size",
    "ro-dev", "tmp-size", "tmp", "chdir", "ro-root", *WALLS,
)  # fmt: skip
"""Names of all parts of the command that protect something."""


def bubblewrap(slot: Slot, limits: Limits, program: list[str], without: Without = frozenset()) -> list[str]:
    """Returns the command that runs a program in a box of bubblewrap.

    With a uid of its own the limit of processes counts that uid, and is set outside. Without one it would count all
    processes of the user; inside, it counts those of the box's user namespace.
    """
    limited = rlimits(limits, without)
    walls = [word for name, words in WALLS.items() if name not in without for word in words.split()]
    environment = ["--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp", "--setenv", "LANG", "C.UTF-8"]
    environment += ["--setenv", "PYTHONHASHSEED", "0"]  # the same program gives the same result again
    box = [shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin") or "bwrap", *mounts(limits, without), *walls]
    box += [*environment, "--json-status-fd", str(STATUS), "--"]
    if not slot.uid or "uid" in without:
        return [*box, *limited, *program]
    identity = ["/usr/bin/setpriv", "--reuid", str(slot.uid), "--regid", str(slot.uid)]
    identity += ["--keep-groups"] if "groups" in without else ["--clear-groups"]
    return [*identity, "--", *limited, *box, *program]


def unprotected(slot: Slot, limits: Limits, program: list[str], without: Without = frozenset()) -> list[str]:
    """Returns the command that runs a program without a box, with limits alone."""
    return [*rlimits(limits, frozenset({"nproc"})), *program]


def gvisor(slot: Slot, limits: Limits, program: list[str], without: Without = frozenset()) -> list[str]:
    """Returns the command that runs a program in a box of gVisor, which has a kernel of its own."""
    runsc = shutil.which("runsc", path="/usr/bin:/usr/local/bin:/bin") or "runsc"
    return [
        runsc,
        "--rootless",
        "--network=none",
        "do",
        "--cwd",
        "/tmp",
        *rlimits(limits, frozenset({"nproc"})),
        *program,
    ]


def interpreter() -> tuple[str, tuple[str, ...]]:
    """Returns the interpreter inside a box, and folders of packages to import from."""
    found = sorted(Path("/usr/lib/python3").glob("dist-packages")) + sorted(
        Path("/usr/lib").glob("python3.*/site-packages")
    )
    return PYTHON, tuple(map(str, found))
