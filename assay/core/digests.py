"""sha256 of files, long ones by parts that several threads hash at once.

    up to PART bytes: sha256 of the file;   longer: sha256 of the digests of its parts, one after another

One thread hashes 0.7 GB a second, so that a checkpoint of 8 GB took longer to hash than to write.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

PART = 1 << 26
THREADS = min(8, os.cpu_count() or 1)


def join_digests(parts: Sequence[bytes]) -> str:
    """Returns the digest of a file from those of its parts."""
    return (parts[0] if len(parts) == 1 else hashlib.sha256(b"".join(parts)).digest()).hex()


class Digest:
    """The size and sha256 of blocks of bytes, which must stay unchanged until `entry` returns. A context manager."""

    def __init__(self) -> None:
        self.size = 0
        self.pool = ThreadPoolExecutor(THREADS)
        self.parts: list[Future[bytes]] = []
        self.open: list[memoryview] = []

    def __enter__(self) -> Digest:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def update(self, block: bytes | memoryview) -> None:
        """Adds a block. Waits for earlier parts if many are not hashed yet, so that few copies are alive."""
        rest = memoryview(block).cast("B")
        while rest:
            taken = rest[: PART - self.size % PART]
            self.open.append(taken)
            self.size, rest = self.size + len(taken), rest[len(taken) :]
            if self.size % PART == 0:
                self.close()
        if len(self.parts) > 2 * THREADS:
            self.parts[-2 * THREADS].result()

    def close(self) -> None:
        """Gives the open part to a thread."""
        self.parts.append(self.pool.submit(sha256_of, self.open))
        self.open = []

    def entry(self) -> dict[str, Any]:
        """Returns size and sha256, and the size of parts if there are several."""
        if self.open or not self.parts:
            self.close()
        found = {"size": self.size, "sha256": join_digests([part.result() for part in self.parts])}
        return found | ({"part": PART} if len(self.parts) > 1 else {})


def sha256_of(blocks: Sequence[memoryview]) -> bytes:
    """Returns the digest of blocks, one after another."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.digest()


def file_digest(path: Path, part: int | None) -> str:
    """Returns the sha256 of a file, by parts of this size if there is one."""
    with path.open("rb") as stream, ThreadPoolExecutor(THREADS) as pool:
        if part is None:
            return hashlib.file_digest(stream, "sha256").hexdigest()

        def digest(start: int) -> bytes:
            return hashlib.sha256(os.pread(stream.fileno(), part, start)).digest()

        return join_digests(list(pool.map(digest, range(0, os.fstat(stream.fileno()).st_size, part))))


def digest_of(path: Path) -> str:
    """Returns the sha256 of a file as `Digest` computes it."""
    return file_digest(path, PART if path.stat().st_size > PART else None)
