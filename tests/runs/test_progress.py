"""The display as a person sees it: on a real terminal (a pty), in a pipe, and when the terminal goes away."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import assay
from assay.runs.progress import Display, Mode, duration, short
from tests import warm

ROOT = Path(__file__).resolve().parents[2]
SECONDS = {"sample": 0.6, "update": 0.3}
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"
RUN = """
import sys, time
from assay.runs.progress import Display
with Display("grpo on addition", 50) as display:
    display.note("a note")
    for step in range(50):
        display.step({"reward": step / 50}, {"sample": 0.01, "update": 0.005}, 1000)
        display.alarm(f"step {step}: too easy")
        time.sleep(float(sys.argv[1]))
        if step == 25 and len(sys.argv) > 2:
            raise RuntimeError("broken reward")
"""


class Clock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def written_to(width: int = 100, *, terminal: bool = False) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=width, height=30, force_terminal=terminal, color_system="standard"), file


def on_a_terminal(arguments: list[str], interrupt_after: bytes = b"") -> tuple[str, int]:
    """Runs RUN on a pty of 100 columns; what the terminal got, and the exit code."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = warm.Process(RUN, *arguments, environment=environment, ends=(theirs, theirs, theirs))
    os.close(theirs)
    got = b""
    for piece in pieces(ours):
        got += piece
        if interrupt_after and interrupt_after in got:
            process.send_signal(signal.SIGINT)
            interrupt_after = b""
    os.close(ours)
    return got.decode(), process.ended(60)[0]


def pieces(descriptor: int) -> Iterator[bytes]:
    """What comes out of a pty until its last writer is gone."""
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:
            return
        if not piece:
            return
        yield piece


# ---------------------------------------------------------------------------------------------------- on a terminal
def test_terminal_shows_everything_and_is_restored() -> None:
    text, code = on_a_terminal(["0.01"])
    assert code == 0
    assert text.rfind(SHOW_CURSOR) > text.rfind(HIDE_CURSOR) >= 0
    last = text[text.rfind("grpo on addition") :]
    for part in ("done after", "50/50 steps", "100%", "reward", "steps/s", "decisions/s", "sample", "update"):
        assert part in last
    assert text.count("a note") == 1
    assert "(50 times)" in text
    assert 2 <= text.count("grpo on addition") <= 50


@pytest.mark.parametrize(
    ("arguments", "interrupt_after", "ending", "error"),
    [
        (["0.001", "raise"], b"", "stopped", "RuntimeError"),
        (["0.2"], b"1/50 steps", "interrupted", "KeyboardInterrupt"),
    ],
)
def test_terminal_is_restored_after_errors_and_interrupts(
    arguments: list[str], interrupt_after: bytes, ending: str, error: str
) -> None:
    text, code = on_a_terminal(arguments, interrupt_after)
    assert code != 0
    assert error in text
    assert f"{ending} after" in text
    assert text.rfind(SHOW_CURSOR) > text.rfind(HIDE_CURSOR) >= 0
    assert text.rfind(error) > text.rfind("steps/s")


# ---------------------------------------------------------------------------------------------------- elsewhere
def test_pipe_gets_a_plain_line_at_every_tenth() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run([sys.executable, "-c", RUN, "0"], env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    assert [line.split()[4] for line in lines if "step " in line and "alarm" not in line] == [
        f"{step}/50" for step in (0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
    ]
    assert "done after" in lines[-1]
    alarms = [line for line in lines if "alarm" in line]
    assert alarms == ["alarm: step 0: too easy", "alarm: step 9: too easy (10 times)"]


def test_reader_that_goes_away_does_not_stop_the_run() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    code = RUN + "\nprint('end', file=sys.stderr)\nos = __import__('os'); os._exit(0)"
    pipe = f'{sys.executable} -c "$0" 0.001 | head -n 1'
    done = subprocess.run(["bash", "-c", pipe, code], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.endswith("end\n")
    assert "Traceback" not in done.stderr


def test_plain_lines_come_every_half_minute_of_a_long_run() -> None:
    console, file = written_to()
    clock = Clock()
    with Display("long", 10**6, mode=Mode.PLAIN, console=console, clock=clock) as display:
        for _ in range(100):
            clock.now += 1.0
            display.step({}, SECONDS, 10)
    lines = file.getvalue().splitlines()
    assert len(lines) == 1 + 3 + 1
    assert lines[1] == "long: step 30/1000000 (0%), 1 steps/s, 10 decisions/s, 11 d 13 h left"
    assert lines[-1] == "long: step 100/1000000 (0%), done after 1:40, sample 60%, update 30%, other 10%"


def test_silent_display_writes_nothing_and_still_counts() -> None:
    console, file = written_to()
    with Display("quiet", 10, mode=Mode.SILENT, console=console) as display:
        for _ in range(10):
            display.step({"reward": 1.0}, SECONDS, 5)
        display.alarm("careful", stop=True)
        display.note("nothing")
        with display.timed("save"):
            pass
    assert file.getvalue() == ""
    assert display.seconds["sample"] == pytest.approx(6.0)
    assert set(display.seconds) == {"sample", "update", "save"}
    assert [noted.count for noted in display.noted.values()] == [1]


def test_mode_is_plain_unless_the_file_is_a_terminal() -> None:
    console, _ = written_to(terminal=True)
    assert Display("x", 1, console=console).mode is Mode.PLAIN


# ---------------------------------------------------------------------------------------------------- what it says
def frame_of(display: Display, now: float, width: int = 100, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=width, color_system=None).print(display.frame(now))
    file.flush()
    return file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_frame_has_rates_time_left_trend_and_shares() -> None:
    clock = Clock()
    display = Display("a", 100, mode=Mode.SILENT, console=written_to()[0], clock=clock)
    for step in range(40):
        clock.now += 0.5
        display.step({"reward": float(step)}, {"sample": 0.3, "update": 0.1}, 1000)
    text = frame_of(display, clock.now)
    for part in ("40/100 steps", "40%", "0:30 left", "2 steps/s", "2k decisions/s", "reward 34.5 ↗", "sample 60%"):
        assert part in text
    assert "update 20%" in text
    assert "other 20%" in text


def test_alarms_of_one_kind_share_a_line_and_old_kinds_make_room() -> None:
    display = Display("a", 10, mode=Mode.SILENT, console=written_to()[0])
    for step in range(7):
        display.alarm(f"{step}% of the groups had zero advantage")
    for kind in "abcdef":
        display.alarm("the same words", kind=kind)
    display.alarm("rewards are not finite", stop=True)
    lines = frame_of(display, 1.0).splitlines()
    assert lines[0] == "other kinds of alarm: 4"
    assert lines[1:5] == ["alarm: the same words"] * 3 + ["STOP: rewards are not finite"]
    assert display.noted["#% of the groups had zero advantage"].count == 7


@given(st.text(max_size=80), st.integers(20, 120), st.sampled_from(["utf-8", "ascii"]), st.floats())
def test_any_text_fits_any_terminal(text: str, width: int, encoding: str, value: float) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, height=12, force_terminal=True, color_system=None)
    with Display(text, 3, mode=Mode.LIVE, console=console, metric=text) as display:
        for _ in range(3):
            display.step({text: value}, {"sample": 0.1}, 10**9)
        display.alarm(text)
        display.note(text)
        file.flush()
        assert display.mode is Mode.LIVE
    shown = frame_of(display, 5.0, width, encoding)
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_loss_stands_in_until_the_metric_is_measured() -> None:
    display = Display("a", 10, mode=Mode.SILENT, console=written_to()[0])
    display.step({"ratio": 1.0, "loss/PolicyGradient": 0.75}, {})
    assert "loss/PolicyGradient 0.75" in frame_of(display, 1.0)
    display.step({"loss/PolicyGradient": 0.5, "reward": 3.0}, {})
    display.step({"loss/PolicyGradient": 0.25}, {})
    assert "reward 3 " in frame_of(display, 1.0)


def test_watched_metrics_stand_beside_the_curve() -> None:
    display = Display("a", 10, watched=("intervened", "cost"), mode=Mode.SILENT, console=written_to()[0])
    for step in range(4):
        display.step({"reward": 3.0, "intervened": 0.25, "ratio": 7.0} | ({"cost": 1.5} if step > 2 else {}), {})
        assert ("cost 1.5" in frame_of(display, 1.0)) == (step > 2), "shown where it is logged"
    assert "intervened 0.25" in frame_of(display, 1.0)
    assert "intervened 0.25, cost 1.5" in display.plain_line(1.0)
    assert "ratio" not in frame_of(display, 1.0)


def test_a_run_shows_what_its_parts_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assay.train("safe-rl-review", "hazards", steps=2, evaluations=1, out=tmp_path / "run", mode=Mode.PLAIN)
    shown = capsys.readouterr().out
    assert "cost " in shown
    assert "multiplier 0" in shown


def test_resumed_run_counts_only_its_own_steps() -> None:
    clock = Clock()
    display = Display("a", 100, first_step=90, mode=Mode.SILENT, console=written_to()[0], clock=clock)
    clock.now = 5.0
    display.step({}, {}, 10)
    assert "91/100 steps" in frame_of(display, clock.now)
    assert display.pace(clock.now) == pytest.approx((0.2, 2.0))


def test_phase_is_shown_while_it_runs() -> None:
    console, file = written_to(terminal=True)
    with Display("a", 10, mode=Mode.LIVE, console=console) as display, display.timed("evaluate"):
        assert "evaluate" in file.getvalue()
    assert display.seconds["evaluate"] > 0


def test_terminal_that_fails_silences_the_display() -> None:
    console, file = written_to(terminal=True)
    with Display("a", 10, mode=Mode.LIVE, console=console) as display:
        file.close()
        display.alarm("new")
        assert display.mode is Mode.SILENT
        display.step({}, SECONDS)
    assert display.done == 1


# ---------------------------------------------------------------------------------------------------- cost
@pytest.mark.parametrize("mode", list(Mode))
def test_step_without_redraw_costs_under_50_microseconds(mode: Mode) -> None:
    console, _ = written_to(terminal=mode is Mode.LIVE)
    metrics, tries = {"reward": 0.5, "loss": 1.0}, []
    with Display("a", 10**9, mode=mode, console=console) as display:
        for _ in range(5):
            display.due_time = float("inf")
            begin = time.perf_counter()
            for _ in range(1000):
                display.step(metrics, SECONDS, 100)
            tries.append((time.perf_counter() - begin) / 1000)
    assert min(tries) < 50e-6


def test_redraws_are_at_most_eight_a_second() -> None:
    clock = Clock()
    console, _ = written_to(terminal=True)
    drawn = []
    with Display("a", 1000, mode=Mode.LIVE, console=console, clock=clock) as display:
        for _ in range(1000):
            clock.now += 0.01
            display.step({}, {}, 1)
            drawn.append(display.marks[-1][0])
    assert len(set(drawn)) <= 8 * 10 + 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (42.4, "0:42"), (723, "12:03"), (11045, "3:04:05"), (183600, "2 d 3 h")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_large_rates_are_short() -> None:
    assert [short(value) for value in (0.25, 12.34, 12345, 4.5e6, 3e9)] == ["0.25", "12.3", "12.3k", "4.5M", "3G"]
