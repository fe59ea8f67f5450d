"""`--agent`: a program of the user's, recorded with digests, so that a received run folder runs no other."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

from assay.core.errors import AssayError

PREFIX = "agent:"
"""Begins the name of an agent among the sources of own code."""


def check_agent_option(command: str, has_tools: bool) -> None:
    """Refuses an agent that cannot be run or asked, and one beside tools."""
    if has_tools:
        raise AssayError("--agent and --tool exclude each other: the program has its own tools. Remove one.")
    from assay.tasks.adapters.agents.programs import check_agent

    check_agent(command)


def anchored(command: str) -> str:
    """Returns the command with absolute paths."""
    from assay.tasks.adapters.agents import programs

    return programs.anchored(command)


def seal(command: str) -> dict[str, str]:
    """Returns digests of the command and of the files that it names."""
    from assay.tasks.adapters.agents.programs import is_address

    found = {"command": hashlib.sha256(command.encode()).hexdigest()[:16]}
    if is_address(command):
        return found
    for word in shlex.split(command)[1:]:
        if Path(word).is_file():
            found[word] = hashlib.sha256(Path(word).read_bytes()).hexdigest()[:16]
    return found
