"""Pools of prompts: what is in them, what they remember, and the order in which a pass takes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assay import recipes
from assay.claims import probes
from assay.claims.testbeds.language.ladder import dirty, free, ladder
from assay.claims.testbeds.language.stretched import stretched
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.parts.curricula.in_order import InOrder
from assay.parts.curricula.pool import Passes, Pool, Visited, in_passes
from assay.recipes.group import with_pool
from assay.recipes.presets import BIGRAMS
from assay.tasks.tabular.table import chain

POOLED = with_pool(recipes.grpo(), "pooled", Passes(), 0)


def test_the_table_holds_the_share_of_right_answers_of_each_visit() -> None:
    assert probes.wrong_table(POOLED) == 0
    forgetful = replace(POOLED, curriculum=Forgetful())
    assert probes.wrong_table(forgetful) > 0


class Forgetful(Pool):
    """A pool that keeps the last visit alone."""

    def observe(self, experience, scene, state) -> None:  # type: ignore[no-untyped-def]
        super().observe(experience, scene, state)
        state["visits"] = [own[-1:] for own in state["visits"]]


def test_every_pass_takes_each_prompt_once_in_an_order_of_its_own() -> None:
    scene = Scene(probes.prompts_of(*"abcdef"))
    pool, state = probes.pool_state(POOLED, scene)
    starts = probes.chosen(POOLED, scene, state, num=4, calls=6)
    assert probes.wrong_passes(starts, range(6)) == 0
    assert probes.wrong_passes([*range(6)] * 3, range(6)) == 2
    assert isinstance(pool, Pool)


def test_a_resumed_pass_goes_on() -> None:
    scene = Scene(probes.prompts_of(*"abcde"), num_starts=3)
    whole, first, second = {"next": 0}, {"next": 0}, {"next": 3}
    both = in_passes(range(5), scene.given(num_starts=6), whole)
    assert in_passes(range(5), scene, first) + in_passes(range(5), scene, second) == both


def test_means_of_recent_visits() -> None:
    seen = Visited(np.arange(3), [[0.0, 0.5, 1.0], [], [0.25]])
    np.testing.assert_allclose(seen.mean(), [0.5, np.nan, 0.25])
    np.testing.assert_allclose(seen.mean(2), [0.75, np.nan, 0.25])


def test_facts_of_prompts() -> None:
    scene = Scene(probes.prompts_of("a", "b", level=[3, 5]))
    assert [row["level"] for row in Visited(np.array([1, 0]), [[], []]).facts(scene)] == [5, 3]


def test_what_a_pool_refuses() -> None:
    with pytest.raises(AssayError, match="has no prompts for a pool"):
        Pool().init(Scene(chain(4)))
    with pytest.raises(AssayError, match="left no prompt"):
        in_passes([], Scene(num_starts=1), {"next": 0})
    with pytest.raises(AssayError, match=r"Pool\.size is -1"):
        Pool(size=-1)
    with pytest.raises(AssertionError, match="gathers with"):
        with_pool(replace(recipes.grpo(), rollout=None), "none", Passes())
    assert isinstance(recipes.grpo().curriculum, InOrder)


def test_dirty_prompts_are_what_their_kind_says() -> None:
    task = dirty()
    kinds = [task.items.item(start, 0).facts["label"] for start in range(32)]
    assert [kinds.count(kind) for kind in sorted(set(kinds))] == [8, 4, 4, 16]
    right = {start: rights(task, start) for start in (0, 8, 12, 16)}
    assert [len(right[start]) for start in (0, 8, 12, 16)] == [94, 0, 1, 20]
    assert not right[12] & {way[0] for way in task.items.ways(12)}  # type: ignore[attr-defined]


def rights(task, start: int) -> set[str]:  # type: ignore[no-untyped-def]
    """Returns the answers that are verified as right."""
    item = task.items.item(start, 0)
    every = [f"{number:02d}" for number in range(100)]
    return {answer for answer in every if task.items.verify(item, answer).value == 1.0}


def test_a_ladder_gives_less_and_less_of_one_answer() -> None:
    task = ladder(prompts=3, digits=4)
    asked = [task.items.item(start, 0) for start in range(4, 8)]
    answer = task.items.item(1, 1).answer
    assert [item.prompt[1:] + item.answer for item in asked] == [answer] * 4
    assert [len(item.answer) for item in asked] == [1, 2, 3, 4]
    assert asked[-1].facts["format"] == "open"
    assert asked[-1].prompt == task.items.item(1, 1).prompt
    assert all(task.items.verify(item, item.answer + "7").value == 1.0 for item in asked)
    assert task.items.verify(asked[0], str((int(asked[0].answer) + 1) % 10)).value == 0.0


def test_a_longer_stretched_input_asks_for_more_of_one_answer() -> None:
    task = stretched(prompts=3, digits=4)
    asked = [task.items.item(start, 0) for start in range(4, 8)]
    longest = task.items.item(1, 1)
    assert [len(item.prompt) for item in asked] == [len(item.answer) for item in asked] == [1, 2, 3, 4]
    assert all(longest.answer.startswith(item.answer) for item in asked)
    assert (asked[-1].prompt, asked[-1].answer) == (longest.prompt, longest.answer)


def test_free_answers_are_right_at_any_length() -> None:
    task = free(prompts=2, most=6)
    item = task.items.item(1, 1)
    scores = [task.items.verify(item, before + item.answer).value for before in ("", "7", "1234")]  # type: ignore[union-attr]
    assert scores == [1.0, 1.0, 1.0]
    assert task.items.verify(item, item.answer[0]).value == 0.0  # type: ignore[union-attr]
    lengths = {len(task.items.item(start, 0).demonstration) for start in range(40)}
    assert lengths == {2, 3, 4}
    start = task.exact(probes.trained(recipes.grpo(BIGRAMS), task, 0, 0).actor)
    right = sum(0.9 ** (length - 2) * 0.01 for length in range(2, 7))
    assert start["pass_rate"] == pytest.approx(right, rel=1e-5)
    assert start["mean_length"] == pytest.approx(sum(0.9**done for done in range(6)), rel=1e-5)
