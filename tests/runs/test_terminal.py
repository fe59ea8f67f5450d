"""What is drawn on a terminal: right, in its width, in its encoding, and harmless whatever the text."""

from __future__ import annotations

import io
import math
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from assay.runs.terminal import Trace, before_after
from assay.runs.terminal_curves import Curve, printable, scale
from assay.statistics.intervals import Change, Series, measured_change

HOSTILE = "\x1b[2J\x1b]0;title\x07 \u202egnp.exe \r\n\x9b31m \ud800 \x00 [red]markup[/red]"


class Encoded(io.TextIOWrapper):
    """A file with an encoding, like the stdout of a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="strict")

    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


def printed(thing: object, width: int = 80, encoding: str = "utf-8", colour: bool = False) -> str:
    file = Encoded(encoding)
    console = Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None)
    console.print(thing)
    return file.text()


# ---------------------------------------------------------------------------------------------------- text
@given(st.text(max_size=300), st.integers(0, 250), st.sampled_from(["utf-8", "ascii", "latin-1"]))
def test_printable_is_one_harmless_line_of_bounded_length(text: str, limit: int, encoding: str) -> None:
    shown = printable(text, limit, encoding)
    assert shown.isprintable()
    assert all(unicodedata.category(character)[0] != "C" for character in shown)
    assert len(shown) <= limit + len(f" (+{len(text)} characters)")
    shown.encode(encoding)


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=50))
def test_printable_leaves_good_text_alone(text: str) -> None:
    assert printable(text, 50) == text


def test_printable_shows_escapes_and_counts_what_it_cut() -> None:
    assert printable("a\x1b[31mb\n\u202e") == "a\\x1b[31mb\\n\\u202e"
    assert printable("x" * 1000, 10) == "xxxxxxxxxx (+990 characters)"
    assert printable("naïve →", encoding="latin-1") == "naïve \\u2192"


def test_printable_does_not_read_what_it_will_not_show() -> None:
    assert printable("\x00" * 10_000_000, 8) == "\\x00\\x00 (+9999998 characters)"


# ---------------------------------------------------------------------------------------------------- tables
def rows(name: str = "accuracy") -> list[Change]:
    before, after = [1.0] * 6 + [0.0] * 94, [1.0] * 81 + [0.0] * 19
    return [measured_change(name, before, after, paired=False), measured_change("length", [3.5], [2.5], paired=True)]


def test_table_has_the_numbers_and_the_verdict() -> None:
    text = printed(before_after(rows(), title="grpo"))
    intervals = ("0.06", "[0.03, 0.12]", "0.81", "[0.72, 0.87]", "+0.75 better")
    for part in (*intervals, "one value", "no clear change", "95 %"):
        assert part in text


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("width", [24, 60, 100])
def test_table_survives_hostile_names_narrow_terminals_and_encodings(width: int, encoding: str) -> None:
    text = printed(before_after(rows(HOSTILE + "é→"), encoding=encoding), width, encoding)
    assert not set(text) & set("\x1b\x07\r\x9b\x00\u202e")
    assert max(map(cell_len, text.splitlines())) <= width


def test_table_without_rows_or_values_is_a_table() -> None:
    assert "measure" in printed(before_after([]))
    assert "no values" in printed(before_after([measured_change("a", [], [], paired=True)]))


# ---------------------------------------------------------------------------------------------------- curves
def rising(name: str = "reward") -> Series:
    x = np.arange(200)
    return Series(name, x.tolist(), [x / 199.0])


@given(
    st.lists(st.lists(st.floats(), min_size=1, max_size=30), max_size=3),
    st.integers(10, 120),
    st.integers(2, 20),
    st.booleans(),
    st.sampled_from(["utf-8", "ascii"]),
)
def test_any_curve_fits_any_width_and_encoding(
    values: list[list[float]], width: int, height: int, colour: bool, encoding: str
) -> None:
    series = [Series(f"series {place}", list(range(len(row))), [row]) for place, row in enumerate(values)]
    text = printed(Curve(series, title="curve", height=height), width, encoding, colour)
    finite = [value for row in values for value in row if abs(value) < 1e100]
    if not finite:
        assert "there is no curve" in " ".join(text.split())
    elif width >= 40 and max(map(abs, finite)) < 1e6 and not colour:
        assert max(map(cell_len, text.splitlines())) <= width
        assert len(text.splitlines()) >= height + 3


def test_curve_rises_from_the_lower_left_to_the_upper_right() -> None:
    lines = printed(Curve([rising()], height=10), 60).splitlines()[1:11]
    places = [next((place for place, mark in enumerate(line) if 0x2800 < ord(mark) <= 0x28FF), None) for line in lines]
    assert None not in places
    assert places == sorted(places, reverse=True)  # type: ignore[type-var]
    assert lines[0].startswith(" 1.0 ┤")
    assert lines[-1].startswith(" 0.0 ┤⣀")


def test_curve_has_axes_title_and_legend() -> None:
    text = printed(Curve([rising()], title="grpo on addition", x_label="step"), 60)
    assert text.splitlines()[0] == "grpo on addition   ━━ reward"
    assert text.splitlines()[-1].endswith("step")
    assert "└┬" in text


def test_series_without_colour_or_unicode_have_marks() -> None:
    two = Curve([rising("one"), Series("two", [0, 199], [[1.0, 0.0]])])
    plain = printed(two, 60)
    assert "* one" in plain
    assert "o two" in plain
    assert not any(0x2800 <= ord(mark) <= 0x28FF for mark in plain)
    assert printed(two, 60, "ascii").isascii()
    assert any(0x2800 <= ord(mark) <= 0x28FF for mark in printed(two, 60, colour=True))


def test_curve_escapes_hostile_names() -> None:
    assert not set(printed(Curve([rising(HOSTILE)], title=HOSTILE), 100)) & set("\x1b\x07\r\x9b\x00\u202e")


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.integers(2, 12))
def test_scale_holds_its_values_and_has_few_round_ticks(a: float, b: float, most: int) -> None:
    low, high, ticks = scale(min(a, b), max(a, b), most)
    assert low <= min(a, b)
    assert max(a, b) <= high
    assert low < high
    assert 1 <= len(ticks) <= 2 * most + 1
    assert all(low - 1e-6 * abs(low) <= tick <= high + 1e-6 * abs(high) for tick in ticks)


def test_steps_have_whole_ticks_and_a_score_that_stays_0_none_below() -> None:
    shown = printed(Curve([Series("flat", [0, 1, 2], [np.zeros(3)])]), 100)
    assert "-" not in shown.replace("--", "")
    assert re.search(r"^ +0 +1 +(2 +)?step$", shown.rstrip().splitlines()[-1]), shown
    assert scale(0.0, 0.0, 4)[0] == 0.0


# ---------------------------------------------------------------------------------------------------- traces
@given(st.lists(st.floats(-1e3, 1e3), max_size=1000))
def test_trace_keeps_the_mean_of_everything_in_bounded_memory(values: list[float]) -> None:
    trace = Trace()
    for value in values:
        trace.push(value)
    assert len(trace.buckets) < 64
    assert sum(trace.buckets) * trace.width + trace.total == pytest.approx(sum(values), abs=1e-6)
    assert len(trace.sparkline(20)) <= 20


def test_trace_sees_a_trend_and_not_noise() -> None:
    rise, noise = Trace(), Trace()
    for place in range(20):
        rise.push(place)
        noise.push(place % 2)
    rise.push(math.nan)
    assert (rise.trend, noise.trend) == (1, 0)
    assert rise.level == pytest.approx(14.5)
    assert rise.sparkline(8) == "▁▂▃▄▅▆▇█"
    assert math.isnan(Trace().level)
