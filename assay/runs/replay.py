"""What a run says if it cannot be replayed bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.core.store import write_text
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.sessions import replay_note

REPLAY = "replay.txt"


def replay_notes(task: Any, folder: Path) -> list[str]:
    """Returns why a run on the task cannot be replayed, and writes it into the run's folder; none if it can."""
    note = replay_note(task.partner, task.waiting) if isinstance(task, DialogueTask) else ""
    if note:
        write_text(folder / REPLAY, f"This run cannot be replayed bit by bit. {note}\n")
    return [f"not replayable bit by bit: {note}"] if note else []
