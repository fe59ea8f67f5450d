"""The table of tokens: it keeps the laws, and prompts that decoding and scoring tell apart differently are refused."""

from __future__ import annotations

from typing import Any

import pytest

from assay.claims.laws.actor import check_actor
from assay.claims.laws.benches import Bench
from assay.claims.laws.cases import TOKENS
from assay.claims.laws.objective import check_objective
from assay.core.errors import AssayError
from assay.models.bodies.token_table import TokenTable
from assay.models.model import Policy
from assay.parts.objectives.policy import PolicyGradient

ACTORS = [Policy(TokenTable(window, rank=rank)) for window, rank in ((0, 0), (1, 0), (1, 4))]


@pytest.mark.parametrize("actor", ACTORS, ids=str)
def test_a_table_keeps_the_laws_of_actors_and_of_losses(actor: Policy) -> None:
    bench = Bench("table", TOKENS, {"actor": actor})
    found = [*check_actor(actor, TOKENS), *check_objective(PolicyGradient(), [bench])]
    assert [str(one) for one in found if not one.held] == []


def test_a_prompt_of_bos_alone_is_refused() -> None:
    actor: Any = ACTORS[0].build(TOKENS)
    actor.decoder([[1, 3], [1, 4]], [2, 1], 4)
    with pytest.raises(AssayError, match=r"a prompt has no token after bos.* Use Transformer\(\)"):
        actor.decoder([[1, 3], [1]], [2, 1], 4)
