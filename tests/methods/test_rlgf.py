"""Answers of two authors: a file of a user's, a pretrained policy with a pretrained guide, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import assay
from assay.claims.testbeds.language.experts import experts
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Scene, frame_of
from assay.methods.rlgf import RolledIn, RolledOut, aggrevated, recipe
from assay.tasks.language.sorting import sorting

METHODS = ("rlgf", "rlgf:aggrevated", "rlgf:d2lols")
SIZES = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2, "before.guide.steps": 2}


@pytest.fixture
def sums(tmp_path: Path) -> str:
    rows = [f'{{"prompt": "{n} + 100?", "answer": "{n + 100}"}}\n' for n in range(1, 41)]
    (tmp_path / "sums.jsonl").write_text("".join(rows))
    return str(tmp_path / "sums.jsonl")


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_on_a_file(method: str, sums: str, tmp_path: Path) -> None:
    sizes = SIZES | ({"before.aggrevated.steps": 1} if "d2lols" in method else {})
    run = assay.train(
        method, sums, steps=2, warmup=2, prompts=2, group_size=2, evaluations=0, settings=sizes, out=tmp_path / "run"
    )
    assert np.isfinite([row["loss"] for row in run.curves if "loss" in row]).all()


@pytest.fixture
def chat(tmp_path: Path) -> str:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    return str(save_chat_model(tmp_path / "model", TEMPLATES["chatml"]))


@pytest.mark.parametrize("method", METHODS)
def test_a_chat_model_learns_from_a_guide_in_a_folder(method: str, chat: str, sums: str, tmp_path: Path) -> None:
    settings = {"before.aggrevated.steps": 1} if "d2lols" in method else {}
    run = assay.train(
        method, sums, steps=1, model=chat, teacher=chat, prompts=2, group_size=2, evaluations=0, max_tokens=6,
        settings=settings, out=tmp_path / "run",
    )  # fmt: skip
    assert np.isfinite([row["loss"] for row in run.curves if "loss" in row]).all()


def test_a_chat_model_without_a_guide_is_refused(chat: str, sums: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"needs a teacher\. Add --teacher FOLDER"):
        assay.train("rlgf", sums, steps=1, model=chat, out=tmp_path / "run")


def test_a_guide_at_an_address_is_refused(chat: str, sums: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"scores answers alone\. Use --teacher FOLDER"):
        assay.train("rlgf", sums, steps=1, model=chat, teacher="http://localhost:1", out=tmp_path / "run")


@pytest.mark.parametrize("made", [recipe, aggrevated])
def test_the_guide_does_not_reach_evaluation(made: Callable[[], Recipe]) -> None:
    policy = object()
    assert frame_of(made().rollout) is None
    assert made().policy({"actor": policy, "teacher": object()}) is policy


@pytest.mark.parametrize("part", [RolledIn, RolledOut])
def test_what_cannot_be_continued_is_refused(part: type) -> None:
    with pytest.raises(AssayError, match=r"prob_in is 1\.5\. Use a probability"):
        part(prob_in=1.5).init(Scene(sorting(4)))
    with pytest.raises(AssayError, match="'prompt' and 'answer'"):
        part().init(Scene(experts()))
