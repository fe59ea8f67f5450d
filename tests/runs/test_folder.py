"""The run folder: journals that survive kills and resumes, and a README that says what happened."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.runs import folder as module
from assay.runs.folder import (
    METRICS,
    SAMPLES,
    Facts,
    Journal,
    read_metrics,
    read_samples,
    without_time,
    write_readme,
)
from assay.runs.progress import Noted
from assay.statistics.intervals import Estimate, measured_change

ROOT = Path(__file__).resolve().parents[2]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(st.text(max_size=8).filter(lambda name: name not in module.RESERVED), JSON_VALUES, max_size=4)


def strict_equal(a: Any, b: Any) -> bool:
    """Equal with floats that are not finite read as None."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(strict_equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(strict_equal, a, b))
    return b is None if isinstance(a, float) and not math.isfinite(a) else bool(a == b)


# ---------------------------------------------------------------------------------------------------- journals
@given(st.lists(RECORDS, max_size=4))
def test_records_come_back_as_written(tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("run")
    with Journal(folder) as journal:
        for step, record in enumerate(records):
            journal.sample(step, record)
    lines = (folder / SAMPLES).read_bytes().decode("utf-8").split("\n")
    assert len(lines) == len(records) + 1
    assert not any(character in line for line in lines for character in "\x1b\x07\x9b\x85\u2028\u202e")
    back = read_samples(folder)
    for step, (record, read) in enumerate(zip(records, back, strict=True)):
        assert read.pop("step") == step
        read.pop("not_finite", None)
        assert strict_equal(record, read)


def test_half_characters_are_kept_and_written_as_utf8(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.sample(0, {"text": "a\ud800b \x9b \x1b日本"})
    assert read_samples(tmp_path)[0]["text"] == "a\ud800b \x9b \x1b日本"
    assert "日本" in (tmp_path / SAMPLES).read_text(encoding="utf-8")


def test_values_that_are_not_finite_are_null_and_named(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.metrics(3, {"a": math.nan, "b": 1, "c": {"d": [1.0, -math.inf]}}, {"sample": math.inf})
    (record,) = read_metrics(tmp_path)
    assert record["a"] is None
    assert record["c"] == {"d": [1.0, None]}
    assert record["not_finite"] == ["a", "c/d/1"]
    assert set(record["time"]) == {"at", "sample"}


def test_numbers_of_every_kind_are_numbers(tmp_path: Path) -> None:
    values = {
        "tensor": torch.tensor(0.5),
        "brain": torch.tensor(0.5, dtype=torch.bfloat16),
        "array": np.array([1, 2]),
        "scalar": np.float32(0.25),
        "whole": np.int64(7),
        "flag": np.bool_(True),
        "estimate": Estimate(0.5, 0.4, 0.6, 10),
    }
    with Journal(tmp_path) as journal:
        journal.metrics(0, values, {})
    (record,) = without_time(read_metrics(tmp_path))
    assert record == {
        "step": 0, "tensor": 0.5, "brain": 0.5, "array": [1, 2], "scalar": 0.25, "whole": 7, "flag": True,
        "estimate": {"value": 0.5, "low": 0.4, "high": 0.6, "count": 10},
    }  # fmt: skip


def test_what_a_journal_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for values, word in (({"time": 1.0}, "'time'"), ({"step": 1}, "'step'"), ({"a": {"b": object()}}, "'a/b'")):
            with pytest.raises(AssayError, match=word):
                journal.metrics(0, values, {})
    assert (tmp_path / METRICS).read_bytes() == b""


def test_clock_is_the_only_difference_between_equal_runs(tmp_path: Path) -> None:
    for name, spent in (("a", 0.1), ("b", 0.2)):
        with Journal(tmp_path / name) as journal:
            journal.metrics(0, {"reward": 1.0}, {"sample": spent})
    a, b = read_metrics(tmp_path / "a"), read_metrics(tmp_path / "b")
    assert a != b
    assert without_time(a) == without_time(b)


def write_steps(journal: Journal, steps: range) -> None:
    for step in steps:
        journal.metrics(step, {"reward": float(step)}, {})
        journal.sample(step, {"text": "x" * step})


def test_resumed_journal_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    with Journal(tmp_path / "whole") as journal:
        write_steps(journal, range(10))
    with Journal(tmp_path / "cut") as journal:
        write_steps(journal, range(4))
        offsets = journal.offsets()
        write_steps(journal, range(4, 7))
    with (tmp_path / "cut" / METRICS).open("ab") as stream:
        stream.write(b'{"step": 7, "rew')
    with Journal(tmp_path / "cut") as journal:
        assert journal.truncate(offsets) == []
        write_steps(journal, range(4, 10))
    for read in (read_metrics, read_samples):
        assert without_time(read(tmp_path / "cut")) == without_time(read(tmp_path / "whole"))


@given(st.integers(0, 400), st.integers(0, 400))
def test_journal_cut_anywhere_stays_readable(tmp_path_factory: pytest.TempPathFactory, kept: int, wanted: int) -> None:
    folder = tmp_path_factory.mktemp("run")
    with Journal(folder) as journal:
        write_steps(journal, range(5))
    whole = read_metrics(folder)
    size = (folder / METRICS).stat().st_size
    os.truncate(folder / METRICS, min(kept, size))
    seen = read_metrics(folder)
    assert seen == whole[: len(seen)]
    with Journal(folder) as journal:
        problems = journal.truncate({METRICS: wanted})
        left = read_metrics(folder)
        assert left == whole[: len(left)]
        assert any(METRICS in problem for problem in problems) == (journal.size(METRICS) != wanted)
        assert journal.size(SAMPLES) == 0
        journal.metrics(99, {}, {})
    assert [record["step"] for record in read_metrics(folder)] == [record["step"] for record in left] + [99]


def test_killed_writer_leaves_whole_lines(tmp_path: Path) -> None:
    code = (
        "import sys; from assay.runs.folder import Journal\n"
        "journal = Journal(sys.argv[1])\n"
        "for step in range(10**9):\n"
        "    journal.metrics(step, {'text': 'x' * 5000}, {})\n"
        "    print(step, flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(50)]
        process.send_signal(signal.SIGKILL)
    assert [record["step"] for record in read_metrics(tmp_path)][:50] == [int(line) for line in said]


def test_full_disk_takes_half_a_line_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with Journal(tmp_path) as journal:
        journal.metrics(0, {"reward": 1.0}, {})

        def full(descriptor: int, block: bytes) -> int:
            if len(block) <= 10:
                raise OSError(28, "No space left on device")
            return write(descriptor, bytes(block)[: len(block) // 2])

        monkeypatch.setattr(module.os, "write", full)
        with pytest.raises(AssayError, match=r"metrics.jsonl could not be written \(No space left"):
            journal.metrics(1, {"reward": 1.0}, {})
        monkeypatch.undo()
        journal.metrics(2, {"reward": 1.0}, {})
    assert [record["step"] for record in read_metrics(tmp_path)] == [0, 2]


# ---------------------------------------------------------------------------------------------------- reading
@pytest.mark.parametrize("bad", [b"{broken", b"[1, 2]", b"", b"\xff\xfe", b"5"])
def test_damaged_line_is_named_and_a_torn_last_one_forgiven(tmp_path: Path, bad: bytes) -> None:
    good = json.dumps({"step": 0}).encode()
    (tmp_path / METRICS).write_bytes(good + b"\n" + good + b"\n" + bad)
    assert len(read_metrics(tmp_path)) == 2
    (tmp_path / METRICS).write_bytes(good + b"\n" + bad + b"\n" + good + b"\n")
    with pytest.raises(AssayError, match=r"metrics\.jsonl line 2 is damaged"):
        read_metrics(tmp_path)


def test_folder_without_metrics_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="is not a run folder"):
        read_metrics(tmp_path)


# ---------------------------------------------------------------------------------------------------- README
def facts(**changes: Any) -> Facts:
    told: dict[str, Any] = {
        "title": "grpo on addition, seed 0",
        "state": "Finished: 40 of 40 steps.",
        "settings": {"method": "grpo", "task": "addition", "seed": 0},
        "repeat": "assay train grpo --task addition",
        "resume": "assay resume runs/a",
    }
    return Facts(**told | changes)


def test_readme_tells_the_whole_run(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for step in range(40):
            journal.metrics(step, {"reward": step / 40, "note": "text"}, {"sample": 0.1})
    (tmp_path / "learning_curve.png").write_bytes(b"")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "phase-1-warmup").mkdir()
    (tmp_path / "phase-1-warmup" / "README.md").write_text("")
    change = measured_change("accuracy", [0.0] * 90 + [1.0] * 10, [0.0] * 20 + [1.0] * 80, paired=True)
    alarms = [Noted("too easy", 3), Noted("not finite", 1, stop=True)]
    told = facts(changes=[change], alarms=alarms, seconds={"sample": 60, "update": 30})
    text = write_readme(tmp_path, told).read_text()
    for part in (
        "# grpo on addition, seed 0",
        "| task | addition |",
        "    assay train grpo --task addition\n",
        "    assay resume runs/a\n",
        r"| accuracy | 0.10 \[0.06, 0.17\] | 0.80 \[0.71, 0.87\] |",
        "![learning curve](learning_curve.png)",
        "| reward | 0.0375 | 0.9375 | 0 | 0.975 | 40 |",
        "- too easy (3 times)",
        "- not finite (once, stopped the run)",
        "| sample | 1:00 | 67% |",
        "| `checkpoints/` | everything",
        "| `phase-1-warmup/` | a phase of this run, explained in its own README.md |",
        "| `metrics.jsonl` | one line per step",
        "| torch |",
    ):
        assert part in text, part
    assert "note" not in text


def test_readme_of_a_run_that_did_nothing(tmp_path: Path) -> None:
    text = write_readme(tmp_path, facts(repeat="", resume="")).read_text()
    for part in ("Nothing was evaluated.", "Nothing was measured.", "None.", "Not measured.", "`README.md`"):
        assert part in text


@given(st.text(max_size=60))
def test_readme_shows_any_text_as_it_is(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("run")
    readme = write_readme(folder, facts(title=text, settings={text: text + "|<script>"}, alarms=[Noted(text, 1)]))
    shown = readme.read_text(encoding="utf-8")
    row = next(line for line in shown.splitlines() if line.endswith(r"\|\<script\> |"))
    assert row.replace(r"\\", "").replace(r"\|", "").count("|") == 3
    assert "<script>" not in shown
    assert all(character.isprintable() or character == "\n" for character in shown)
