"""Groups that failed are gathered again with more and more of the solution, in the prompt or in the answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay import recipes
from assay.claims.probes import small_policy
from assay.core.errors import AssayError
from assay.core.record import Experience, Origin
from assay.core.slots import Scene, frame_of
from assay.core.verifier import Verifier
from assay.engine.loop import Loop
from assay.methods.delethink import Chunks
from assay.methods.rl_plus import WithDemonstrations
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.hinted import Hinted, failed_groups
from assay.parts.rollouts.hints import HINT, InAnswer, InPrompt
from assay.parts.rollouts.narrowed import Narrowed
from assay.rollouts.text import Conversation, Message, with_last_message
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition
from assay.tasks.language.scratch import scratch
from assay.tasks.language.textfile import textfile

TASK = addition(1)


def scene_of(task, starts, rewards=None):
    """A scene whose rewards are the verifier's, or those given for each call."""
    scene, calls = Scene(task, actor=small_policy(task), starts=np.asarray(starts)), iter(rewards or ())

    def reward(rows: Experience) -> Experience:
        judged = Verifier()(rows, scene)
        right = next(calls, None)
        if right is None:
            return judged
        value = torch.tensor([float(start in right) for start in judged.column("start").tolist()])
        return replace(judged, reward=judged.reward * 0).add({"score": value})

    return scene.given(reward=reward)


def test_a_hint_is_the_prompt_and_a_share_of_the_solution_before_its_answer() -> None:
    task, starts = scratch(4, 0.0), np.arange(3)
    plain, items = task.prompts(starts, 0), task.items_of(starts, 0)
    part = InPrompt()
    assert part.prompts(Scene(task), starts, np.zeros(3)) == plain
    whole = part.prompts(Scene(task), starts, np.ones(3))
    for prompt, item, told in zip(plain, items, whole, strict=True):
        hint = told.removeprefix(f"{prompt}\n\nhint: ").removesuffix("\n")
        assert hint == item.demonstration.removesuffix(item.answer), "the answer stands after the mark"
    shown = InPrompt(hides_answer=False).prompts(Scene(task), starts, np.ones(3))
    assert shown == [HINT.format(prompt=one, hint=item.demonstration) for one, item in zip(plain, items, strict=True)]


def test_a_hint_goes_into_the_last_message_of_the_user() -> None:
    talk = Conversation([Message("system", "be brief"), Message("user", "2+2?"), Message("assistant", "4")], "[]")
    told = with_last_message(talk, lambda content: f"{content} ({len(content)})")
    assert isinstance(told, Conversation)
    assert [one.content for one in told.messages] == ["be brief", "2+2? (4)", "4"]
    assert told.tools == "[]"
    alone = with_last_message(Conversation([Message("user", "2+2?")]), lambda content: content + "!")
    assert str(alone) == "2+2?!"


def test_each_rung_samples_only_groups_that_failed_so_far_and_replaces_them() -> None:
    scene = scene_of(TASK, [7, 3, 5], rewards=[{3}, {7}, set()])
    rows = Hinted(Episodes(3, 2), InPrompt(), (0.3, 0.6), group_size=2)(scene, {})
    assert rows.column("start").tolist() == [7, 7, 3, 3, 5, 5], "in the order of the starts"
    assert rows.column("hinted").tolist() == [True, True, False, False, True, True]
    assert rows.column("sample").tolist() == [1 << 20, (1 << 20) + 1, 0, 1, 2 << 20, (2 << 20) + 1]
    assert scene.metrics["failed_groups/0"] == [(4.0, 6.0)]
    assert scene.metrics["failed_groups/1"] == [(2.0, 6.0)]
    assert len(scene.metrics["discarded_decisions"]) == 2


def test_groups_with_a_right_answer_are_those_of_the_inner_rollout() -> None:
    plain = Episodes(3, 2)(scene_of(TASK, [7, 3, 5]), {})
    rows = Hinted(Episodes(3, 2))(scene_of(TASK, [7, 3, 5], rewards=[{7, 3, 5}]), {})
    assert torch.equal(rows.action, plain.action)
    assert torch.equal(rows.logp, plain.logp)
    assert not rows.column("hinted").any()


def test_a_group_of_faults_has_not_failed() -> None:
    rows = scene_of(TASK, [1, 2], rewards=[set()])
    first = rows.reward(Episodes(2, 2)(rows, {}))
    lost = replace(first, mask=first.mask & (first.column("start") != 1).unsqueeze(1))
    assert failed_groups(lost, 0.0).tolist() == [False, False, True, True]


@pytest.mark.parametrize("onto", [True, False])
def test_failed_groups_come_again_under_the_prompt_that_is_trained(onto: bool) -> None:
    rollout = Hinted(Episodes(3, 2), InPrompt(hides_answer=False), (1.0,), group_size=4, onto_prompt=onto)
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
    discarded = 3 * 2 - int((~hinted).sum())
    assert loop.progress.decisions >= int(fresh.mask.sum()) + discarded, "what was thrown away was sampled too"


def test_in_the_answer_a_share_of_the_solution_is_context() -> None:
    task = scratch(4, 0.0)
    rows = Hinted(Episodes(2, 2), InAnswer(), (0.6,), group_size=3)(scene_of(task, [0, 1], rewards=[{1}]), {})
    assert rows.column("hinted").tolist() == [True] * 3 + [False] * 2
    item = task.items_of(np.arange(1), 0)[0]
    given = task.tokenizer.encode(item.demonstration)[: int(0.6 * (len(item.demonstration) + 1))]
    for row in range(3):
        first = int(rows.mask[row].nonzero()[0])
        assert rows.context["tokens"][row, first - len(given) : first].tolist() == given
        assert rows.column("answer")[row].sum() == rows.mask[row].sum() + len(given)
    assert torch.equal(rows.column("answer")[3:], rows.mask[3:])


def test_rows_keep_their_log_probabilities_on_another_prompt() -> None:
    shown = TASK.demonstrate(np.arange(2), 0)
    recorded = shown.with_columns(logp=torch.where(shown.mask, -torch.rand(shown.mask.shape), 0.0))
    moved = TASK.onto(recorded, ["9+9+9+9=", "1="])
    for row in range(2):
        assert torch.equal(moved.logp[row][moved.mask[row]], recorded.logp[row][recorded.mask[row]])
        assert torch.equal(moved.action[row][moved.mask[row]], recorded.action[row][recorded.mask[row]])


def test_what_cannot_be_shown_is_refused_before_a_run(tmp_path) -> None:
    with pytest.raises(AssayError, match="no prompts to put a hint into"):
        Hinted().init(Scene(cartpole()))
    with pytest.raises(AssayError, match="cannot write"):
        Hinted(hint=InPrompt("{prompt}\N{GREEK SMALL LETTER PI}{hint}")).init(Scene(TASK))
    with pytest.raises(AssayError, match="above 0 and at most 1"):
        Hinted(ladder=(0.0,))
    with pytest.raises(AssayError, match="follow it already"):
        Hinted(hint=InAnswer(), onto_prompt=True)
    bare, worked = tmp_path / "bare.jsonl", tmp_path / "worked.jsonl"
    for file, steps in ((bare, ""), (worked, "a hundred more\\n#### ")):
        rows = [f'{{"prompt": "{n} + 100", "answer": "{steps}{n + 100}"}}\n' for n in range(1, 21)]
        file.write_text("".join(rows))
    with pytest.raises(AssayError, match="field 'answer' of 'bare' holds the answers alone"):
        Hinted().init(Scene(textfile(str(bare))))
    Hinted().init(Scene(textfile(str(worked))))


def test_a_rollout_around_another_keeps_its_starts_and_its_frame() -> None:
    inner = Chunks(num_starts=5)
    for around in (Hinted(inner), Narrowed(inner), WithDemonstrations(inner)):
        assert around.num_starts == 5
        assert frame_of(around) == inner.frame
        assert frame_of(replace(around, gather=Episodes())) is None
