"""Live progress of a run: steps, speed, time left, score, time per phase, alarms.

On a terminal a few lines are redrawn in place, at most eight times a second and for at most 2 % of the time; elsewhere
a plain line is written at every tenth of the run and every half minute; `Mode.SILENT` writes nothing. No thread is
started: the display is updated by calls on a step, a phase or an alarm. A lost terminal silences the display and never
stops the run.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from assay.runs.terminal import ASCII_SPARKS, SPARKS, Trace
from assay.runs.terminal_curves import printable
from assay.statistics.intervals import number

REFRESH_SECONDS, REFRESH_SHARE = 1 / 8, 0.02
PLAIN_SECONDS, PLAIN_SHARE = 30.0, 0.1
SHOWN_ALARMS, ALARM_CHARACTERS = 4, 400
PHASE_COLOURS = {
    "sample": "cyan", "reward": "yellow", "credit": "magenta", "update": "green", "evaluate": "blue", "save": "red",
}  # fmt: skip
TRENDS, ASCII_TRENDS = {1: "↗", 0: "→", -1: "↘"}, {1: "up", 0: "level", -1: "down"}


class Mode(Enum):
    """Modes of a display."""

    LIVE = "redrawn in place"
    PLAIN = "an occasional plain line"
    SILENT = "nothing"


def suitable_mode(console: Console) -> Mode:
    """Returns LIVE on a terminal that can move its cursor, PLAIN elsewhere, whatever the colour variables say."""
    return Mode.LIVE if console.is_interactive and console.file.isatty() else Mode.PLAIN


@dataclass
class Noted:
    """One kind of alarm: its latest text, its count, and whether it stops the run."""

    text: str
    count: int = 0
    stop: bool = False


class Display:
    """Shows a run; a context manager that restores the terminal, also after an exception.

    `metric` is shown with a trend; until it is measured, the first loss is shown. Beside it stand the metrics that are
    `watched`, by their names. `first_step` is the step from which a run is resumed. `noted` and `seconds` hold the
    alarms and the time per phase for the run's README.
    """

    def __init__(
        self,
        title: str,
        num_steps: int,
        *,
        first_step: int = 0,
        metric: str = "reward",
        watched: Collection[str] = (),
        mode: Mode | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.console = console or Console()
        self.mode = mode or suitable_mode(self.console)
        self.title, self.metric = printable(title, 80, self.console.encoding), metric
        self.num_steps, self.first_step, self.done, self.decisions = num_steps, first_step, first_step, 0
        self.trace, self.seconds, self.noted = Trace(), dict[str, float](), dict[str, Noted]()
        self.watched, self.beside = watched, dict[str, Trace]()
        self.is_ascii = not self.console.encoding.lower().startswith("utf")
        self.phase = self.ending = self.shown = ""
        self.clock, self.start = clock, clock()
        self.marks = deque([(self.start, self.done, 0)], maxlen=240)
        self.due_time, self.due_step = self.start, 0
        self.live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")

    # ------------------------------------------------------------------------------------------------ called by the run
    def __enter__(self) -> Self:
        if self.mode is Mode.LIVE:
            with self.unless_gone():
                self.live.start()
        self.show()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.phase = ""
        self.ending = "done" if kind is None else "interrupted" if kind is KeyboardInterrupt else "stopped"
        try:
            self.show()
        finally:
            with suppress(OSError, ValueError):
                self.live.stop()

    def step(self, metrics: Mapping[str, float], seconds: Mapping[str, float], decisions: int = 0) -> None:
        """Counts a step; redraws only when that is due."""
        self.done += 1
        self.decisions += decisions
        for phase, spent in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent
        if self.shown != self.metric and self.metric in metrics:
            self.shown, self.trace = self.metric, Trace()
        elif not self.shown:
            self.shown = next((name for name in metrics if name.startswith("loss")), "")
        if self.shown in metrics:
            self.trace.push(metrics[self.shown])
        for name in self.watched:
            if name in metrics:
                self.beside.setdefault(name, Trace()).push(metrics[name])
        if self.clock() >= self.due_time or self.done >= self.due_step > 0:
            self.show()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Shows that a phase is running (evaluate, save) and adds its time."""
        begin = self.clock()
        self.phase = printable(phase, 40, self.console.encoding)
        if self.mode is Mode.LIVE:
            self.show()
        try:
            yield
        finally:
            self.phase = ""
            self.seconds[phase] = self.seconds.get(phase, 0.0) + self.clock() - begin

    def alarm(self, text: str, stop: bool = False, kind: str = "") -> None:
        """Shows an alarm; alarms of one kind (else of one text, ignoring numbers) share a line with a count."""
        key = kind or re.sub(r"[\d.]+", "#", text)
        noted = self.noted.setdefault(key, Noted(""))
        noted.text, noted.count, noted.stop = text, noted.count + 1, noted.stop or stop
        if self.mode is Mode.PLAIN and (stop or math.log10(noted.count).is_integer()):
            self.write(self.alarm_text(noted))
        elif self.mode is Mode.LIVE and (noted.count == 1 or stop):
            self.show()

    def note(self, text: str) -> None:
        """Prints a permanent line above the display."""
        shown = printable(text, ALARM_CHARACTERS, self.console.encoding)
        if self.mode is Mode.LIVE:
            with self.unless_gone():
                self.console.print(Text(shown))
        elif self.mode is Mode.PLAIN:
            self.write(shown)

    # ------------------------------------------------------------------------------------------------ shown
    def show(self) -> None:
        """Redraws or writes a line, and schedules the next one."""
        now = self.clock()
        if self.mode is Mode.SILENT:
            self.due_time, self.due_step = math.inf, 0
        elif self.mode is Mode.PLAIN:
            self.write(self.plain_line(now))
            part = max(1.0, self.num_steps * PLAIN_SHARE)
            due = math.ceil((math.floor(self.done / part + 1e-9) + 1) * part - 1e-9)
            self.due_step, self.due_time = due if due < self.num_steps else 0, now + PLAIN_SECONDS
        else:
            frame = self.frame(now)
            with self.unless_gone():
                self.live.update(frame, refresh=True)
            self.due_time = now + max(REFRESH_SECONDS, (self.clock() - now) / REFRESH_SHARE)
        self.marks.append((now, self.done, self.decisions))

    @contextmanager
    def unless_gone(self) -> Iterator[None]:
        """Silences the display if writing to the terminal fails inside."""
        try:
            yield
        except (OSError, ValueError):
            self.mode = Mode.SILENT

    def write(self, line: str) -> None:
        """Writes one plain line without control codes."""
        with self.unless_gone():
            self.console.file.write(f"{line}\n")
            self.console.file.flush()

    def frame(self, now: float) -> Group:
        """Returns the lines that are redrawn on a terminal."""
        width = self.console.width
        lines = [self.bar_line(now, width), self.metric_line(now, width), self.time_line(now, width)]
        lines.insert(0, Text.assemble((self.title, "bold"), "  ", (self.state(now), "dim")))
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        return Group(*self.alarm_lines(width), *(line for line in lines if line.plain))

    def alarm_lines(self, width: int) -> list[Text]:
        """Returns the newest kinds of alarm that fit above the bar, and the number of the others."""
        shown: list[Text] = []
        room = self.console.height - 7
        for noted in reversed(self.noted.values()):
            text = Text(self.alarm_text(noted), style="bold red" if noted.stop else "yellow")
            room -= math.ceil(text.cell_len / width)
            if len(shown) == SHOWN_ALARMS or (room < 0 and shown):
                break
            shown.insert(0, text)
        hidden = len(self.noted) - len(shown)
        return ([Text(f"other kinds of alarm: {hidden}", style="yellow")] if hidden else []) + shown

    def state(self, now: float) -> str:
        """Returns the running time and the current phase."""
        passed = duration(now - self.start)
        return f"{self.ending} after {passed}" if self.ending else f"{passed}  {self.phase}"

    def bar_line(self, now: float, width: int) -> Text:
        """Returns the bar, the count of steps, the share and the time left."""
        share = min(1.0, self.done / self.num_steps) if self.num_steps else 0.0
        words = f"  {self.done}/{self.num_steps} steps  {share:.0%}  {self.time_left(now)}"
        length = max(5, min(40, width - len(words)))
        full = round(share * length)
        filled, empty = ("#", ".") if self.is_ascii else ("━", "━")
        return Text.assemble((filled * full, "green"), (empty * (length - full), "bright_black"), words)

    def metric_line(self, now: float, width: int) -> Text:
        """Returns the metric with trend and sparkline, then the rates."""
        line = Text()
        if self.trace.last:
            trends, sparks = (ASCII_TRENDS, ASCII_SPARKS) if self.is_ascii else (TRENDS, SPARKS)
            line.append(f"{printable(self.shown, 30, self.console.encoding)} ")
            line.append(f"{number(self.trace.level)} {trends[self.trace.trend]}", style="bold")
            line.append(f"  {self.trace.sparkline(min(24, max(6, width - 64)), sparks)}  ", style="cyan")
        line.append("".join(f"{words}  " for words in self.beside_words()))
        return line.append(self.rates(now))

    def beside_words(self) -> list[str]:
        """Returns each watched metric that was logged, with its level."""
        encoding = self.console.encoding
        return [f"{printable(name, 30, encoding)} {number(trace.level)}" for name, trace in self.beside.items()]

    def time_line(self, now: float, width: int) -> Text:
        """Returns the shares of time per phase, also as a bar if there is room and colour."""
        shares = self.shares(now)
        line = Text.assemble(("time  ", "dim")) if shares else Text()
        for phase, share in shares.items():
            line.append(f"{phase} {share:.0%}  ", style=PHASE_COLOURS.get(phase, "bright_black"))
        room = min(24, width - len(line.plain) - 1)
        if room >= 10 and not self.is_ascii and self.console.color_system is not None:
            for phase, share in shares.items():
                line.append("█" * round(share * room), style=PHASE_COLOURS.get(phase, "bright_black"))
        return line

    def plain_line(self, now: float) -> str:
        """Returns the progress in one line of words."""
        share = f" ({min(1.0, self.done / self.num_steps):.0%})" if self.num_steps else ""
        words = [f"{self.title}: step {self.done}/{self.num_steps}{share}"]
        if self.trace.last:
            words.append(f"{printable(self.shown, 30, self.console.encoding)} {number(self.trace.level)}")
        words += self.beside_words()
        if self.ending:
            words += [self.state(now), *(f"{phase} {part:.0%}" for phase, part in self.shares(now).items())]
        else:
            words += [part for part in (self.rates(now), self.time_left(now)) if part]
        return ", ".join(words)

    def alarm_text(self, noted: Noted) -> str:
        """Returns the latest text of one kind of alarm and its count."""
        text = printable(noted.text, ALARM_CHARACTERS, self.console.encoding)
        times = f" ({noted.count} times)" if noted.count > 1 else ""
        return f"{'STOP' if noted.stop else 'alarm'}: {text}{times}"

    # ------------------------------------------------------------------------------------------------ rates
    def pace(self, now: float) -> tuple[float, float]:
        """Returns steps and decisions per second: recent ones during the run, over the whole run at its end."""
        begin, step, decisions = (self.start, self.first_step, 0) if self.ending else self.marks[0]
        passed = now - begin
        return ((self.done - step) / passed, (self.decisions - decisions) / passed) if passed > 0 else (0.0, 0.0)

    def rates(self, now: float) -> str:
        """Returns the pace in words."""
        steps, decisions = self.pace(now)
        words = f"{short(steps)} steps/s" if steps else ""
        return words + (f", {short(decisions)} decisions/s" if decisions else "")

    def time_left(self, now: float) -> str:
        """Returns the time left at the present rate; "" before the first step and after the last."""
        steps, left = self.pace(now)[0], self.num_steps - self.done
        return f"{duration(left / steps)} left" if steps > 0 and left > 0 and not self.ending else ""

    def shares(self, now: float) -> dict[str, float]:
        """Returns the share of each phase in the elapsed time; the rest is `other`, if it is 1 % or more."""
        total = max(now - self.start, sum(self.seconds.values()), 1e-9)
        shares = {phase: spent / total for phase, spent in self.seconds.items() if spent >= 0.005 * total}
        other = 1.0 - sum(self.seconds.values()) / total
        return shares | ({"other": other} if shares and other >= 0.01 else {})


def duration(seconds: float) -> str:
    """Formats seconds: 0:42, 12:03, 3:04:05, 2 d 3 h."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def short(value: float) -> str:
    """Formats a number: 12.3k, 4.5M."""
    size, letter = next((pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= pair[0]), (1.0, ""))
    return f"{value / size:.3g}{letter}"
