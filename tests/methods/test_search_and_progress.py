"""Methods that force answers, grow trees, or pay rubrics: on a file of a user's, and with a chat model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import assay
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Need
from assay.core.slots import ResumableTask, Scene
from assay.decoding.sampling_parameters import LOGP_MODEL, Narrowing
from assay.methods.latr import Diverging, Forks
from assay.models.pretrained.transformers import Pretrained
from assay.parts import Episodes
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.language.countdown import countdown
from assay.tasks.language.textfile import textfile

METHODS = ("mrt", "latr", "dr-sci")
SIZES = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}
RUBRIC = [{"item": "adds", "kind": "essential", "pattern": r"\+|add"}, {"item": "guess", "kind": "pitfall"}]


@pytest.fixture
def worked(tmp_path: Path) -> str:
    """A file of worked solutions with pass rates and rubrics."""
    rows = [
        {"prompt": f"{n} + 100?", "answer": f"add {n}\nto it\n#### {n + 100}", "pass_rate": n / 41, "rubric": RUBRIC}
        for n in range(1, 41)
    ]
    (tmp_path / "worked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "worked.jsonl")


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_on_a_users_file(method: str, worked: str, tmp_path: Path) -> None:
    run = assay.train(
        method, worked, steps=2, warmup=2, prompts=2, group_size=2, evaluations=0, settings=SIZES, out=tmp_path / "run"
    )
    assert np.isfinite([row["loss"] for row in run.curves if "loss" in row]).all()


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_a_chat_model(method: str, worked: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "chat", TEMPLATES["chatml"])
    run = assay.train(
        method, worked, steps=1, model=model, prompts=2, group_size=2, max_tokens=8, evaluations=0, out=tmp_path / "run"
    )
    assert run.curves[-1]["decisions_total"] > 0


def test_a_tree_of_a_chat_model_follows_its_template(worked: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "chat", TEMPLATES["chatml"])
    task, starts = with_model(textfile(worked), model), np.arange(2)
    actor = Pretrained(model).build(task.spec)
    part = Diverging(Episodes(), 3, 1.0, Forks(absolute=0.0, relative=1.0, lookahead=(2,), alike=0.0, longest=4))
    rows = part(Scene(task, actor=actor, starts=starts), {})
    assert isinstance(task, ResumableTask)
    begun = task.begin(starts, 0)
    for row, start in enumerate(rows.column("start").tolist()):
        own = begun.context["tokens"][start][begun.context["valid"][start]]
        assert rows.action[row, : len(own)].tolist() == own.tolist()
        assert int(rows.mask[row].nonzero()[0]) == len(own)
    told = [row[there].tolist() for row, there in zip(rows.action, rows.mask, strict=True)]
    assert len({tuple(one[:4]) for one in told[:3]}) == 3, "where every fork opens and none is cut no two leaves agree"


def test_forced_answers_need_a_mark(tmp_path: Path) -> None:
    (tmp_path / "bare.jsonl").write_text("".join(f'{{"prompt": "{n}?", "answer": "{n + 100}"}}\n' for n in range(40)))
    with pytest.raises(AssayError, match="Probed ends thoughts"):
        assay.train("mrt", str(tmp_path / "bare.jsonl"), steps=1, out=tmp_path / "run")


def test_a_tree_is_of_the_model_whatever_the_sampling_parameters() -> None:
    task = countdown()
    actor = probes.small_policy(task)
    scene = Scene(task, actor=Narrowing(temperature=0.5).wrap(actor), starts=np.arange(3))
    part = Diverging(Episodes(), 4, 1.0, Forks(longest=3, absolute=0.0, relative=1.0, lookahead=()))
    rows = part(scene, {})
    own = actor.score(rows, frozenset({Need.LOGP})).logp.detach()
    assert torch.allclose(rows.column(LOGP_MODEL) * rows.mask, own * rows.mask, atol=1e-5)
    first = rows.mask & (rows.mask.long().cumsum(1) <= 2)
    assert torch.allclose(rows.logp[first], own[first], atol=1e-5), "two levels of a tree of four leaves"
    later = rows.mask & ~first
    assert not torch.allclose(rows.logp[later], own[later], atol=1e-2), "sampled ones have those of what they came from"
