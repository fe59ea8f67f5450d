"""Conservative critics: the penalty against a slow sum, and what it moves."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from assay import recipes
from assay.engine.engine import StageView
from assay.parts.critics.conservative import Conservative
from assay.recipes.presets import CONTINUOUS
from tests.methods.transitions import built, gradient, transitions


def test_the_conservative_term_is_the_slow_sum_over_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipes.cql(CONTINUOUS)
    models, batch, term = built(recipe), transitions(3), Conservative(weight=2.0, num=4)
    draws = {tag: torch.rand(3, 1, 4, 2, generator=torch.Generator().manual_seed(tag)) for tag in (4, 5, 6)}
    monkeypatch.setattr(StageView, "uniform", lambda view, shape, tag: draws[tag].view(*shape))
    view: Any = StageView(models, batch, frozenset(), None)  # type: ignore[arg-type]
    found, expected, seen = term(batch, view).sum, torch.zeros(()), batch.context["observation"]
    actor, q = models["actor"], models["q"]
    for row in range(3):
        terms = []
        for place in range(4):
            for tag, when in ((4, 0), (5, 1)):
                action, logp = actor.act({"observation": seen[row : row + 1, when]}, draws[tag][row, :, place])
                terms.append(q({"observation": seen[row : row + 1, :1]}, action.unsqueeze(0))[:, 0, 0] - logp)
            anything = 4.0 * draws[6][row, :, place] - 2.0
            terms.append(q({"observation": seen[row : row + 1, :1]}, anything.unsqueeze(0))[:, 0, 0] + math.log(4.0))
        here = q({"observation": seen[row : row + 1, :1]}, batch.action[row : row + 1, :1])[:, 0, 0]
        expected = expected + 2.0 * (torch.stack(terms).exp().mean(0).log() - here).sum()
    torch.testing.assert_close(found, expected)


def test_conservatism_moves_critics_and_not_the_policy() -> None:
    found = gradient(recipes.cql(CONTINUOUS), "critic", transitions())
    assert all(name.startswith("q.") for name in found)
    assert all(bool(torch.isfinite(value).all()) and bool(value.any()) for value in found.values())
