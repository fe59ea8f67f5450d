"""A table that copies what its prompt shows: it scores what it writes, and shares rows with bare prompts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.claims.testbeds.language.places import lock, reading
from assay.core.record import Draw, Need
from assay.models.bodies.reading_table import ReadingTable
from assay.models.bodies.token_table import TokenTable
from assay.models.model import Policy

TASK = reading(4)


def policy(copy: float = 4.0) -> object:
    actor = Policy(ReadingTable(rank=32, copy=copy)).build(TASK.spec)
    with torch.no_grad():
        actor.table.table.normal_(generator=torch.Generator().manual_seed(1))
    return actor


@pytest.mark.parametrize("prompt", ["a", "a\n\nhint: 12\n", "b1234\nb", "c\n\nhint: 9\n"])
def test_what_it_samples_has_the_log_probability_that_it_scores(prompt: str) -> None:
    actor = policy()
    rows = TASK.play_prompts(actor, [prompt] * 8, np.arange(8), np.arange(8), Draw(0), split=0)
    with torch.no_grad():
        again = actor.score(rows, frozenset({Need.LOGP})).logp
    torch.testing.assert_close(again, rows.logp, rtol=1e-5, atol=1e-5)


def test_a_shown_digit_is_copied_and_places_after_it_are_those_of_the_bare_prompt() -> None:
    actor = policy()
    said = TASK.demonstrate(np.zeros(1, dtype=np.int64), 0)
    code = TASK.items.item(0, 0).answer
    hinted = TASK.onto(said, [f"a\n\nhint: {code[:2]}\n"])
    with torch.no_grad():
        bare, told = (
            actor.score(rows, frozenset({Need.LOGITS})).logits[rows.mask].softmax(-1) for rows in (said, hinted)
        )
    assert torch.equal(bare[2:], told[2:])
    for place in range(2):
        token = TASK.tokenizer.encode(code[place])[0]
        odds = told[place, token] / (1 - told[place, token]) / (bare[place, token] / (1 - bare[place, token]))
        assert float(odds.log()) == pytest.approx(4.0, abs=1e-3)


def test_without_a_hint_it_is_the_table_of_places() -> None:
    task = lock(4)
    one, other = Policy(TokenTable(rank=32)).build(task.spec), Policy(ReadingTable(rank=32)).build(task.spec)
    other.load_state_dict(one.state_dict())
    with torch.no_grad():
        for actor in (one, other):
            actor.table.table.normal_(generator=torch.Generator().manual_seed(1))
    rows = task.demonstrate(np.arange(4), 0)
    needs = frozenset({Need.LOGP})
    assert torch.equal(one.score(rows, needs).logp, other.score(rows, needs).logp)
