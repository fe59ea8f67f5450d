"""One episode of an agent: a program that is run, or an address that is asked, with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay.core.errors import AssayError

OUTPUT, RESULT, ENVIRONMENT = 1 << 16, 1 << 20, 100_000
"""Bytes that are kept of what a program prints (the last ones), of its result, and of an item in the environment."""
POLL = 0.1
"""Seconds between looks at whether the run stops."""


@dataclass(frozen=True)
class Left:
    """What an episode left: its result and its output as text; or why it failed ("" if it did not), and whether it ran
    out of time.
    """

    result: str = ""
    output: str = ""
    failure: str = ""
    is_late: bool = False


@dataclass(frozen=True)
class Episode:
    """What a program is told: the address of the policy, the key that names its session, the row, and a seed."""

    url: str
    key: str
    item: Mapping[str, Any]
    seed: int
    seconds: float


def is_address(command: str) -> bool:
    """Returns whether an agent is an address and no program."""
    return command.startswith(("http://", "https://"))


def words_of(command: str) -> list[str]:
    """Returns the words of a command; AssayError if its program or a script among them is not there."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise AssayError(f"--agent is {command!a}, which is no command ({error}). Quote it as a shell does.") from None
    if not words:
        raise AssayError('--agent is empty. Use a command such as "python my_agent.py", or an address.')
    if shutil.which(words[0]) is None:
        raise AssayError(f"--agent: there is no program '{words[0]}'. Use a command such as \"python my_agent.py\".")
    missing = [word for word in words[1:] if word.endswith((".py", ".sh", ".js")) and not Path(word).is_file()]
    if missing:
        raise AssayError(f"--agent: there is no file '{missing[0]}'. Fix the path.")
    return words


def check_agent(command: str) -> None:
    """Refuses an agent that cannot be run or asked."""
    if not is_address(command):
        words_of(command)
        return
    try:
        at = urlsplit(command)
        is_good = bool(at.hostname) and at.username is None and (at.port is None or at.port > 0)
    except ValueError:
        is_good = False
    if not is_good:
        raise AssayError(f"--agent is {command!a}, which is no address. Use http://HOST:PORT/PATH.")


def anchored(command: str) -> str:
    """Returns a command with absolute paths of the files that it names, so that it can be run from any folder."""
    if is_address(command):
        return command
    words = shlex.split(command)
    return shlex.join(word if not Path(word).is_file() else str(Path(word).absolute()) for word in words)


def play_episode(command: str, episode: Episode, stopping: threading.Event) -> Left:
    """Runs the program, or asks the address, until it ends, its time is over, or the run stops."""
    return ask_address(command, episode) if is_address(command) else run_program(command, episode, stopping)


# ---------------------------------------------------------------------------------------------------- a program
def run_program(command: str, episode: Episode, stopping: threading.Event) -> Left:
    """Runs the program in a process group of its own, which is killed as a whole when the program has ended."""
    with tempfile.TemporaryDirectory(prefix="assay-agent-", ignore_cleanup_errors=True) as folder:
        told, result = json.dumps(dict(episode.item), default=str), Path(folder) / "result"
        (Path(folder) / "item.json").write_text(told)
        told = told if len(told) <= ENVIRONMENT else ""  # the kernel refuses a longer entry
        own = {
            "OPENAI_BASE_URL": f"{episode.url}/v1", "OPENAI_API_BASE": f"{episode.url}/v1",
            "OPENAI_API_KEY": episode.key, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
            "ASSAY_RESULT": str(result), "ASSAY_ITEM_FILE": str(Path(folder) / "item.json"),
            "ASSAY_SEED": str(episode.seed), **({"ASSAY_ITEM": told} if told else {}),
        }  # fmt: skip
        with_parent = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        try:
            process = subprocess.Popen(
                [*with_parent, *shlex.split(command)], env={**os.environ, **own}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return Left(failure=f"could not be started ({error})")
        output, is_late = followed(process, episode.seconds, stopping)
        status, shown = process.returncode, output.decode(errors="replace")
        if stopping.is_set():
            return Left(output=shown, failure="was stopped with the run")
        if is_late:
            return Left(output=shown, failure=f"did not end within {episode.seconds:g} s", is_late=True)
        if status:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            return Left(output=shown, failure=how)
        return Left(read_result(result), shown)


def followed(process: subprocess.Popen[bytes], seconds: float, stopping: threading.Event) -> tuple[bytes, bool]:
    """Reads what a program prints until it ends; returns the last of it, and whether its time was over."""
    until, kept, is_late = time.monotonic() + seconds, b"", False
    pipe, is_open = process.stdout, True
    assert pipe is not None
    while not has_ended(process) and not stopping.is_set() and not is_late:
        is_late = time.monotonic() > until
        if is_open and select.select([pipe], [], [], POLL)[0]:
            more = os.read(pipe.fileno(), OUTPUT)
            is_open, kept = bool(more), (kept + more)[-OUTPUT:]
        elif not is_open:
            time.sleep(POLL / 10)
    while is_open and len(kept) < 2 * OUTPUT and select.select([pipe], [], [], 0)[0]:
        more = os.read(pipe.fileno(), OUTPUT)
        is_open, kept = bool(more), kept + more
    with contextlib.suppress(ProcessLookupError, PermissionError):  # before it is reaped: its number is its own
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10.0)
    pipe.close()
    return kept[-OUTPUT:], is_late


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether a program has ended, and leaves it unreaped."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def read_result(path: Path) -> str:
    """Returns the text of a result, at most `RESULT` bytes; "" if there is no plain file."""
    try:
        place = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(place, "rb") as file:
        return file.read(RESULT).decode(errors="replace") if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else ""


# ---------------------------------------------------------------------------------------------------- an address
def ask_address(url: str, episode: Episode) -> Left:
    """Posts the episode to an address; its answer is a JSON object, `result` in it what the episode left."""
    at, until = urlsplit(url), time.monotonic() + episode.seconds
    kind = HTTPSConnection if at.scheme == "https" else HTTPConnection
    link = kind(at.hostname or "", at.port, timeout=episode.seconds)
    told = {"item": dict(episode.item), "base_url": f"{episode.url}/v1", "api_key": episode.key, "seed": episode.seed}
    try:
        path = (at.path or "/") + (f"?{at.query}" if at.query else "")
        link.request("POST", path, json.dumps(told, default=str).encode(), {"Content-Type": "application/json"})
        answer, sent = link.getresponse(), b""
        while len(sent) <= RESULT and (more := answer.read1(1 << 16)):
            sent += more
            if time.monotonic() > until:
                raise TimeoutError
    except TimeoutError:
        return Left(failure=f"did not answer within {episode.seconds:g} s", is_late=True)
    except (OSError, HTTPException) as error:
        return Left(failure=f"does not answer: {str(error) or type(error).__name__}")
    finally:
        link.close()
    if answer.status != 200:
        return Left(output=sent[:OUTPUT].decode(errors="replace"), failure=f"answers {answer.status}")
    return read_answer(sent)


def read_answer(sent: bytes) -> Left:
    """Returns what an address answered; a failure if it is too long, no JSON object, or has a NaN."""
    shown = sent[:OUTPUT].decode(errors="replace")
    if len(sent) > RESULT:
        return Left(output=shown, failure=f"answers with more than {RESULT:,} bytes")
    try:
        told = json.loads(sent, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        return Left(output=shown, failure="answers no JSON object (or one with NaN)")
    result = told.get("result", "")
    return Left(result if isinstance(result, str) else json.dumps(result), shown)


def refuse_constant(name: str) -> float:
    """Refuses NaN and infinities, which JSON does not have."""
    raise ValueError(name)
