"""Problems that the policy poses: in the words of a chat template, and forms that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import assay
from assay.claims.refining import Scripted
from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Scene
from assay.core.verifier import Verifier
from assay.methods.svs import SelfPosed, problem_in
from assay.parts import Episodes
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.sorting import sorting
from assay.tasks.language.textfile import textfile


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("what is 3 + 4?", "what is 3 + 4?"),
        ("here:\n```text\nwhat is 3 + 4?\n```\nit is 7", "what is 3 + 4?"),
        ("``````", ""),
        ("what is 7 + 0?", ""),
        ("what is 70 + 0?", "what is 70 + 0?"),
    ],
)
def test_a_problem_is_what_stands_in_the_first_fence_and_does_not_tell(said: str, problem: str) -> None:
    assert problem_in(said, "7") == problem


def test_what_cannot_be_posed_is_refused() -> None:
    with pytest.raises(AssayError, match="without a place for the solution"):
        SelfPosed(form="another one").init(Scene(sorting(4)))
    with pytest.raises(AssayError, match="cannot write"):
        SelfPosed(form="{solution} \N{SNOWMAN}").init(Scene(sorting(4)))
    with pytest.raises(AssayError, match="'prompt' and 'answer'"):
        SelfPosed().init(Scene(cartpole()))


@pytest.mark.parametrize("system", ["", "be brief"])
def test_a_problem_is_posed_and_asked_in_the_users_turn_of_a_chat_template(system: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    (tmp_path / "sums.jsonl").write_text('{"prompt": "3 + 4?", "answer": "7"}\n' * 40)
    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    task = with_model(replace(textfile(str(tmp_path / "sums.jsonl")), system=system), model)

    def said(text: str) -> Sequence[str]:
        if "another problem" in text:
            return ["so:\n```\n5 + 2?\n```"] * 2
        return ["7", "8"] if "3 + 4?" in text else ["7", "7"] * 2

    scene = Scene(task, actor=Scripted(task, said), starts=np.arange(1))  # type: ignore[arg-type]

    def reward(rows: Experience) -> Experience:
        return Verifier()(rows, scene)

    part = SelfPosed(Episodes(1, 2), group_size=2)
    scene = scene.given(reward=reward)
    with torch.no_grad():
        rows = part(scene, part.init(scene))
    backend = task.tokenizer.backend  # type: ignore[attr-defined]
    asked = []
    for row in range(len(rows)):
        before = rows.context["tokens"][row][rows.context["valid"][row] & ~rows.mask[row]].tolist()
        asked.append(backend.decode(before, skip_special_tokens=False))
    told = [*([{"role": "system", "content": system}] if system else [])]
    expected = [
        backend.apply_chat_template(
            [*told, {"role": "user", "content": one}], tokenize=False, add_generation_prompt=True
        )
        for one in ("3 + 4?", part.form.replace("{solution}", "7"), "5 + 2?")
    ]
    assert [one in {*asked} for one in expected] == [True] * 3, "the problem, the poser's prompt and the new problem"
    assert rows.column("posed").tolist().count(True) == 2
    assert set(rows.column("start").tolist()) == {0}, "verified by the answer to the first problem"


def test_a_chat_model_is_trained(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    rows = [f'{{"prompt": "{n} + 100?", "answer": "{n + 100}"}}\n' for n in range(1, 41)]
    (tmp_path / "sums.jsonl").write_text("".join(rows))
    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    run = assay.train(
        "svs", str(tmp_path / "sums.jsonl"), steps=1, model=model, prompts=2, group_size=2, evaluations=0,
        out=tmp_path / "run",
    )  # fmt: skip
    assert [row["hard_answers"] for row in run.curves if "hard_answers" in row] == [0.0], "it can do nothing"
