"""Groups that failed are gathered again from hinted prompts, and rewritten onto the task's own prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay import recipes
from assay.core.errors import AssayError
from assay.core.record import Origin
from assay.core.slots import Scene, frame_of
from assay.engine.loop import Loop
from assay.methods.delethink import Chunks
from assay.methods.rl_plus import WithDemonstrations
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.hinted import DemonstrationPrefix, Hinted
from assay.parts.rollouts.narrowed import Narrowed
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition

TASK = addition(1)


def test_a_hint_is_the_prompt_and_a_share_of_the_demonstration() -> None:
    starts = np.arange(3)
    plain, shown = TASK.prompts(starts, 0), [item.demonstration for item in TASK.items_of(starts, 0)]
    assert DemonstrationPrefix(0.0)(Scene(TASK), starts) == plain
    whole = DemonstrationPrefix(1.0)(Scene(TASK), starts)
    assert whole == [prompt + text for prompt, text in zip(plain, shown, strict=True)]


@pytest.mark.parametrize("onto", [True, False])
def test_failed_groups_come_again_under_the_prompt_that_is_trained(onto: bool) -> None:
    rollout = Hinted(Episodes(3, 2), DemonstrationPrefix(1.0), group_size=4, onto_prompt=onto)
    recipe = replace(recipes.grpo(), actor=Policy(Transformer(16, 1, 2)), rollout=rollout)
    loop = Loop(recipe, TASK, seed=0, num_steps=1)
    fresh = loop.step().fresh
    assert fresh is not None
    hinted = fresh.column("hinted")
    assert bool(hinted.any()), "an untrained model solves nothing"
    assert fresh.source is not None
    assert set(fresh.source[hinted].tolist()) == {int(Origin.HINTED)}
    own = TASK.begin(fresh.column("start").numpy(), 0)
    length = own.context["valid"].sum(1)
    first = fresh.mask.long().argmax(1)
    assert bool((first[hinted] == length[hinted]).all()) == onto
    for row in hinted.nonzero().flatten().tolist():
        seen = fresh.context["tokens"][row, : int(length[row])]
        assert torch.equal(seen, own.context["tokens"][row, : int(length[row])])
    discarded = 3 * 2 - int((~hinted).sum())
    assert loop.progress.decisions >= int(fresh.mask.sum()) + discarded, "what was thrown away was sampled too"


def test_rows_keep_their_log_probabilities_on_another_prompt() -> None:
    shown = TASK.demonstrate(np.arange(2), 0)
    recorded = shown.with_columns(logp=torch.where(shown.mask, -torch.rand(shown.mask.shape), 0.0))
    moved = TASK.onto(recorded, ["9+9+9+9=", "1="])
    for row in range(2):
        assert torch.equal(moved.logp[row][moved.mask[row]], recorded.logp[row][recorded.mask[row]])
        assert torch.equal(moved.action[row][moved.mask[row]], recorded.action[row][recorded.mask[row]])


def test_a_task_without_prompts_is_refused() -> None:
    with pytest.raises(AssayError, match="no prompts to put a hint into"):
        Hinted().init(Scene(cartpole()))


def test_a_rollout_around_another_keeps_its_starts_and_its_frame() -> None:
    inner = Chunks(num_starts=5)
    for around in (Hinted(inner), Narrowed(inner), WithDemonstrations(inner)):
        assert around.num_starts == 5
        assert frame_of(around) == inner.frame
        assert frame_of(replace(around, gather=Episodes())) is None
