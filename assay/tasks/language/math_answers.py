"""Answers of mathematics compared by math-verify, in a process that can be killed.

Nothing in this process reads an answer as mathematics: 9^9^9^9 holds an interpreter until it is killed.
"""

from __future__ import annotations

import functools
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.extras import require
from assay.core.record import InfraFault, Outcome, PolicyFault, Score

SECONDS, START_SECONDS = 5.0, 120.0
MAX_ANSWER = 2000
"""Characters of an answer; a longer one is no answer."""
CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from math_verify import LatexExtractionConfig, parse, verify
print("ready", flush=True)
for line in sys.stdin:
    gold, given = ("$" + text + "$" for text in json.loads(line))
    how = {"extraction_config": [LatexExtractionConfig()], "parsing_timeout": None}
    try:
        found = parse(gold, **how), parse(given, **how)
        answer = bool(found[0] and found[1]) and bool(verify(*found, timeout_seconds=None))
    except Exception:
        answer = False
    print(json.dumps(answer), flush=True)
"""


class Child:
    """A process that compares answers; it is replaced after it was killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Starts the process; returns whether it came up."""
        path = [
            os.path.dirname(os.path.dirname(str(require("math_verify", "verify", "--verifier math-verify").__file__)))
        ]
        code = f"import sys; sys.path[:0] = {path!r}\n{CHILD}"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([sys.executable, "-c", code], env={"PATH": "/usr/bin:/bin"}, bufsize=0, **pipes)  # type: ignore[call-overload]
        return self.line(START_SECONDS) == b"ready\n"

    def line(self, seconds: float) -> bytes:
        """Returns the next line of the process; what there is of it if the time ran out or the process ended."""
        assert self.process is not None
        assert self.process.stdout is not None
        until, found = time.monotonic() + seconds, b""
        while not found.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                break
            some = os.read(self.process.stdout.fileno(), 4096)
            if not some:
                break
            found += some
        return found

    def compare(self, gold: str, given: str, seconds: float) -> Outcome:
        """Returns 1 if two answers are the same, else 0; a fault of the policy if the time ran out."""
        if (self.process is None or self.process.poll() is not None) and not self.start():
            self.stop()
            return InfraFault("the process of math-verify did not start")
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([gold, given]).encode() + b"\n")
            answer = self.line(seconds)
        except OSError:
            answer = b""
        if answer in (b"true\n", b"false\n"):
            return Score(float(answer == b"true\n"))
        self.stop()
        return PolicyFault("the answer takes too long or too much memory to compare")

    def stop(self) -> None:
        """Kills the process."""
        if self.process is not None:
            process, self.process = self.process, None
            process.kill()
            process.wait(timeout=10.0)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


@functools.cache
def child() -> Child:
    """Returns the process of this interpreter."""
    return Child()


def stated(completion: str) -> str | None:
    """Returns the answer that a completion states: in its last \\boxed{...}, else after its only "####", else its last
    line if it is the whole text or follows "answer is" or "answer:"; None if it states none, or several.

    Data around a number (quotes, keys of JSON, tags) is no answer: {"score": 1.0} does not state 1.
    """
    boxes = [match.end() for match in re.finditer(r"\\boxed\{", completion)]
    if boxes:
        found = braced(completion[boxes[-1] :])
    elif "####" in completion:
        found = completion.split("####")[1] if completion.count("####") == 1 else None
    else:
        last = completion.strip().rpartition("\n")[2]
        marked = re.search(r"answer(?: is|:)\s*(.{1,200})$", last[-300:], re.IGNORECASE)
        found = marked[1] if marked else last if last == completion.strip() else None
    if found is None:
        return None
    answer = found.strip().strip("$").rstrip(".").strip()
    is_odd = not answer or len(answer) > MAX_ANSWER or re.search(r"[\"'<>:;@`]|\\\\|\n", answer) is not None
    return None if is_odd else answer


def braced(text: str) -> str | None:
    """Returns the text up to the brace that closes the one before it; None if it stays open."""
    depth = 1
    for place, sign in enumerate(text[: MAX_ANSWER + 1]):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return text[:place]
    return None


@dataclass(frozen=True)
class MathVerify:
    """Compares the answer that a completion states with its row's, as mathematics: 1 if they are equal, else 0."""

    seconds: float = SECONDS

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        need_library()
        return [self.outcome(str(row["completion"]), str(row["answer"])) for row in rows]

    def outcome(self, completion: str, gold: str) -> Outcome:
        """Returns the outcome of one completion."""
        given = stated(completion)
        if given is None:
            return PolicyFault("no answer")
        return child().compare(gold.strip().strip("$"), given, self.seconds)


def need_library() -> None:
    """Refuses the verifier where its library is not installed."""
    require("math_verify", "verify", "--verifier math-verify")
