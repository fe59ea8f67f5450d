"""Rollouts that visit a start again, in one batch and in later ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from assay import recipes
from assay.claims import probes
from assay.claims.testbeds.language.sparse import levels
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.revisits import FAR, Revisits


def scene_of(*starts: int) -> Scene:
    task = levels()
    return Scene(task, actor=probes.small_policy(task), starts=np.array(starts, dtype=np.int64), draw=Draw(0))


def test_samples_of_a_start_go_on_counting_and_a_visit_is_a_group() -> None:
    part, scene = Revisits(3, 2), scene_of(3, 5, 3)
    state = part.init(scene)
    first, second = part(scene, state), part(scene, state)
    assert first.column("sample").tolist() == [0, 1, 0, 1, 2, 3]
    assert second.column("sample").tolist() == [4, 5, 2, 3, 6, 7]
    assert first.group is not None
    assert first.group.tolist() == [3, 3, 5, 5, 3 + FAR, 3 + FAR]
    assert state["visits"] == {"3": 8, "5": 4}


def test_the_first_visits_are_those_of_whole_episodes() -> None:
    scene = scene_of(3, 5)
    ours, theirs = Revisits(2, 4)(scene, {"visits": {}}), Episodes(2, 4)(scene, {})
    assert torch.equal(ours.action, theirs.action)
    assert torch.equal(ours.logp, theirs.logp)


def test_a_batch_of_one_start_has_different_answers() -> None:
    part, scene = Revisits(16, 1), scene_of(*[7] * 16)
    answers = part(scene, part.init(scene)).action
    assert len(torch.unique(answers, dim=0)) > 1


def test_the_probe_sees_groups_of_a_start_taken_for_one() -> None:
    base = recipes.grpo()
    assert probes.wrong_visits(replace(base, rollout=Revisits()), levels()) == 0
    assert probes.wrong_visits(replace(base, rollout=Episodes()), levels()) > 0
