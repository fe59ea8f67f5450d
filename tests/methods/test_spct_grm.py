"""Where spct-grm refuses a task."""

from __future__ import annotations

from pathlib import Path

import pytest

import assay
from assay.core.errors import AssayError


def test_a_task_without_numbers_of_responses_is_refused_before_the_run(tmp_path: Path) -> None:
    """The first prompt's answer is a number, a later one's is not; no supervised step is made before that is said."""
    with pytest.raises(AssayError, match="must be the number of its best response"):
        assay.train("spct-grm", "refusing", steps=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
