"""Methods that show, cut or spoil solutions: a file of a user's, a chat model's template, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import assay
from assay.core.errors import AssayError, DataWarning
from assay.core.slots import Scene, frame_of
from assay.methods import ghpo
from assay.parts.rollouts.hints import InPrompt
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.language.textfile import textfile

METHODS = ("ghpo", "pope", "scope", "mixed-cot-rl", "int")
SIZES = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}
TRIED = {
    "before.tried.steps": 1,
    "before.tried.recipe.rollout.tries": 2,
    "before.tried.recipe.rollout.gather.num_starts": 2,
    "before.tried.recipe.rollout.gather.group_size": 2,
}
"""Sizes of the first phase of int."""


@pytest.fixture
def worked(tmp_path: Path) -> str:
    rows = [f'{{"prompt": "{n} + 100?", "answer": "add {n}\\nto it\\n#### {n + 100}"}}\n' for n in range(1, 41)]
    (tmp_path / "worked.jsonl").write_text("".join(rows))
    return str(tmp_path / "worked.jsonl")


@pytest.mark.parametrize(
    ("method", "phases"),
    [
        *((one, {}) for one in METHODS if one != "int"),
        ("int", TRIED),
        ("srpo", {"before.in-context.steps": 2}),
        ("svs", {"before.posing.steps": 2}),
        ("mel", {}),
    ],
)
def test_it_trains_on_a_file_of_worked_solutions(
    method: str, phases: dict[str, int], worked: str, tmp_path: Path
) -> None:
    sizes = {**SIZES, **phases}
    run = assay.train(
        method, worked, steps=2, warmup=2, prompts=2, group_size=2, evaluations=0, settings=sizes, out=tmp_path / "run"
    )
    assert np.isfinite([row["loss"] for row in run.curves if "loss" in row]).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_file_of_answers_alone_is_refused_when_the_plan_is_made(method: str, tmp_path: Path) -> None:
    rows = [f'{{"prompt": "{n}?", "answer": "{n + 100}"}}\n' for n in range(1, 41)]
    (tmp_path / "bare.jsonl").write_text("".join(rows))
    with pytest.raises(AssayError, match="field 'answer' of 'bare' holds the answers alone"):
        assay.train(method, str(tmp_path / "bare.jsonl"), steps=1, out=tmp_path / "run")


@pytest.mark.parametrize("system", ["", "be brief"])
def test_a_hint_stands_in_the_users_turn_of_a_chat_template(system: str, worked: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    task = with_model(replace(textfile(worked), system=system), model)
    starts = np.arange(1)
    told = InPrompt().prompts(Scene(task), starts, np.full(1, 0.5))
    backend = task.tokenizer.backend  # type: ignore[attr-defined]
    (ids,), own = task.told(told), task.prompts(starts, 0)[0]  # type: ignore[attr-defined]
    shown = backend.decode(ids, skip_special_tokens=False)
    solution = task.items_of(starts, 0)[0].demonstration  # type: ignore[attr-defined]
    chat = [*([{"role": "system", "content": system}] if system else [])]
    hint = solution[: round(len(solution) * 0.5)]
    chat.append({"role": "user", "content": f"{own}\n\nhint: {hint}\n"})
    expected = backend.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert shown.endswith(expected), "one turn of the user, with question and hint"
    assert frame_of(ghpo.recipe().rollout) is None, "the evaluated policy reads the task's own prompts"


def test_a_chat_model_is_trained_with_hints(worked: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    run = assay.train(
        "ghpo", worked, steps=1, model=model, prompts=2, group_size=2, evaluations=0, out=tmp_path / "run"
    )
    assert [row["failed_groups/2"] for row in run.curves if "failed_groups/2" in row] == [1.0], "it can do nothing"


def test_a_chat_model_learns_corrections(worked: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    run = assay.train(
        "int", worked, steps=1, model=model, prompts=2, group_size=2, evaluations=0, out=tmp_path / "run",
        settings=TRIED,
    )  # fmt: skip
    assert np.isfinite([row["loss"] for row in run.curves if "loss" in row]).all()
    tried = (tmp_path / "run" / "phase-1-tried" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["corrected"] for line in tried if "corrected" in line] == [0.0], "it can do nothing"


def test_a_chat_models_wrong_answers_are_routed_to_a_teacher_that_sees_the_right_one(
    worked: str, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    with pytest.warns(DataWarning, match="the task's own verifier is not used"):
        run = assay.train(
            "srpo", worked, steps=1, model=model, prompts=2, group_size=2, evaluations=0, max_tokens=8,
            out=tmp_path / "run", reward=lambda completions, **_: [float(row % 2) for row, _ in enumerate(completions)],
        )  # fmt: skip
    last = run.curves[-1]
    assert last["routed"] == 0.5, "one of each group of two"
    assert 0.0 < last["taught"] < 1.0
    assert last["distance_to_teacher"] > 0.0


@pytest.mark.parametrize("form", ["{prompt} {nobody}", "{prompt} {", "{0}"])
@pytest.mark.parametrize("method", ["ghpo", "critique-grpo"])
def test_a_form_with_places_that_nothing_fills_is_refused(method: str, form: str, worked: str, tmp_path: Path) -> None:
    setting = {"ghpo": "rollout.hint.form", "critique-grpo": "rollout.form"}[method]
    with pytest.raises(AssayError, match=r"form is '.*', which task 'worked' cannot write"):
        assay.train(method, worked, steps=1, settings={**SIZES, setting: form}, out=tmp_path / "run")
