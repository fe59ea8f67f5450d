"""sha256 by parts: the plain one up to a part, any cut into blocks, the same from memory and from a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from assay.core import digests


def entry_of(blocks: list[bytes]) -> dict[str, object]:
    with digests.Digest() as digest:
        for block in blocks:
            digest.update(block)
        return digest.entry()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1000])
def test_parts_are_hashed_alike_from_blocks_and_from_a_file(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "PART", 8)
    content = bytes(place % 251 for place in range(size))
    whole, cut = entry_of([content]), entry_of([content[:3], b"", content[3:20], content[20:]])
    assert whole == cut
    assert whole["size"] == size
    (tmp_path / "file").write_bytes(content)
    part = whole.get("part")
    assert digests.file_digest(tmp_path / "file", part) == whole["sha256"]  # type: ignore[arg-type]
    assert digests.digest_of(tmp_path / "file") == whole["sha256"]
    if size <= 8:
        assert whole["sha256"] == hashlib.sha256(content).hexdigest()
        assert part is None
    else:
        pieces = [hashlib.sha256(content[start : start + 8]).digest() for start in range(0, size, 8)]
        assert whole["sha256"] == hashlib.sha256(b"".join(pieces)).hexdigest()
        assert part == 8


def test_a_changed_byte_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "PART", 8)
    content = bytes(100)
    found = {str(entry_of([content[:place] + b"\x01" + content[place + 1 :]])["sha256"]) for place in range(100)}
    assert len(found) == 100
