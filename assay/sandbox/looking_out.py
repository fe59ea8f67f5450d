"""A program for a box: looks for ways out and tells what it found, as plain values. It stands alone, like `inside`."""

from __future__ import annotations

import os
import resource
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMITS = {"nproc": "NPROC", "as": "AS", "fsize": "FSIZE", "nofile": "NOFILE", "core": "CORE", "cpu": "CPU"}


def facts(canary: str, port: int) -> dict[str, Any]:
    """Returns what a program in this box can see and do; `canary` is a file outside, `port` a listener outside."""
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":", 1) for line in file)
    return {
        "environment": sorted(os.environ),
        "first_environment": text_of("/proc/1/environ"),
        "owns_system": os.stat("/usr").st_uid == os.getuid(),
        "groups": status["Groups"].split(),
        "capabilities": [int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb")],
        "new_privileges": status["NoNewPrivs"].strip() == "0",
        "filtered": status["Seccomp"].strip() == "2",
        "limits": {name: resource.getrlimit(getattr(resource, "RLIMIT_" + key))[1] for name, key in LIMITS.items()},
        "root": sorted(os.listdir("/")),
        "writable": [path for path in ("/", "/usr", "/dev", "/etc", "/proc/sys/kernel/core_pattern") if writes(path)],
        "read_only": [path for path in ("/usr", "/", "/dev") if os.statvfs(path).f_flag & os.ST_RDONLY],
        "sizes": {path: size_of(path) for path in ("/tmp", "/dev/shm")},
        "folder": os.getcwd(),
        "session": os.getsid(0),
        "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in os.listdir("/proc/self/ns")},
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "canary": os.path.exists(canary),
        "connects": connects(port),
        "families": [family for family in (16, 17, 31, 38, 40) if opens(family)],
        "called": [name for name, call in CALLS.items() if succeeds(*call)],
        "python": list(sys.version_info[:2]),
    }


def text_of(path: str) -> str:
    """Returns a file's text, "" if it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def writes(path: str) -> bool:
    """Returns whether a folder takes a new file, or a file can be opened for writing."""
    is_folder = os.path.isdir(path)
    name = path + "/assay-was-here" if is_folder else path
    try:
        os.close(os.open(name, os.O_WRONLY | (os.O_CREAT if is_folder else 0)))
    except OSError:
        return False
    if is_folder:
        os.unlink(name)
    return True


def size_of(path: str) -> int:
    """Returns the bytes that a folder's file system holds; 0 if it is not one of its own."""
    if not os.path.ismount(path):
        return 0
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def connects(port: int) -> bool:
    """Returns whether a listener of the machine can be reached."""
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


def opens(family: int) -> bool:
    """Returns whether a socket of a family can be opened."""
    try:
        socket.socket(family, socket.SOCK_RAW if family in (16, 17) else socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def succeeds(name: str, *given: Any) -> bool:
    """Returns whether a function of the C library succeeds; in a child, since it may change its process."""
    import ctypes

    child = os.fork()
    if child == 0:
        os._exit(0 if getattr(ctypes.CDLL(None), name)(*given) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


CALLS: dict[str, tuple[Any, ...]] = {
    "unshare user": ("unshare", 0x10000000),
    "unshare mount": ("unshare", 0x00020000),
    "remount": ("mount", b"none", b"/usr", None, 32 | 4096, None),
    "ptrace": ("ptrace", 0, 0, 0, 0),
    "chroot": ("chroot", b"/tmp"),
}
