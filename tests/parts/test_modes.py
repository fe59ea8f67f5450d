"""Classes of answers against counts worked out by hand."""

from __future__ import annotations

import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.core.verifier import Verifier
from assay.parts.credit.modes import CountModes
from assay.tasks.language.items import Item

TASK = probes.listed(Item("q", "7", "7"))


def test_shares_scores_and_lengths_of_classes() -> None:
    rows, scene = probes.completed(TASK, ["a7", "ab\n7", "b7", "8", "a8"], [0] * 5, cut=[4]), Scene(TASK)
    judged = Verifier()(rows, scene)
    counted = CountModes({"a": "a.*", "b": ".*b.*"})(judged, scene)
    assert torch.equal(counted.reward, judged.reward)
    told = {name: pairs[0] for name, pairs in scene.metrics.items()}
    assert told["mode/a"] == (3.0, 5.0), "the first class that matches counts"
    assert told["mode/b"] == told["mode/other"] == (1.0, 5.0)
    assert told["mode_score/a"] == (2.0, 3.0)
    assert told["mode_score/other"] == (0.0, 1.0)
    assert told["largest_mode"] == (3.0, 5.0)
    assert told["stopped_length"] == (3.0 + 5.0 + 3.0 + 2.0, 4.0), "the end token counts, a cut answer does not"


def test_a_row_that_left_training_is_in_no_class_and_other_is_never_the_largest() -> None:
    task, rows = probes.answered(["a7", "8a", "9", "a8", "a9"], cut=[3], faults=[4])
    expected = {"mode/a": 2 / 4, "mode_score/a": 1 / 2, "mode_score/other": 0.0, "stopped_length": (3 + 3 + 2) / 3}
    assert probes.log_gap(CountModes({"a": "a.*"}), expected, task, rows) == 0.0
    assert probes.log_gap(CountModes({"b": "b.*", "a": "a7"}), {"largest_mode": 1 / 4}, task, rows) == 0.0


@pytest.mark.parametrize("modes", [{}, {"other": "."}, {"a": "("}])
def test_classes_that_mean_nothing_are_refused(modes: dict[str, str]) -> None:
    with pytest.raises(AssayError, match="CountModes"):
        CountModes(modes)
