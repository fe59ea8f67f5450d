"""Retroagent on tasks of turns: subtasks of an episode, lessons of whole conversations, reflection by a judge or by the
policy itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import assay
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.slots import ReplayableTask, Scene
from assay.methods.retroagent import recipe
from assay.methods.retroagent.lessons import Lessons
from assay.methods.retroagent.progress import Progress
from assay.methods.retroagent.reflection import OwnReflection, asked_about, said_in
from assay.models.pretrained.transformers import Pretrained
from assay.parts.rollouts.episodes import Episodes
from assay.runs import catalogue
from assay.runs.plan import make_plan
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.language.dialogue import DialogueTask, laid_out
from tests.tasks.games.played import actor_for

TASK = catalogue.find_task("household")
assert isinstance(TASK, DialogueTask)
ITEM = TASK.partner.item(0, 0)
SHOWN = ITEM.demonstration.split("\n")


def episodes(said: list[list[str]], starts: list[int]) -> Experience:
    """Returns judged conversations with these utterances, all of training starts."""
    rows = []
    for words, start in zip(said, starts, strict=True):
        item = TASK.partner.item(start, 0)
        pieces: list[tuple[list[int], bool, int]] = [(TASK.told([item.prompt])[0], False, 0)]
        for turn, (utterance, reply) in enumerate(zip(words, TASK.replies(item, words), strict=True)):
            pieces.append(([*TASK.tokenizer.encode(utterance), 2], True, turn))
            pieces.append((TASK.tokenizer.encode(reply.text) if reply.outcome is None else [], False, turn + 1))
        rows.append(pieces)
    return TASK.judge(laid_out(rows, torch.tensor(starts), 0), 0)


def test_subtasks_of_a_house_are_counted_once_they_were_reached() -> None:
    partner: Any = TASK.partner
    shares = [partner.progress(ITEM, SHOWN[:num]) for num in range(len(SHOWN) + 1)]
    assert shares == sorted(shares), "what was reached stays reached"
    assert shares[-1] == 1.0
    assert set(shares) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert shares[-2] < 1.0
    taken = next(num for num, words in enumerate(SHOWN, 1) if words.startswith("take"))
    assert shares[taken] >= 0.5
    assert partner.progress(ITEM, ["go nowhere"] * 3) == shares[0]


def test_progress_of_an_episode_is_paid_though_its_turns_ran_out() -> None:
    taken = next(num for num, words in enumerate(SHOWN, 1) if words.startswith("take"))
    rows = episodes([SHOWN[:taken], SHOWN], [0, 0])
    assert rows.column("policy_fault").tolist() == [True, False]
    part, scene = Progress(), Scene(TASK)
    paid = part(rows, scene, part.init(scene)).reward.sum(1) - rows.reward.sum(1)
    partner: Any = TASK.partner
    assert paid.tolist() == [partner.progress(ITEM, SHOWN[:taken]), 1.0]


def test_a_lesson_is_the_whole_conversation_and_begins_the_next_episodes_of_half_a_group() -> None:
    assert isinstance(TASK, ReplayableTask)
    rollout, actor = Lessons(Episodes(1, 4)), actor_for(TASK)
    state = rollout.init(Scene(TASK))

    def won(rows: Experience) -> Experience:
        judged = TASK.judge(rows, 0)
        return judged.add({"score": (judged.column("sample") == 0).float()})

    scene = Scene(TASK, actor=actor, starts=np.array([0]), draw=Draw(0), reward=won)
    first = rollout(scene, state)
    assert not first.column("hinted").any()
    (lesson,) = state["lessons"]
    told = TASK.texts(first, 0)[0]
    assert lesson["text"] == f"{ITEM.prompt}{said_in(told)}"
    assert len(said_in(told).splitlines()) >= len(TASK.conversations(first)[0]), "utterances and replies"
    again = rollout(scene, state)
    assert again.column("hinted").tolist() == [False, False, True, True]
    begun = [int((valid & ~mask).long().cumsum(0)[mask.long().argmax()]) for valid, mask in zip(
             again.context["valid"], again.mask, strict=True)]  # fmt: skip
    own, hinted = len(TASK.told([ITEM.prompt])[0]), len(TASK.told([f"{lesson['text']} {ITEM.prompt}"])[0])
    assert begun == [own, own, hinted, hinted]
    assert again.turn is not None


def test_a_judge_reads_whole_episodes() -> None:
    seen: list[str] = []

    def judge(prompts: Any) -> list[str]:
        seen.extend(prompts)
        return ["look in closed places" if "attempt was" in one else "Score: 3" for one in prompts]

    plan = make_plan("retroagent", "household")
    progress, lessons = plan.recipe.rewards[-1].with_judge(judge), plan.recipe.rollout.with_judge(judge)  # type: ignore
    rows, scene = episodes([SHOWN[:2], SHOWN], [0, 0]), Scene(TASK)
    paid = progress(rows, scene, progress.init(scene)).reward.sum(1) - rows.reward.sum(1)
    assert paid.tolist() == [pytest.approx(0.3), 1.0]
    assert lessons.reflect(scene, TASK.texts(rows, 0), [False, True]) == ["look in closed places"] * 2
    whole = "\n".join(turn["content"].strip() for turn in TASK.messages(ITEM, SHOWN)[1:])
    assert all(any(part in one for one in seen) for part in (whole, "was wrong", "was right"))


def test_a_partner_without_subtasks_needs_a_judge() -> None:
    with pytest.raises(AssayError, match=r"'calculator-1' does not say how much.*--judge"):
        assay.train("retroagent", "calculator-1", steps=1, warmup=0)
    with pytest.raises(AssayError, match="cannot write a question about an attempt"):
        recipe(reflect=OwnReflection()).rollout.init(Scene(TASK))  # type: ignore[union-attr]


def test_a_chat_model_reflects_on_its_own_episodes(tmp_path: Any) -> None:
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    asked = asked_about([{"prompt": "p", "completion": "", "messages": [{"content": "p"}, {"content": "go"}]}], [False])
    assert asked[0].startswith("p\ngo\nthis attempt was wrong")
    run = assay.train(
        "retroagent:reflect", "household", steps=2, model=model, prompts=2, group_size=2, evaluations=0,
        settings={"rollout.retrieve.cut": 0.0}, out=tmp_path / "run",
    )  # fmt: skip
    assert [row["lessons"] for row in run.curves if "lessons" in row][-1] >= 2, "one lesson for each task"
    task = with_model(TASK, model)
    assert isinstance(task, ReplayableTask)
    actor = Pretrained(model).build(task.spec)
    said, num = task.say(actor, ["what now?"] * 2, np.arange(2), np.zeros(2, dtype=int), Draw(0))
    assert len(said) == 2
    assert 2 <= num <= 2 * task.max_tokens, "one utterance each, without replies"  # type: ignore[attr-defined]


def test_a_group_that_fails_is_told_apart_by_its_subtasks() -> None:
    sizes = {"num_starts": 4, "group_size": 4, "actor.width": 16, "actor.layers": 1}
    run = assay.train("retroagent", "household", steps=1, warmup=0, settings=sizes, evaluations=0)
    found = [row for row in run.curves if "progress_paid" in row]
    assert found[0]["progress_paid"] > 0.0, "objects in view at the start are a subtask"
