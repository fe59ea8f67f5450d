"""Answers written again after feedback: which are chosen, what stays, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.claims import probes
from assay.claims.refining import Scripted
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.core.verifier import Verifier
from assay.ops import groups
from assay.parts import Best, Episodes, Refined
from assay.parts.rollouts.refined import best_of, last_members
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition
from assay.tasks.language.items import Item

TASK = probes.listed(Item("q", "7", "7"), Item("p", "8", "8"))


def test_the_best_of_a_group_is_the_first_sample_of_the_highest_score() -> None:
    data = probes.outcomes(0.0, 1.0, 1.0, 0.5, members=2)
    data = data.add({"sample": torch.tensor([1, 0, 0, 1])})
    score, by_group = torch.tensor([1.0, 1.0, 0.2, 0.9]), groups.row_groups(data)
    assert best_of(score, torch.ones(4, dtype=torch.bool), data, by_group).tolist() == [False, True, False, True]
    assert last_members(data).tolist() == [True, False, False, True]
    assert Best()(score, data).tolist() == [False, True, True, False]


def test_a_group_keeps_its_size_and_its_prompt() -> None:
    script = {"q": ["1", "2"], "q\n\n1\n\nthis is wrong: the right answer is 7\n\n": ["7"]}
    actor = Scripted(TASK, lambda text: script.get(text, ["0", "0"]))
    scene = Scene(TASK, actor=actor, starts=np.arange(1))
    scene = scene.given(reward=lambda rows: Verifier()(rows, scene))
    rows = Refined(Episodes(1, 2))(scene, {})
    assert rows.reward.sum(1).tolist() == [0.0, 1.0]
    assert rows.column("hinted").tolist() == [False, True]
    first = rows.mask.long().argmax(1)
    assert first[0] == first[1], "both follow the bare prompt"
    (spent,) = scene.metrics["discarded_decisions"]
    assert spent[0] == 4.0, "the member that went, and the refinement that was not kept"


def test_what_cannot_be_refined_is_refused_in_words() -> None:
    with pytest.raises(AssayError, match="has no prompts"):
        Refined().init(Scene(cartpole()))
    with pytest.raises(AssayError, match="Choose another form"):
        Refined(form="\N{SNOWMAN}{prompt}").init(Scene(addition(1)))
