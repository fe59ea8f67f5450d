"""Micro-batches by tokens: every row once, units whole, within the budget, and the same update as all at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from assay import recipes
from assay.core.record import Experience, Need
from assay.engine.batching import by_length
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.rollouts import text
from assay.runs import catalogue

SMALL = Policy(Transformer(width=32, layers=2, heads=2))


def ragged(num: int, longest: int) -> Experience:
    """Rows of many lengths, three to a group."""
    draw = torch.Generator().manual_seed(num)
    lengths = torch.randint(1, longest, (num,), generator=draw).tolist()
    rows = [torch.randint(3, 9, (length,), generator=draw).tolist() for length in lengths]
    batch = text.written([[1, 4]] * num, rows, torch.arange(num), 0)
    return replace(batch, group=torch.arange(num) // 3)


@pytest.mark.parametrize("together", [frozenset(), frozenset({"group"})])
@pytest.mark.parametrize(("tokens", "rows"), [(64, 0), (200, 0), (200, 4), (1, 0), (10_000, 0)])
def test_every_row_once_and_within_the_budget(together: frozenset[str], tokens: int, rows: int) -> None:
    batch = ragged(31, 30)
    parts = by_length(batch, together, tokens, rows)
    assert sorted(torch.cat(parts).tolist()) == list(range(31))
    for part in parts:
        some = batch.rows(part).trim()
        groups = len(set(batch.group[part].tolist())) if together else len(part)
        assert groups == 1 or len(part) * some.num_columns <= tokens
        assert groups == 1 or not rows or len(part) <= rows
    if together:
        where = {int(row): place for place, part in enumerate(parts) for row in part}
        assert all(where[row] == where[row // 3 * 3] for row in range(31))


def test_few_columns_are_padding() -> None:
    batch = ragged(200, 100)
    used = int(batch.context["valid"].sum())
    parts = [batch.rows(rows).trim() for rows in by_length(batch, frozenset(), 1000, 0)]
    assert sum(part.mask.numel() for part in parts) < 1.1 * used < 0.7 * batch.mask.numel()


def stepped(**placement: Any) -> Loop:
    recipe = replace(recipes.grpo(), actor=SMALL)
    loop = Loop(recipe, catalogue.find_task("countdown"), seed=0, num_steps=2, placement=Placement(**placement))
    loop.engine.models["actor"].double()
    loop.step()
    return loop


@pytest.mark.parametrize("placement", [{"tokens": 300}, {"tokens": 300, "micro_batch": 5}])
def test_the_update_is_that_of_all_rows_at_once(placement: dict[str, int]) -> None:
    whole, parts = stepped(), stepped(**placement)
    torch.testing.assert_close(
        parts.engine.flats["actor"].values, whole.engine.flats["actor"].values, atol=2e-5, rtol=1e-4
    )


def test_columns_come_back_in_their_rows() -> None:
    task = catalogue.find_task("countdown")
    batch = task.demonstrate(torch.arange(20).numpy(), 0)
    found = [
        Engine(replace(recipes.grpo(), actor=SMALL), task.spec, 0, Placement(tokens=tokens)).over(
            "actor", batch, lambda actor, part: actor.score(part, frozenset({Need.LOGP})).logp
        )
        for tokens in (0, 100)
    ]
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("placement", [{}, {"tokens": 100}, {"tokens": 100, "micro_batch": 5}])
def test_a_batch_without_rows_is_one_part_without_rows(placement: dict[str, int]) -> None:
    task = catalogue.find_task("countdown")
    recipe = replace(recipes.grpo(), actor=SMALL)
    batch = task.demonstrate(torch.arange(3).numpy(), 0).rows(slice(0, 0))
    engine = Engine(recipe, task.spec, 0, Placement(**placement))
    assert [len(part) for part in engine.micro_batches(batch, frozenset({"group"}))] == [0]
    logp = engine.over("actor", batch, lambda actor, part: actor.score(part, frozenset({Need.LOGP})).logp)
    assert logp.shape == batch.mask.shape
