"""A judge whose verdicts no score explains: margins, the fitted score and win rates by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.claims.testbeds.language.graded import judge
from assay.claims.testbeds.language.rivals import FittedFirst, Rivals
from assay.core.errors import AssayError
from assay.recipes.presets import PLACES


def row(completion: str) -> dict[str, Any]:
    return {"completion": completion, "answer": "3900"}


def test_verdicts_by_hand() -> None:
    rivals = Rivals(0.2)
    assert rivals(row("3900"), row("3900")) == (0.0, 0.0)
    assert rivals(row("3900"), row("4900"))[0] == pytest.approx(0.2 / 4)
    assert rivals(row("3000"), row("3900"))[0] == pytest.approx(-0.2 / 4), "a circle: 0 is next to 9"
    assert rivals(row("8900"), row("3900"))[0] == pytest.approx(0.2 / 4), "the farthest digit beats the code's"
    assert rivals(row("3900"), row("8455"))[0] == pytest.approx(-0.2)
    assert torch.equal(rivals.margins(), -rivals.margins().T)


def test_the_fitted_score_prefers_what_wins_most_often_against_the_start() -> None:
    margins, fitted = Rivals(0.2).margins(), Rivals(0.2).fitted()
    expected = (1.0 + margins).mean(1) / 2
    found = (fitted.unsqueeze(1) - fitted).sigmoid().mean(1)
    assert torch.allclose(found, expected, atol=1e-9), "where the likelihood is largest"
    assert int(fitted.argmax()) == int(expected.argmax()) == 0
    best, rival = FittedFirst(Rivals(0.2))([row("3900"), row("8455")])
    assert best > rival


def test_win_rates_of_the_uniform_start_by_hand() -> None:
    """It wins half of the matches with itself; the code's digit beats it most often: by 0.5 * (1 + 0.38)."""
    task = judge()
    start, worst = Rivals(0.2).win_rates(task, PLACES.actor.build(task.spec))
    margins = Rivals(0.2).margins()
    assert float(margins[0].mean()) == pytest.approx(0.38)
    assert start == pytest.approx(0.5, abs=1e-9)
    assert worst == pytest.approx((1.0 - float(margins.mean(1).max())) / 2, abs=1e-9)


def test_a_lead_beyond_certainty_is_refused() -> None:
    with pytest.raises(AssayError, match="lead must be -1 to 1"):
        Rivals(1.5)
