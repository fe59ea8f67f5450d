"""Every change that Python code makes to a file system passes through here: counted, stopped or recorded by a test."""

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

MUTATORS = ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir")
UNROUTED = ("replace", "remove", "truncate", "ftruncate", "pwrite", "writev", "link", "symlink", "sendfile", "chmod")
ORIGINAL = {name: getattr(os, name) for name in MUTATORS}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Mutation:
    """One call about to be made: what, on which absolute path, and where to or with what."""

    name: str
    path: str
    target: str = ""
    content: bytes = b""
    descriptor: int = -1


Handler = Callable[[Mutation, Callable[[], Any]], Any]


def described(name: str, args: tuple[Any, ...], dir_fd: int | None) -> Mutation | None:
    """The call as a mutation, or None where it changes nothing."""
    if name in ("write", "fsync"):
        path = os.readlink(f"/proc/self/fd/{args[0]}")
        return Mutation(name, path, content=bytes(args[1]) if name == "write" else b"", descriptor=args[0])
    if name == "open" and not args[1] & WRITES:
        return None
    base = os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else os.getcwd()
    path = os.path.join(base, os.fspath(args[0]))
    if name == "mkdir" and os.path.isdir(path):
        return None
    return Mutation(name, path, target=os.path.join(base, os.fspath(args[1])) if name == "rename" else "")


@contextmanager
def intercepted(handle: Handler) -> Iterator[None]:
    """Call `handle(mutation, perform)` in place of each change; a change by a road not watched raises."""

    def routed(name: str) -> Callable[..., Any]:
        def call(*args: Any, dir_fd: int | None = None, **rest: Any) -> Any:
            place = {} if dir_fd is None else {"dir_fd": dir_fd}
            mutation = described(name, args, dir_fd)
            if mutation is None:
                return ORIGINAL[name](*args, **place, **rest)
            return handle(mutation, lambda: ORIGINAL[name](*args, **place, **rest))

        return call

    def refused(name: str) -> Callable[..., Any]:
        def call(*args: Any, **_: Any) -> Any:
            raise AssertionError(f"{name}{args} changes files by a road that is not watched")

        return call

    def reading(file: Any, mode: str = "r", *args: Any, **rest: Any) -> Any:
        return refused("open")(file, mode) if set(mode) & set("wax+") else plain_open(file, mode, *args, **rest)

    plain_open = builtins.open
    with (
        mock.patch.multiple(os, **{name: routed(name) for name in MUTATORS}),
        mock.patch.multiple(os, **{name: refused(f"os.{name}") for name in UNROUTED}),
        mock.patch.object(builtins, "open", reading),
    ):
        yield
