"""Where boxes can be tested, and one sandbox for all tests of a process."""

from __future__ import annotations

import shutil

import pytest

from assay.core.errors import AssayError
from assay.sandbox import Limits, sandbox_of
from assay.sandbox.pool import LocalSandbox

QUICK = Limits(seconds=2.0, cpu_seconds=1.0)


def reason() -> str:
    """Why boxes cannot be tested here; "" if they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    try:
        sandbox_of("bubblewrap", 8)
    except AssayError as error:
        return str(error)
    return ""


WHY = reason()
needs_boxes = pytest.mark.skipif(bool(WHY), reason=WHY or "boxes work")


def boxes() -> LocalSandbox:
    """The sandbox of this process."""
    found = sandbox_of("bubblewrap", 8)
    assert isinstance(found, LocalSandbox)
    return found
