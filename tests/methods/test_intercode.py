"""intercode on a user's file of queries, from scratch and with a chat model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import assay
from assay.core.record import Score
from assay.runs.catalogue import find_task
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.partners import Reply

SIZES = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}


def file_of(folder: Path) -> str:
    """The address of a file of questions to small tables."""
    rows = [
        {
            "prompt": f"c above {n}",
            "schema": "create table t (c); insert into t values (3), (8), (5);",
            "query": f"select c from t where c > {n}",
        }
        for n in range(30)
    ]
    (folder / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return f"code:{folder / 'asked.jsonl'}"


def test_a_users_rows_are_trained_from_their_demonstrations(tmp_path: Path) -> None:
    run = assay.train(
        "intercode",
        file_of(tmp_path),
        steps=2,
        warmup=2,
        prompts=2,
        group_size=2,
        eval_prompts=4,
        settings=SIZES,
        out=tmp_path / "run",
    )
    assert len(run.curves) == 3
    assert all("session/replies" in row for row in run.curves[1:])
    assert not (tmp_path / "run" / "replay.txt").exists(), "queries can be repeated"


def test_a_chat_model_reads_the_rules_and_errors_as_messages(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from assay.tasks.adapters.pretrained import with_model
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    config = Path(model, "config.json")
    config.write_text(config.read_text().replace('"max_position_embeddings": 2048', '"max_position_embeddings": 8192'))
    task = with_model(find_task(file_of(tmp_path)), model)
    assert isinstance(task, DialogueTask)
    (item,) = task.items_of(np.arange(1), 0)
    assert "one SELECT in SQLite's dialect" in str(item.prompt)
    talk = task.messages(item, ["select d from t", "submit"], [Reply("no such column: d\n"), Reply("", Score(0.0))])
    assert [one["role"] for one in talk] == ["user", "assistant", "user", "assistant"]
    assert talk[2]["content"] == "no such column: d\n"
    run = assay.train(
        "intercode",
        file_of(tmp_path),
        model=model,
        steps=1,
        prompts=1,
        group_size=2,
        eval_prompts=4,
        max_tokens=40,
        out=tmp_path / "run",
    )
    assert run.curves[-1]["session/replies"] > 1
