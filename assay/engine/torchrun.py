"""Ranks that torchrun has started: who they are, and the key that their values are signed with.

Whoever reaches the ports of ranks could send them a pickle, which may run any code; so no rank reads a value without
the key of its run. On one machine rank 0 draws it and leaves it where only this user can read it; the store, which
anyone may write, holds the folder's name and never the key. Several machines are given one by an environment variable.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.engine.gloo import CONNECT, RANKS_KEY, Gloo, RankLost

PREFIX, NAME, SIZE = "assay-ranks-", "assay/key", 32
"""Of the folder of a key; of its entry in the store; bytes of a key."""


def of_torchrun() -> tuple[int, int] | None:
    """Returns (rank, number of ranks) if torchrun has started this process, else None."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(os.environ.get(name) for name in names):
        return None
    rank, size = (number_of(name) for name in names[:2])
    return (rank, size) if size > 1 else None


def number_of(name: str) -> int:
    """Returns an environment variable that torchrun sets as a number; AssayError for other texts."""
    value = os.environ[name]
    if not value.isdecimal():
        raise AssayError(f"the environment variable {name} is '{value}'. Start ranks by torchrun, or unset it.")
    return int(value)


def join_ranks() -> Gloo:
    """Returns this process as a rank of those that torchrun has started, when all have connected."""
    from torch.distributed.rendezvous import rendezvous

    check_key()
    store, rank, num = next(iter(rendezvous("env://", timeout=CONNECT)))
    store.set_timeout(CONNECT)
    with shared_key(store, rank) as key:
        return Gloo(store, rank, num, local=int(os.environ.get("LOCAL_RANK", rank)), key=key)


def check_key() -> None:
    """Checks that ranks have a way to share a key; AssayError if they are on several machines and were given none."""
    here, everywhere = os.environ.get("LOCAL_WORLD_SIZE"), os.environ["WORLD_SIZE"]
    if here != everywhere and not os.environ.get(RANKS_KEY):
        where = f"{here} of {everywhere} ranks are on this machine" if here else "LOCAL_WORLD_SIZE is not set"
        raise AssayError(
            f"{where}, and {RANKS_KEY} is not set: whoever reaches their ports could run code. On every machine: "
            f"export {RANKS_KEY}=KEY, with a KEY of your own, such as what `openssl rand -hex 32` prints"
        )


@contextmanager
def shared_key(store: Any, rank: int) -> Iterator[bytes]:
    """Yields the key of the run: that of the environment, else one that rank 0 draws, for the others on its machine.

    Leave it when all ranks have connected: rank 0 then removes the folder that held it.
    """
    if given := os.environ.get(RANKS_KEY):
        yield given.encode()
    elif rank:
        yield read_key(Path(store.get(NAME).decode()))
    else:
        with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:  # mode 700
            key = secrets.token_bytes(SIZE)
            (Path(folder) / "key").write_bytes(key)
            store.set(NAME, folder)
            yield key


def read_key(folder: Path) -> bytes:
    """Reads the key that rank 0 left in a folder; RankLost if another user could have made that folder, or read it."""
    try:  # lstat: a link may lead to what another user has made
        found, content = folder.lstat(), (folder / "key").read_bytes()
    except (OSError, ValueError) as error:
        raise RankLost(f"the key of the ranks cannot be read ({error}). Set {RANKS_KEY}") from None
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077 and found.st_uid == os.geteuid()
    if not (is_private and folder.name.startswith(PREFIX) and len(content) == SIZE):
        raise RankLost(f"{folder} is not what rank 0 of this run has made. Set {RANKS_KEY}")
    return content
