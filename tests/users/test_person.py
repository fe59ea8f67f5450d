"""What a person sees: a run in a real terminal, stopped by Ctrl-C; its page and the site in a real browser."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import time
from pathlib import Path

import pytest

from assay.cli.main import main
from tests import warm
from tests.cli.browser import Browser, binary
from tests.cli.test_page import make_run

SITE = Path(__file__).parents[2] / "site" / "index.html"
GIF = bytes.fromhex("47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b")
needs_browser = pytest.mark.skipif(binary() is None, reason="no Chromium or Chrome on this machine")


class Terminal:
    """A process in a pseudo-terminal of 100 columns."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.ours, theirs = pty.openpty()
        shown = os.environ | {"COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
        shown.pop("NO_COLOR", None)
        # the first of a session that opens the terminal has it as its own, so that Ctrl-C is a signal there
        program = f"import os; os.open(os.ttyname(0), os.O_RDWR); {warm.COMMAND}"
        self.process = warm.Process(program, *words, folder=folder, environment=shown, ends=(theirs, theirs, theirs))
        os.close(theirs)
        self.seen = ""

    def until(self, pattern: str, within: float = 240.0) -> None:
        """Reads until the text so far has the pattern, or the process ends."""
        end = time.monotonic() + within
        while not re.search(pattern, self.seen) and time.monotonic() < end:
            if select.select([self.ours], [], [], 1.0)[0]:
                try:
                    block = os.read(self.ours, 1 << 16)
                except OSError:  # the other end is closed
                    return
                self.seen += block.decode(errors="replace")

    def wait(self) -> int:
        """Reads to the end and returns the exit code."""
        self.until("(?!)")
        os.close(self.ours)
        return self.process.ended(60)[0]


def plain(text: str) -> str:
    """Returns what was drawn, without control codes."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_run_in_a_terminal_is_stopped_by_ctrl_c_and_says_how_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "reinforce", "--task", "bandit", "--steps", "100000000", "--evaluations", "0", "--out", "my run"]
    terminal = Terminal(words, tmp_path)
    terminal.until(r"[1-9][0-9,]*/100,?000,?000")
    os.write(terminal.ours, b"\x03")
    assert terminal.wait() == 130, plain(terminal.seen)
    assert "\x1b[" in terminal.seen, "a terminal gets colours and a line that is drawn over"
    told = plain(terminal.seen)
    assert "Traceback" not in told
    (command,) = re.findall(r"assay (resume .*?)\r?\n", told)
    assert shlex.split(command) == ["resume", "my run"]
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "my run", "--starts", "2", "--json"]) == 0, "what was saved can be used"


@needs_browser
def test_the_page_of_a_run_shows_its_films_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path / "run")
    (folder / "video").mkdir()
    (folder / "video" / "episode-0.gif").write_bytes(GIF)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "run", "--json"]) == 0
    with Browser() as browser:
        for dark, width in ((False, 1280), (True, 390)):
            browser.open((tmp_path / "report.html").as_uri(), dark=dark, width=width)
            assert browser.complaints() == []
            assert browser.run("document.querySelector('#videos h2').textContent") == "Videos"
            browser.until("document.querySelector('#videos img').complete")
            assert browser.run("document.querySelector('#videos img').naturalWidth") == 1
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), "it fits the window"


@needs_browser
@pytest.mark.skipif(not SITE.is_file(), reason="the site is not built here: make docs")
def test_the_site_opens_in_a_browser() -> None:
    with Browser() as browser:
        browser.call("Page.navigate", url=SITE.as_uri())
        browser.until("document.readyState === 'complete' && document.querySelector('h1') !== null")
        assert browser.run("document.querySelectorAll('nav a').length") > 10
