"""Names of tool servers on a command line, for code that imports no library of them."""

from __future__ import annotations

OWN, SHARED = "mcp:", "mcp-shared:"


def is_server(word: str) -> bool:
    """Returns whether `--tool` names a server: one for each rollout, or one that all share."""
    return word.startswith((OWN, SHARED))
