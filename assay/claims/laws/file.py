"""`assay check FILE.py`: recognises the contents of a user's file and runs the laws on them.

    reports = check_file(Path("mine.py"))               in this process: for trusted code
    reports = check_file_apart(Path("mine.py"), 120)    in its own process, with a time limit

In this process exceptions, `sys.exit`, wrong types and NaN become findings; an endless loop, or code that ends the
process (`os._exit`, a crash), stops the caller too. In its own process these become findings as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from assay.claims.laws.laws import Finding, raised
from assay.claims.laws.recognise import Thing, things_in
from assay.core.errors import AssayError
from assay.runs.user_code import loading

LOADING = 60.0
"""Seconds in which the libraries and the file are loaded, also where an object may take less."""
RECOGNISED = """Recognised are
  - a reward: a function of `rows` (dicts with prompt, completion, answer, ...), or of `completions` and other columns
  - a loss: a function of `logp`, `logp_old`, `advantage`, `mask` that returns a sum, (sum, count) or [B, T]
  - an advantage: a function of `reward` and `group` (one outcome each), or of `reward`, `group`, `mask` ([B, T])
  - parts: classes that inherit a slot of assay.core.slots, such as class Mine(Credit), and values of such classes
  - a Gymnasium environment: a class with reset and step
  - a partner with sessions: a value with `item`, `open` and `is_repeatable`
  - a network: a class of nn.Module that is made of the `shape` of an observation, or of a `vocab_size`
  - a Recipe, a METHOD, or a function recipe()
for example:
    def reward(rows):
        return [float(row["completion"] == row["answer"]) for row in rows]"""


@dataclass(frozen=True)
class Report:
    """The findings of the laws on one object of a file."""

    name: str
    kind: str
    findings: tuple[Finding, ...]

    @property
    def held(self) -> bool:
        """Returns whether every law held."""
        return all(finding.held for finding in self.findings)

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Returns the laws that broke."""
        return tuple(finding for finding in self.findings if not finding.held)

    def lines(self) -> list[str]:
        """Returns lines to print: what broke, on what input, and what held."""
        held = [finding.law for finding in self.findings if finding.held]
        head = f"{self.name} ({self.kind}): {len(held)} of {len(self.findings)} laws held"
        broken = [
            line
            for finding in self.broken
            for line in (
                f"  broke {finding.law}: {finding.detail}",
                *([f"    on {finding.input}"] if finding.input else []),
            )
        ]
        return [head, *broken, *([f"  held {', '.join(held)}"] if held else [])]


# ---------------------------------------------------------------------------------------------------- loading
def load(path: Path) -> ModuleType:
    """Imports the file as a run does; AssayError in one sentence if that fails."""
    if not path.is_file():
        raise AssayError(f"{path} does not exist. Name a Python file with your loss, credit, reward or environment.")
    if path.suffix != ".py":
        raise AssayError(f"{path} is not a Python file. Its name must end in .py.")
    return loading.load(str(path.resolve()))


# ---------------------------------------------------------------------------------------------------- checking
def check_file(path: Path) -> list[Report]:
    """Reports on everything in the file that is recognised, in this process; AssayError if nothing is."""
    path = Path(path)
    return [report_on(thing) for thing in recognised(path)]


def recognised(path: Path) -> list[Thing]:
    """Returns the recognised objects of the file; AssayError lists what is recognised if there are none."""
    things = list(things_in(load(path)))
    if not things:
        raise AssayError(f"nothing in {path} is recognised. {RECOGNISED}")
    return things


def report_on(thing: Thing) -> Report:
    """Runs the laws on one object; contains its exceptions and its changes of torch's settings."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    try:
        found = thing.check()
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, AssayError) else f"it {raised(error)}"
        found = [Finding("runs", False, text)]
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
    return Report(thing.name, thing.kind, tuple(found))


def check_file_apart(path: Path, seconds: float = 120.0) -> list[Report]:
    """Runs `check_file` in its own process, each object for at most `seconds`; a hang or a crash is a finding."""
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        out = Path(folder) / "reports.jsonl"
        code = "from assay.claims.laws.file import write_reports; write_reports()"
        root = str(Path(__file__).resolve().parents[3])  # above the package: its rooms are not modules of Python's
        paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(out)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": paths},
            start_new_session=True,
        ) as child:
            try:
                ended = waited(child, out, seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return read_reports(path, lines, ended)


def waited(child: subprocess.Popen[bytes], out: Path, seconds: float) -> str:
    """Returns how the child ended. The time counts from its last line; loading has at least `LOADING` seconds."""
    written, since = 0, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return f"ended the process with exit code {child.wait(0.2)}"
        size, now = out.stat().st_size if out.exists() else 0, time.monotonic()
        if size != written:
            written, since = size, now
        if now - since > (seconds if written else max(seconds, LOADING)):
            return f"is still running after {seconds:g} s"


def write_reports() -> None:
    """Runs in the child: writes one line when a check starts and one with its report; discards other output."""
    path, out = Path(sys.argv[1]), Path(sys.argv[2])
    sys.argv = [str(path)]
    with out.open("w") as stream:

        def write(**facts: Any) -> None:
            stream.write(json.dumps(facts) + "\n")
            stream.flush()

        try:
            things = recognised(path)
        except AssayError as error:
            write(error=str(error))
            return
        for thing in things:
            write(begun=[thing.name, thing.kind])
            write(findings=[asdict(finding) for finding in report_on(thing).findings])
        write(done=True)


def read_reports(path: Path, lines: Sequence[dict[str, Any]], ended: str) -> list[Report]:
    """Returns in the parent the reports received, and one for the object that did not return."""
    reports: list[Report] = []
    begun: tuple[str, str] | None = None
    for line in lines:
        if "error" in line:
            raise AssayError(line["error"])
        if "begun" in line:
            begun = (line["begun"][0], line["begun"][1])
        elif "findings" in line and begun is not None:
            reports.append(Report(*begun, tuple(Finding(**finding) for finding in line["findings"])))
            begun = None
    if begun is not None:
        return [*reports, Report(*begun, (Finding("returns", False, f"every call returns; here it {ended}"),))]
    if not lines or "done" not in lines[-1]:
        raise AssayError(f"{path} {ended} while it was loaded. Keep the work at import short.")
    return reports
