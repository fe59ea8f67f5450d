"""Films of held-out episodes (`assay evaluate RUN --video N`) for a page, as data inside the file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from assay.report.journal import open_regular
from assay.report.page_runs import Run

KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}
MOST_BYTES, MOST_OF_A_RUN = 40 * 2**20, 6
"""Bytes of all films on a page, and films of one run, at most."""


def gather_videos(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the films of the runs by the place of their run, and notes on those that are left out.

    Links and other things than regular files are not followed.
    """
    videos: list[dict[str, Any]] = []
    notes: list[str] = []
    left = MOST_BYTES
    for place, run in enumerate(runs):
        paths = sorted(path for path in (run.folder / "video").glob("episode-*") if path.suffix in KINDS)
        for path in paths[:MOST_OF_A_RUN]:
            try:
                with open_regular(path) as file:
                    content = file.read(left + 1)
            except OSError as error:
                notes.append(f"{run.label}: {path.name} is not shown ({error.strerror})")
                continue
            if len(content) > left:
                notes.append(f"{run.label}: {path.name} is not shown: the page has {MOST_BYTES >> 20} MiB of films")
                continue
            left -= len(content)
            kind = KINDS[path.suffix]
            data = f"data:{kind};base64,{base64.b64encode(content).decode()}"
            videos.append({"run": place, "name": path.stem, "kind": kind, "data": data})
    return videos, notes
