"""Windows of a fixed length: what they record, and their credit against the exact gradient."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch

from assay.claims.laws.state import saved_and_loaded, untouched
from assay.core.record import Experience, InfraFault
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.t_ppo import ExtendedGae, Finished, Windows, WithoutTail
from assay.parts.credit.temporal import Gae
from assay.parts.rollouts.episodes import Episodes
from assay.rollouts.text import with_outcomes
from assay.runs import catalogue
from assay.tasks.language.countdown import countdown
from tests.methods.rollouts import DRAW, actor_of, decisions, gathered
from tests.scenes import gathering


def test_windows_under_fixed_weights_are_the_episodes_and_nothing_is_lost() -> None:
    task, part = countdown(2), Windows(slots=5, window=3)
    actor, state = actor_of(task), part.init(Scene(task))
    found: dict[int, list[int]] = {}
    ended: set[int] = set()
    for _ in range(12):
        fresh = part(gathering(task, actor, np.empty(0, np.int64), DRAW), state)
        assert len(fresh) == 5
        for row in range(5):
            start = int(fresh.column("start")[row])
            assert start not in ended
            found.setdefault(start, []).extend(decisions(fresh, row))
            ended |= {start} if fresh.terminal[row].any() else set()
            assert fresh.action[row][fresh.column("answer")[row]].tolist() == found[start]
    starts = np.array(sorted(ended))
    assert len(starts) > 5
    whole = task.play(actor, starts, np.zeros(len(starts), np.int64), DRAW, split=0, greedy=False)
    assert [found[start] for start in starts.tolist()] == [decisions(whole, row) for row in range(len(starts))]
    assert set(found) == set(range(state["next"]))


def test_a_long_window_is_episodes() -> None:
    task = countdown(2)
    fresh = gathered(Windows(slots=4, window=50), task)
    theirs = gathered(Episodes(group_size=1), task, np.arange(4))
    assert torch.equal(fresh.action, theirs.action)
    assert torch.equal(fresh.terminal, theirs.terminal)


def test_every_decision_of_a_finished_answer_teaches_the_critic_once() -> None:
    task, part, loss = countdown(2), Windows(slots=5, window=3), Finished()
    actor, state = actor_of(task), part.init(Scene(task))
    learned = decided = waiting = 0
    for _ in range(10):
        fresh = task.judge(part(gathering(task, actor, np.empty(0, np.int64), DRAW), state), 0)
        weight = loss.weigh(fresh)
        assert set(weight.flatten().tolist()) <= {0.0, 1.0}
        learned, decided = learned + int(weight.sum()), decided + int(fresh.mask.sum())
        waiting = 0 if state["open"] is None else int(state["open"]["answer"].sum())
    assert learned + waiting == decided


def test_a_killed_run_of_windows_goes_on_bitwise() -> None:
    task = catalogue.find_task("addition-2")
    recipe = catalogue.recipe_for("t-ppo", task, {"slots": 6, "window": 2, "actor.width": 16, "actor.heads": 2})
    through, killed = (Loop(recipe, task, seed=4, num_steps=6) for _ in range(2))
    for _ in range(3):
        through.step()
        killed.step()
    assert killed.states["rollout"]["open"] is not None
    saved = copy.deepcopy(killed.snapshot())
    resumed = Loop(recipe, task, seed=4, num_steps=6)
    resumed.restore(saved_and_loaded(untouched(saved), resumed.snapshot()))
    for _ in range(3):
        through.step()
        resumed.step()
    for name, flat in through.engine.flats.items():
        assert torch.equal(flat.values, resumed.engine.flats[name].values), name
    assert through.states["rollout"]["next"] == resumed.states["rollout"]["next"]


def test_extended_gae_of_a_discounted_cut_by_hand() -> None:
    value = torch.tensor([[0.5, -1.0, 2.0]]).double()
    ones = torch.ones(1, 3, dtype=torch.bool)
    zero = torch.zeros(1, 3).double()
    row = Experience({}, ones.long(), ones, zero, zero, ~ones, ~ones, extra={"value": value})
    last = 0.9 * 2.0 - 2.0
    middle = 0.9 * 2.0 + 1.0 + 0.9 * 0.5 * last
    first = 0.9 * -1.0 - 0.5 + 0.9 * 0.5 * middle
    found = ExtendedGae(0.9, 0.5)(row).column("advantage")
    assert torch.allclose(found, torch.tensor([[first, middle, last]]).double())
    ended = replace(row, terminal=torch.tensor([[False, False, True]]))
    assert torch.equal(ExtendedGae(0.9, 0.5)(ended).column("advantage"), Gae(0.9, 0.5)(ended).column("advantage"))
    row = row.add({"left": torch.tensor([[2, 1, 0]])})
    assert WithoutTail(2)(row).mask.tolist() == [[True, False, False]]
    assert torch.equal(WithoutTail(0)(row).mask, row.mask)
    empty = replace(row, mask=~ones)
    assert not ExtendedGae()(empty).column("advantage").any()
    assert not WithoutTail()(empty).mask.any()


def test_the_last_place_of_a_window_is_dropped_whatever_was_decided_and_the_critic_still_learns_it() -> None:
    task = countdown(2)
    fresh = task.judge(gathered(Windows(slots=40, window=3), task), 0)
    kept, window = WithoutTail(1)(fresh), int(fresh.mask.sum(1).max())
    assert window in (2, 3)
    assert torch.equal(kept.mask, fresh.mask & (fresh.mask.long().cumsum(1) < window))
    assert torch.equal(Finished().weigh(kept), Finished().weigh(fresh))
    lost = with_outcomes(fresh, [InfraFault("lost")] * 40)
    assert not Finished().weigh(lost).any()
