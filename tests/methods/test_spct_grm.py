"""Where spct-grm refuses a task."""

from __future__ import annotations

import pytest

import assay
from assay.core.errors import AssayError


def test_a_task_without_numbers_of_responses_is_refused_before_the_run() -> None:
    with pytest.raises(AssayError, match="must be the number of its best response"):
        assay.train("spct-grm", "refusing", steps=1)
