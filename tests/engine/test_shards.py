"""Shards: what a batch is cut into, in which order parts are added, and that starts may be gathered in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims.panel import small
from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.engine.batch_shards import cut, tree_sum
from assay.engine.fsdp import idle_passes
from assay.engine.gathering import join_shards
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.runs import catalogue
from assay.runs.plan import make_plan
from tests.engine.test_invariance import tokens


def test_units_stay_whole_and_every_row_is_in_one_shard() -> None:
    batch = tokens().add({"row": torch.arange(12)})
    parts = cut(batch, frozenset({"group", "episode"}), 4)
    groups = [set() if part is None or part.group is None else set(part.group.tolist()) for part in parts]
    assert groups == [{5}, {1}, {8}, {3}]
    assert torch.cat([part.extra["row"] for part in parts if part is not None]).tolist() == list(range(12))
    assert [part is None for part in cut(batch.rows(slice(0, 2)), frozenset(), 4)] == [False, True, False, True]


def test_ranks_with_fewer_micro_batches_take_idle_passes() -> None:
    rows = tokens()
    parts = [rows.rows(slice(0, 5)), None, rows.rows(slice(5, 6)), rows.rows(slice(6, 9))]

    def two_rows(part: Experience) -> list[Experience]:
        return [part.rows(slice(first, first + 2)) for first in range(0, len(part), 2)]

    idle = [len(list(idle_passes(parts, place, 2, two_rows))) for place in range(4)]
    assert idle == [0, 2, 2, 0]  # rounds: 3 and 1 micro-batches, then 0 and 2
    assert [len(list(idle_passes(parts, place, 4, two_rows))) for place in range(4)] == [0, 3, 2, 1]


def test_a_batch_without_rows_is_the_first_shard() -> None:
    first, *rest = cut(tokens().rows(slice(0, 0)), frozenset(), 4)
    assert first is not None
    assert len(first) == 0
    assert rest == [None] * 3


def test_parts_are_added_as_a_binary_tree() -> None:
    tiny = 2.0**-24  # 1 + tiny = 1 in float32, 1 + 2 tiny is not
    parts = [1.0, tiny, tiny, tiny]
    assert float(tree_sum([torch.tensor([part])] for part in parts)[0]) == 1.0 + 2 * tiny
    assert float(sum(torch.tensor([part]) for part in parts)) == 1.0


def loop_of(method: str, task: str, shards: int) -> Loop:
    recipe = small(catalogue.recipe_for(method, catalogue.find_task(task), {}))
    return Loop(recipe, catalogue.find_task(task), seed=3, num_steps=2, placement=Placement(shards=shards))


def by_row(fresh: Experience) -> dict[tuple[int, ...], tuple[list[int], list[float]]]:
    player = torch.zeros(len(fresh)) if fresh.player is None else fresh.player
    keys = torch.stack([fresh.extra["start"], fresh.extra["sample"], player.long()], 1).tolist()
    taken = [(row.action[row.mask].tolist(), row.reward[row.mask].tolist()) for row in rows_of(fresh)]
    return {tuple(key): one for key, one in zip(keys, taken, strict=True)}


def rows_of(fresh: Experience) -> list[Experience]:
    return [fresh.rows(slice(place, place + 1)) for place in range(len(fresh))]


@pytest.mark.parametrize(
    ("method", "task"), [("grpo", "addition-1"), ("grpo", "prisoners-dilemma-tokens"), ("reinforce", "cartpole")]
)
def test_starts_gathered_in_parts_are_the_same_rows(method: str, task: str) -> None:
    whole, parts = (loop_of(method, task, shards).step().fresh for shards in (1, 4))
    assert whole is not None
    assert parts is not None
    assert by_row(whole) == by_row(parts)
    assert list(by_row(parts)) == sorted(by_row(parts))


def test_a_column_of_some_shards_only_is_refused() -> None:
    marked = tokens().add({"lucky": torch.ones(12)})
    assert len(join_shards([marked, marked])) == 24
    for odd in (tokens(), replace(marked, episode=None)):
        with pytest.raises(
            AssayError, match=r"only some shards of the starts have the column '(extra\.lucky|episode)'"
        ):
            join_shards([marked, odd])


def test_shards_decide_the_fingerprint_and_ranks_do_not() -> None:
    plan = make_plan("grpo", "addition-1", steps=1)
    fingerprints = [
        replace(plan, placement=placement).config()["fingerprint"]
        for placement in (Placement(), Placement(shards=1), Placement(shards=2), Placement(shards=2, ranks=2))
    ]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2] == fingerprints[3]


@pytest.mark.parametrize("shards", [0, -1, 3, 6, 8192])
def test_shards_that_are_no_power_of_two_are_refused(shards: int) -> None:
    with pytest.raises(AssayError, match=rf"shards is {shards}. Use a power of two up to 4,096, such as --shards \d+"):
        make_plan("grpo", "addition-1", steps=1, placement=Placement(shards=shards))
