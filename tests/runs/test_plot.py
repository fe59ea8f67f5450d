"""Learning curves as files: valid pictures, equal bytes for equal series, a clear word when matplotlib is missing."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.runs.plot import curve, identical, learning_curve, look, smooth
from assay.statistics.intervals import Series

PNG = b"\x89PNG\r\n\x1a\n"


def one(seeds: int = 1, points: int = 100) -> Series:
    noise = np.random.default_rng(0).normal(size=(seeds, points)) * 0.1
    return Series(f"{seeds} seeds", list(range(points)), list(np.linspace(0, 1, points) + noise))


@pytest.fixture(scope="module", autouse=True)
def _needs_matplotlib() -> None:
    pytest.importorskip("matplotlib")


def test_png_and_svg_are_written_whole_and_equal_for_equal_series(tmp_path: Path) -> None:
    for kind in ("png", "svg"):
        paths = [learning_curve(tmp_path / f"{name}.{kind}", [one(), one(5)], title="t") for name in ("a", "b")]
        assert paths[0].read_bytes() == paths[1].read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]


def test_odd_series_and_hostile_text_are_drawn(tmp_path: Path) -> None:
    odd = [
        Series("none", [0, 1], [[math.nan, math.inf]]),
        Series("one point", [3], [[0.5]]),
        Series("$\\frac{1}{2$ <b> \x1b[31m \x00", [0, 1, 2], [[1.0, math.nan, 2.0], [math.nan, math.nan, 1.0]]),
    ]
    levels = {"before": 0.1, "": 0.2}
    path = learning_curve(tmp_path / "sub" / "odd.png", odd, title="$x_" + "y" * 300, subtitle="\n\n", levels=levels)
    assert path.read_bytes().startswith(PNG)
    assert learning_curve(tmp_path / "empty.png", []).read_bytes().startswith(PNG)


def test_nothing_global_is_left_behind(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    learning_curve(tmp_path / "a.png", [one()])
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"'curve\.jpg' is not a \.png, \.svg or \.pdf file"):
        learning_curve(tmp_path / "curve.jpg", [one()])


def test_missing_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AssayError, match=r"pip install 'assay\[plots\]'"):
        learning_curve(tmp_path / "a.png", [one()])
    assert list(tmp_path.iterdir()) == []


def test_smoothing_keeps_lines_gaps_and_few_points() -> None:
    line = np.arange(200.0)
    assert smooth(line)[5:-5] == pytest.approx(line[5:-5])
    assert smooth(line[:79]) is not None
    assert np.array_equal(smooth(line[:79]), line[:79])
    line[50] = np.nan
    assert np.flatnonzero(np.isnan(smooth(line))).tolist() == [50]


def test_curve_of_records_joins_seeds_over_their_steps() -> None:
    runs = [
        [{"step": 0, "reward": 1.0}, {"step": 2, "reward": None}, {"step": 2, "loss": 0.0}],
        [{"step": 0, "reward": 3}, {"step": 5, "reward": 4.0}],
    ]
    series = curve("reward", "reward", runs)
    assert series.x == [0, 5]
    assert np.array_equal(series.values, [[1.0, np.nan], [3.0, 4.0]], equal_nan=True)
    assert curve("nothing", "missing", runs).middle()[0].size == 0


def test_neighbours_differ_in_dashes_and_equal_curves_are_named(tmp_path: Path) -> None:
    assert all(look(place)[0] != look(place + 1)[0] and look(place)[1] != look(place + 1)[1] for place in range(20))
    assert len({str(look(place)) for place in range(35)}) == 35
    twins = [Series("a", [0, 1], [[1.0, 2.0]]), Series("b", [0, 1], [[1.0, 2.0]]), Series("c", [0, 1], [[1.0, 3.0]])]
    assert identical(twins) == [["a", "b"]]
    assert (
        learning_curve(tmp_path / "a.pdf", twins).read_bytes() == learning_curve(tmp_path / "b.pdf", twins).read_bytes()
    )
