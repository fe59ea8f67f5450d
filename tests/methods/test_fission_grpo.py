"""Recoveries on a user's file: counted, on a chat model's template, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import assay
from assay.core.errors import AssayError

SIZES = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}


def rows_of(folder: Path, feedback: str) -> str:
    """A file of sums, with what is said of wrong answers."""
    rows = [f'{{"prompt": "{n} + 100?", "answer": "{n + 100}"{feedback}}}\n' for n in range(1, 41)]
    (folder / "sums.jsonl").write_text("".join(rows))
    return str(folder / "sums.jsonl")


def trained(method: str, data: str, out: Path, **options: object) -> list[dict[str, float]]:
    """The curves of two steps on two groups of two."""
    settings = options.pop("settings", SIZES)
    run = assay.train(
        method, data, steps=2, warmup=0, prompts=2, group_size=2, evaluations=0, settings=settings, out=out, **options
    )  # type: ignore[arg-type]
    return [dict(row) for row in run.curves]


def test_recoveries_on_a_file_are_trained_and_counted(tmp_path: Path) -> None:
    data = rows_of(tmp_path, ', "feedback": "count the hundreds"')
    plain, ours = (trained(name, data, tmp_path / name) for name in ("grpo", "fission-grpo"))
    assert np.isfinite([row["loss"] for row in ours if "loss" in row]).all()
    assert [row["fissions"] for row in ours if "fissions" in row] == [0.5, 0.5], "one failure of each group of two"
    totals = [max(row["decisions_total"] for row in curves if "decisions_total" in row) for curves in (plain, ours)]
    assert totals[1] > 1.5 * totals[0], "two recoveries after each group of two are generated tokens too"


def test_a_file_that_says_nothing_of_failures_is_refused_or_untold(tmp_path: Path) -> None:
    data = rows_of(tmp_path, "")
    with pytest.raises(AssayError, match=r"says nothing: no 'feedback'.*Write JSON lines such as"):
        trained("fission-grpo", data, tmp_path / "refused")
    assert trained("fission-grpo:fission-grpo-untold", data, tmp_path / "untold")


def test_a_chat_model_reads_the_error_in_the_users_turn(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    model = save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    data = rows_of(tmp_path, ', "feedback": "count the hundreds"')
    run = assay.train(
        "fission-grpo", data, model=model, steps=1, prompts=2, group_size=2, evaluations=0, out=tmp_path / "run",
        max_tokens=8,
    )  # fmt: skip
    assert [row["fissions"] for row in run.curves if "fissions" in row] == [0.5]
