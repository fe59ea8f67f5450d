"""The benchmark of `assay watch` at toy size; no timing is looked at."""

from __future__ import annotations

from pathlib import Path

from benchmarks import watch


def test_it_measures_three_refreshes_of_a_folder(tmp_path: Path) -> None:
    watch.make_run(tmp_path / "runs" / "a" / "seed-0", "a", 0, steps=5)
    watch.make_run(tmp_path / "runs" / "long", "b", 0, steps=1, megabytes=0.1)
    assert (tmp_path / "runs" / "long" / "metrics.jsonl").stat().st_size >= 0.1 * 2**20
    found = watch.measure(tmp_path / "runs")
    assert set(found) == {"first", "same", "one", "json_mb", "peak_mb"}
    assert 0 < found["json_mb"] < 1
