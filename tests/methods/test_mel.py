"""Lessons from two answers: in the words of a chat template, of a user's file, and forms that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import assay
from assay.claims.refining import Scripted
from assay.core.errors import AssayError, DataWarning
from assay.core.record import Experience
from assay.core.slots import Scene, frame_of
from assay.core.verifier import Verifier
from assay.methods.mel import Contrasted, lesson_of, recipe
from assay.parts import Episodes
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.sorting import sorting
from assay.tasks.language.textfile import textfile

ROW = '{"prompt": "3 + 4?", "answer": "take 3\\nadd 4\\n#### 7"}\n'


def test_a_lesson_ends_with_the_right_step_where_answers_part() -> None:
    assert lesson_of(["a", "b", "c"], ["a", "x", "c"]) == "ab"
    assert lesson_of(["a", "b"], ["a"]) == "ab"
    assert lesson_of(["a"], ["a", "b"]) == "", "the right one has no step there"
    assert lesson_of(["a"], ["a"]) == ""


def test_what_has_no_lessons_is_refused() -> None:
    with pytest.raises(AssayError, match=r"context is '\{nobody\}', which task"):
        Contrasted(context="{nobody}").init(Scene(sorting(4)))
    with pytest.raises(AssayError, match=r"replay is '.*', which task"):
        Contrasted(replay="{hint} \N{SNOWMAN}").init(Scene(sorting(4)))
    with pytest.raises(AssayError, match="'prompt' and 'answer'"):
        Contrasted().init(Scene(cartpole()))


def test_lessons_do_not_reach_evaluation() -> None:
    assert frame_of(recipe().rollout) is None, "the evaluated policy reads the task's own prompts"


@pytest.fixture
def chat(tmp_path: Path) -> str:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    (tmp_path / "sums.jsonl").write_text(ROW * 40)
    return str(save_chat_model(tmp_path / "model", TEMPLATES["chatml"]))


@pytest.mark.parametrize("system", ["", "be brief"])
def test_a_lesson_follows_both_answers_in_the_users_turn_of_a_chat_template(
    system: str, chat: str, tmp_path: Path
) -> None:
    task = with_model(replace(textfile(str(tmp_path / "sums.jsonl")), system=system), chat)

    def said(text: str) -> Sequence[str]:
        return ["take 3\nadd 4\n#### 7"] if "hint:" in text else ["take 3\nadd 4\n#### 7", "take 3\nadd 5\n#### 8"]

    scene = Scene(task, actor=Scripted(task, said), starts=np.arange(1))  # type: ignore[arg-type]

    def reward(rows: Experience) -> Experience:
        return Verifier()(rows, scene)

    part = Contrasted(Episodes(1, 2))
    scene = scene.given(reward=reward)
    with torch.no_grad():
        rows = part(scene, part.init(scene))
    assert rows.column("lesson").tolist() == [False, False, True]
    backend = task.tokenizer.backend  # type: ignore[attr-defined]
    seen = rows.context["tokens"][2][rows.context["valid"][2] & ~rows.mask[2]].tolist()
    both = "3 + 4?\n\nwrong: take 3\nadd 5\n#### 8\nright: take 3\nadd 4\n#### 7\nlesson:\n"
    told = [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": both}]
    expected = backend.apply_chat_template(told, tokenize=False, add_generation_prompt=True)
    assert backend.decode(seen, skip_special_tokens=False).endswith(expected)
    assert backend.decode(rows.action[2][rows.mask[2]].tolist()) == "take 3\nadd 4\n"


def test_a_chat_model_learns_lessons(chat: str, tmp_path: Path) -> None:
    rows = [f'{{"prompt": "{n} + 1?", "answer": "add 1\\n#### {n + 1}"}}\n' for n in range(1, 41)]
    (tmp_path / "more.jsonl").write_text("".join(rows))
    with pytest.warns(DataWarning, match="the task's own verifier is not used"):
        run = assay.train(
            "mel", str(tmp_path / "more.jsonl"), steps=1, model=chat, prompts=2, group_size=2, evaluations=0,
            max_tokens=8, out=tmp_path / "run",
            reward=lambda completions, **_: [float(row % 2) for row, _ in enumerate(completions)],
        )  # fmt: skip
    assert np.isfinite([row["loss"] for row in run.curves if "loss" in row]).all()
    assert "lessons" in run.curves[-1]
