"""Beginnings of own answers: after lines of a user's file and a chat template, counted, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import assay
from assay.claims.rest_rl import scene_of
from assay.core.errors import AssayError, DataWarning
from assay.core.record import Experience
from assay.core.slots import Scene, frame_of
from assay.methods.rest_rl import EqualParts, FromOwnBest, recipe
from assay.parts import Episodes, placed
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.games.repeated import LEVELS
from assay.tasks.language.textfile import textfile

SIZES = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}


def paid_in_turn(completions: list[str], **_: object) -> list[float]:
    """A reward of which every second answer has all."""
    return [float(row % 2) for row, _ in enumerate(completions)]


@pytest.fixture
def sums(tmp_path: Path) -> str:
    rows = [f'{{"prompt": "{n} + 100?", "answer": "add {n}\\nto it\\n#### {n + 100}"}}\n' for n in range(1, 41)]
    (tmp_path / "sums.jsonl").write_text("".join(rows))
    return str(tmp_path / "sums.jsonl")


def test_beginnings_on_a_file_are_trained_and_counted(sums: str, tmp_path: Path) -> None:
    found = {}
    for method in ("grpo", "rest-rl"):
        with pytest.warns(DataWarning, match="the task's own verifier is not used"):
            run = assay.train(
                method, sums, steps=2, warmup=2, prompts=2, group_size=2, evaluations=0, settings=SIZES,
                out=tmp_path / method, reward=paid_in_turn,
            )  # fmt: skip
        found[method] = [dict(row) for row in run.curves]
    ours = found["rest-rl"]
    assert np.isfinite([row["loss"] for row in ours if "loss" in row]).all()
    assert [row["kept_groups"] for row in ours if "kept_groups" in row] == [1.0, 1.0]
    assert min(row["beginnings"] for row in ours if "beginnings" in row) >= 1.0, "at least one line of each"
    spent = [max(row["decisions_total"] for row in rows if "decisions_total" in row) for rows in found.values()]
    assert spent[1] > spent[0], "answers after beginnings are spent as well"


def test_evaluation_sees_no_beginning() -> None:
    assert frame_of(recipe().rollout) is None, "the evaluated policy reads the task's own prompts"


def test_a_group_with_a_fault_is_judged_by_its_other_members() -> None:
    scene = scene_of((2,))
    paid = scene.reward

    def one_fault(rows: Experience) -> Experience:
        rows = paid(rows)
        is_first = (rows.column("sample") == 1).unsqueeze(1)
        return rows.with_columns(mask=rows.mask & ~is_first)

    part = FromOwnBest(Episodes(1, 4))
    rows = part(scene.given(reward=one_fault), part.init(scene))
    assert rows.column("prefix").unique().tolist() == [0, 2], "the answer d, line break, 1 is the best that is left"


def test_a_step_of_few_groups_is_one_update() -> None:
    source = recipe().source
    assert isinstance(source, EqualParts)
    assert source.num_groups == 32


def test_what_cannot_be_begun_is_refused() -> None:
    with pytest.raises(AssayError, match="goes on from beginnings of answers, which task 'prisoners-dilemma"):
        FromOwnBest().init(Scene(LEVELS["prisoners-dilemma"]()))


@pytest.fixture
def chat(tmp_path: Path) -> str:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    return str(save_chat_model(tmp_path / "model", TEMPLATES["chatml"]))


def test_a_beginning_follows_the_assistants_header_of_a_chat_template(chat: str, sums: str) -> None:
    from assay.methods.dpo_q_function import PlannedDecoder

    task = with_model(textfile(sums), chat)
    backend, vocabulary = task.tokenizer.backend, task.tokenizer.vocabulary  # type: ignore[attr-defined]
    said = [backend.encode(one, add_special_tokens=False) for one in ("take it\nadd 1\n", "no")]

    class Planned:
        def decoder(self, prompts: list[list[int]], repeats: list[int], num_new: int) -> PlannedDecoder:
            rows = [[*said[k % 2], *[vocabulary.eos] * num_new][:num_new] for k in range(sum(repeats))]
            return PlannedDecoder(torch.tensor(rows), vocabulary.size)

    scene = Scene(task, actor=Planned(), starts=np.arange(1))
    scene = scene.given(reward=lambda rows: placed(rows, 1.0 - rows.column("sample") % 2.0))
    part = FromOwnBest(Episodes(1, 2), decay=0.0)
    with torch.no_grad():
        rows = part(scene, part.init(scene))
    assert len(rows) == 4, "one of two lines, drawn once"
    whole = rows.context["tokens"][2][rows.context["valid"][2] & ~rows.mask[2]].tolist()
    told = [{"role": "user", "content": "1 + 100?"}]
    expected = backend.apply_chat_template(told, tokenize=False, add_generation_prompt=True) + "take it\n"
    assert backend.decode(whole, skip_special_tokens=False).endswith(expected)


def test_a_chat_model_goes_on_from_its_own_answers(chat: str, sums: str, tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="the task's own verifier is not used"):
        run = assay.train(
            "rest-rl", sums, steps=1, model=chat, prompts=2, group_size=2, evaluations=0, max_tokens=8,
            out=tmp_path / "run", reward=paid_in_turn,
        )  # fmt: skip
    assert np.isfinite([row["loss"] for row in run.curves if "loss" in row]).all()
    assert run.curves[-1]["beginnings"] >= 1.0
