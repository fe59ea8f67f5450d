"""Journals that grow, are replaced, are very long, or are no files at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from assay.report import journal, page
from assay.report.journal import Journal, open_regular
from tests.cli.test_page import append, make_run


def line(step: int, **values: object) -> bytes:
    return json.dumps({"step": step} | values).encode() + b"\n"


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(0, x=1) + line(1, x=2))
    one = Journal.of(path).read()
    assert (list(one.steps), one.lines.offset) == ([0, 1], path.stat().st_size)
    append(path, line(2, x=3), b'{"step": 3, "x"')
    assert one.read() is one
    assert (list(one.steps), one.last("x")) == ([0, 1, 2], 3.0)
    append(path, b": 7}\n")
    assert one.read().last("x") == 7.0
    assert one.damaged == (0, 0)


def test_a_file_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(0, x=1) + line(1, x=2))
    one = Journal.of(path).read()
    path.write_bytes(line(0, x=9))
    assert list(one.read().steps) == [0]
    (tmp_path / "other").write_bytes(line(0, x=5) + line(1, x=6) + line(2, x=7))
    (tmp_path / "other").replace(path)
    assert one.read().last("x") == 7.0


def test_a_lower_step_takes_the_place_of_later_ones(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(line(step, x=step) for step in range(6)) + line(3, x=30) + line(3, y=1) + line(4, x=40))
    curves = Journal.of(path).read().curves(100)
    assert curves["step"] == [0, 1, 2, 3, 4]
    assert curves["values"] == {"x": [0, 1, 2, 30, 40], "y": [None, None, None, 1, None]}


def test_long_journals_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    path, count = tmp_path / "metrics.jsonl", 10 * journal.POINTS
    path.write_bytes(b"".join(line(step, x=step) for step in range(count)))
    one = Journal.of(path).read()
    assert len(one.metrics["x"].places) < 2 * journal.POINTS
    curve = one.curves(50)
    assert len(curve["step"]) == 50
    assert (curve["step"][0], curve["step"][-1]) == (0, count - 1)
    assert curve["values"]["x"] == curve["step"]


def test_a_very_long_line_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LONGEST_LINE", 100)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(0, x=1) + line(1, x="y" * 950) + line(2, x=3))
    one = Journal.of(path).read()
    assert list(one.steps) == [0, 2]
    assert one.lines.long == 1
    assert "1 line of more than" in one.notes("a", "metrics.jsonl")[0]
    append(path, b"z" * 500)
    one.read()
    append(path, b"z" * 500 + b"\n", line(3, x=4))
    assert list(one.read().steps) == [0, 2, 3]
    assert one.lines.long == 2


@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl", "config.json", "run.lock", "comparison.json"])
def test_a_fifo_or_a_link_is_neither_waited_for_nor_followed(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(line(0, evaluation=77.0) * 3)
    folder = make_run(tmp_path / "runs" / "a", samples=1)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    said = page.gather([tmp_path / "runs"])["notes"]
    assert name in ("run.lock", "comparison.json") or f"{name} cannot be read (not a regular file)" in said[0]
    (folder / name).unlink()
    (folder / name).symlink_to(secret)
    data = page.gather([tmp_path / "runs"])
    assert name in ("run.lock", "comparison.json") or "a symbolic link, which is not followed" in data["notes"][0]
    assert "77" not in json.dumps(data["runs"]) + json.dumps(data["samples"])


def test_what_is_no_file_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


def test_a_run_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(tmp_path / "runs" / f"seed-{seed}", seed=seed, samples=2)
    known = page.Known()
    first = page.gather([tmp_path / "runs"], known=known)
    texts = page.encoded(first, known)
    assert json.loads(texts) == json.loads(page.encoded(first))
    append(tmp_path / "runs" / "seed-1" / "metrics.jsonl", line(21, evaluation=9.0))
    second = page.gather([tmp_path / "runs"], known=known)
    assert second["runs"][0] is first["runs"][0]
    assert second["runs"][1]["score"] == 9.0
    assert json.loads(page.encoded(second, known)) == json.loads(page.encoded(second))
