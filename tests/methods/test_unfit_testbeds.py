"""Methods on testbeds that lack what they need, or whose policies have no probabilities."""

from __future__ import annotations

import pytest

import assay
from assay.core.errors import AssayError


def test_rlpr_refuses_a_task_that_does_not_say_what_ends_the_reasoning() -> None:
    with pytest.raises(AssayError, match=r"task 'levels-.*': nothing says what ends the reasoning.*--mark"):
        assay.train("rlpr", "levels", steps=1)


def test_a_policy_that_searches_is_evaluated_without_exact_quantities() -> None:
    run = assay.train("dpo-q-function", "levels", steps=1, settings={"actor.rank": 0})
    assert 0.0 <= run.after.value <= 1.0
    assert all("pass_rate" not in row for row in run.curves)


def test_a_policy_around_a_network_keeps_its_exact_quantities() -> None:
    run = assay.train("laser", "key-decisions", steps=1)
    assert all("pass_rate" in row for row in run.curves if "evaluation" in row)


def test_laser_refuses_a_vocabulary_without_a_token_to_spare() -> None:
    with pytest.raises(AssayError, match="every token of the vocabulary is text"):
        assay.train("laser", "levels", steps=1)
