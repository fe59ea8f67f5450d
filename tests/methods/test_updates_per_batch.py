"""How often a batch of answers is used: methods with a ratio differ from their bases only where it has left 1."""

from __future__ import annotations

import pytest

from assay.parts.sources.fresh import FreshSequences
from assay.recipes.presets import LANGUAGE
from assay.runs import catalogue

WORDS = {2: "two", 4: "four", 8: "eight"}

UPDATES = {  # method -> (updates on a batch of answers, those of the paper or its code; None where it gives no number)
    "grpo": (2, 1),
    "dapo": (2, 16),
    "gspo": (2, 4),
    "cispo": (2, None),
    "sapo": (2, None),
    "ppo": (2, None),
    "lite-ppo": (2, None),
    "etr": (2, None),
    "p3o": (2, None),
    "siren": (2, 16),
    "real": (4, 4),
    "pacs": (4, 4),
    "rover": (4, 4),
    "r2vpo": (8, None),
}


@pytest.mark.parametrize("name", UPDATES)
def test_a_method_with_a_ratio_states_its_updates_a_batch(name: str) -> None:
    ours, theirs = UPDATES[name]
    _, method = catalogue.find_method(name)
    source = method.recipe(LANGUAGE).source
    assert isinstance(source, FreshSequences)
    assert source.epochs * source.minibatches == ours
    stated = [text for text in method.departures if f"{WORDS[ours]} updates a batch" in text]
    assert len(stated) == 1, f"{name}: a departure says '{WORDS[ours]} updates a batch'"
    if theirs not in (None, ours):
        assert f"source.minibatches={theirs}" in stated[0]
