"""Finds code blocks of the documentation, and the commands in them.

A block of a shell is checked line by line without running it (`dry.py`), unless a comment before it says to run it:

    <!-- test: run with --steps 2, exit code 1 -->

`with` adds words to each command, `exit code` is what each returns, if not 0. Blocks of Python are all run, those of a
page one after another in one namespace. One that has a title, begins with `# NAME.py` or writes `Path("NAME.py")` is a
file of that name for all commands of its page.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FENCED = re.compile(
    r"^(?:<!-- test: (?P<marker>[^>]*) -->\n+)?^```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S
)
TITLE = re.compile(r'title="([^"]*)"')
NAMED = re.compile(r"\A# (\w+\.py)\n")
WRITTEN = re.compile(r'Path\("(\w+\.py)"\)\.write_text\(\'\'\'\n(.*?)\'\'\'\)', re.S)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}[^\n]*\n)+")
MARKER = re.compile(r"run(?: with (?P<words>[^,]*))?(?:, exit code (?P<code>\d+))?")
SHELL = ("bash", "sh", "")


@dataclass(frozen=True)
class Block:
    """One code block: its page, first line, language, what follows the language, marker and text."""

    page: str
    line: int
    language: str
    info: str
    marker: str
    text: str

    @property
    def files(self) -> dict[str, str]:
        """The files that it is or writes, by name."""
        titles = [found[1] for found in (TITLE.search(self.info), NAMED.match(self.text)) if found]
        return dict.fromkeys(titles, self.text) | dict(WRITTEN.findall(self.text))

    @property
    def is_run(self) -> bool:
        """True if its commands are run."""
        return bool(self.marker)

    @property
    def more(self) -> list[str]:
        """Words that the marker adds to each command."""
        return shlex.split(self.matched["words"] or "")

    @property
    def exit_code(self) -> int:
        """What each command returns."""
        return int(self.matched["code"] or 0)

    @property
    def matched(self) -> re.Match[str]:
        """The marker, taken apart; a marker with a mistake is an error."""
        found = MARKER.fullmatch(self.marker.strip())
        assert found, f"{self.page}:{self.line}: unknown marker '{self.marker}'"
        return found

    def commands(self) -> list[str]:
        """Returns the commands of a shell block: lines joined at a backslash, without comments."""
        if self.language not in SHELL:
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [joined for line in lines if (joined := shlex.join(shlex.split(line, comments=True)))]


def blocks_of(path: Path) -> list[Block]:
    """Returns the blocks of a page in order; an indented block counts as one of a shell if it begins with a command."""
    text, name = path.read_text(), path.relative_to(ROOT).as_posix()
    found = []
    for match in FENCED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(name, line, match["language"], match["info"], match["marker"] or "", match["text"]))
    rest = FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in INDENTED.finditer(rest):
        body = "\n".join(line[4:] for line in match[0].splitlines())
        if re.match(r"(assay|make|pip|python) ", body):
            found.append(Block(name, rest.count("\n", 0, match.start()) + 1, "sh", "", "", body))
    return sorted(found, key=lambda block: block.line)


def python_of(path: Path) -> list[Block]:
    """Returns the blocks of Python of a page."""
    return [block for block in blocks_of(path) if block.language == "python"]
