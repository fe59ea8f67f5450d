"""A judge: a chat model behind an OpenAI-compatible server, or a function of prompts, that scores completions.

A number is what the judge said and nothing else: a row whose answer does not end with a score has none and is left out;
a server that cannot be reached, or many such answers, are an error that names the server. Answers with a score are kept
on disk, one JSON object a line, so that a text is judged once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay.core.calls import Overtime, OwnCodeError, within
from assay.core.errors import AssayError
from assay.core.faults import at_place
from assay.core.record import InfraFault
from assay.rollouts.judgements import PAIR, preference
from assay.runs.user_code.addresses import Address, parsed_address
from assay.runs.user_code.rewards import function_of
from assay.runs.user_code.workers.process import Limits
from assay.runs.user_code.workers.remote import RemoteFunction, remote_function

KEY = "ASSAY_JUDGE_KEY"
"""Environment variable with the API key; it is never written down."""
CACHE = "ASSAY_JUDGE_CACHE"
"""Environment variable with the folder of kept answers (default: ~/.cache/assay/judge)."""
THREADS, TRIES, SECONDS, ALL_SECONDS = 8, 5, 120.0, 240.0
"""Requests at the same time, tries of one, and seconds for one try and for all tries of one prompt."""
MOST_BYTES = 1 << 22
"""The largest answer that is read."""
MOST_UNREAD = 0.2
"""The largest share of answers without a score; such a row has no reward, it is left out of training and of scores."""
WAIT = 0.5
"""Seconds before the second try; each further wait is twice as long."""
SCORE = """Rate how well the answer solves the task, from 0 (useless) to 10 (perfect).

Task:
{prompt}

Answer:
{completion}

End with the line "Score: N"."""
NUMBER = r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)"
STATED = re.compile(
    rf"\bscore[\"'*_:=\s]{{1,6}}{NUMBER}(?:\s?(?:/|out of)\s?{NUMBER})?[\"'*_`.)}}\]\s]*\Z", re.IGNORECASE
)
"""The end of an answer with a score: "Score: 7", "**Score:** 7.5/10", {"score": 7}."""
LAST = 200
"""Characters at the end of an answer in which the score is looked for."""
PREFIX = "judge:"
"""Begins the name of a judge among the sources of own code."""


def address_of(word: str) -> Address | None:
    """Returns where a judge's function is, FILE.py:NAME or package.module:NAME; None for the address of a server."""
    return None if "://" in word else parsed_address(word)


def check_judge(word: str) -> None:
    """Refuses a judge that is neither a function nor a server, or whose address has a password in it."""
    if address_of(word) is None:
        check_url(word)


def check_url(url: str) -> None:
    """Refuses an address that is not that of a web server, or has a password in it."""
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and parts.hostname and not parts.username and parts.port != 0
    except ValueError:  # a port out of range, or a bracket without its partner
        is_server = False
    if not is_server:
        raise AssayError(f"--judge is '{url}'. Use a server, such as http://localhost:8000/v1, or FILE.py:NAME.")


def seal(url: str, prompt: str) -> dict[str, str]:
    """Returns digests of what a run sends and trusts: the rubric, and the key together with the address.

    A received run folder that names another server does not have this digest, so it never gets the key.
    """
    key = os.environ.get(KEY, "")
    sealed = hashlib.sha256(f"{url}\n{key}".encode()).hexdigest()[:16] if key else "none"
    return {"key": sealed, "prompt": hashlib.sha256(prompt.encode()).hexdigest()[:16]}


def rubric(path: str | None, pairs: bool) -> str:
    """Returns the prompt of the judge: a file's text, or the built-in one. AssayError if it lacks a placeholder."""
    if path is None:
        return PAIR if pairs else SCORE
    file = Path(path)
    if not file.is_file():
        raise AssayError(f"--judge-prompt: there is no file '{path}'. Check the path (relative to {Path.cwd()}).")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise AssayError(f"--judge-prompt {path} is not UTF-8. Save it as a text file in UTF-8.") from None
    for name in ("first", "second") if pairs else ("completion",):
        if f"{{{name}}}" not in text:
            raise AssayError(f"--judge-prompt {path} does not contain {{{name}}}, where the answer is to stand.")
    return text


class Declined(AssayError):
    """A server's answer that is an error or a redirect."""

    def __init__(self, status: int, place: str, body: bytes) -> None:
        what = f"it redirects to {place[:200]!a}; name that address" if place else repr(body.decode(errors="replace"))
        super().__init__(f"HTTP {status}: {what}")
        self.status = status


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would send the key along, and take an answer from elsewhere for the judge's."""

    def redirect_request(self, *told: Any) -> None:
        """Returns None, which makes the redirect an error."""


@dataclass(frozen=True)
class Judge:
    """Scores completions by the answers of a chat model, as a component of a reward.

    Score: the number after "Score:" with which the answer ends, divided by `scale`; it must be from 0 to `scale`, and
    what it is out of, if that is said, must be `scale`. With `pairs`: 1 if the completion is found better than the
    row's own answer, 0 if worse, 1/2 for a tie, as the mean of both orders, so that a preference for a place cancels
    out.
    """

    url: str
    model: str
    prompt: str = field(default=SCORE, repr=False)
    pairs: bool = False
    scale: float = 10.0
    known: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> list[float | InfraFault | None]:
        """Returns the score of each row, or a fault where the answer cannot be read. OwnCodeError names the server if
        answers are missing, or if more than `MOST_UNREAD` of them cannot be read.
        """
        if not self.pairs:
            answers = self.answers([filled(self.prompt, row) for row in rows], self.stated_score)
            return self.readable([partial(self.number, one) for one in answers])
        both = [[filled(self.prompt, row | one) for row in rows] for one in ({}, {"swapped": True})]
        answers = self.answers([*both[0], *both[1]], preference)
        pairs = zip(answers[: len(rows)], answers[len(rows) :], strict=True)
        return self.readable([partial(self.wins, *pair) for pair in pairs])

    def readable(self, values: Sequence[Callable[[], float]]) -> list[float | InfraFault | None]:
        """Returns the values that can be read, faults in the place of the others; the first error if those are many."""
        found: list[float | InfraFault | None] = []
        errors: list[OwnCodeError] = []
        for value in values:
            try:
                found.append(value())
            except OwnCodeError as error:
                errors.append(error)
                found.append(InfraFault("the judge's answer cannot be read"))
        if len(errors) > MOST_UNREAD * len(values):
            raise OwnCodeError(f"{errors[0]} ({len(errors)} of {len(values)} answers cannot be read)")
        return found

    def wins(self, first: str, second: str) -> float:
        """Returns the mean of what both orders say: 1 for a win of the completion, 1/2 for a tie, 0 for a loss."""
        return (self.win(first, "A") + self.win(second, "B")) / 2

    def stated_score(self, answer: str) -> float | None:
        """Returns the score with which an answer ends, from 0 to 1; None without a score."""
        stated = STATED.search(answer[-LAST:])
        if stated is None or float(stated[2] or self.scale) != self.scale or not 0.0 <= float(stated[1]) <= self.scale:
            return None
        return float(stated[1]) / self.scale

    def number(self, answer: str) -> float:
        """Returns the score that an answer states, from 0 to 1; OwnCodeError for one without."""
        found = self.stated_score(answer)
        if found is None:
            raise OwnCodeError(
                f"judge {self.url} ({self.model}) gave no score from 0 to {self.scale:g}: {answer[-80:]!a}. Change the "
                'rubric (--judge-prompt) so that it asks for a last line "Score: N"'
            )
        return found

    def win(self, answer: str, own: str) -> float:
        """Returns 1 if an answer prefers `own` (A or B), 1/2 for a tie, else 0."""
        first = preference(answer)
        if first is None:
            raise OwnCodeError(
                f"judge {self.url} ({self.model}) preferred neither A nor B: {answer[-80:]!a}. Change the rubric "
                '(--judge-prompt) so that it asks for "Better: A", "Better: B" or "Better: tie"'
            )
        return first if own == "A" else 1.0 - first

    # ------------------------------------------------------------------------------------------------ answers
    def answers(self, prompts: Sequence[str], reading: Callable[[str], float | None] = len) -> list[str]:
        """Returns the judge's answer to each prompt; those that are not kept are asked for side by side. Kept are
        answers in which `reading` finds a value.
        """
        self.read()
        known = {one: self.known.get(key_of(self.model, one)) for one in prompts}
        missing = [one for one, answer in known.items() if answer is None or reading(answer) is None]
        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(self.tried, missing))
        faults = [one for one in found if isinstance(one, Exception)]
        for prompt, answer in zip(missing, found, strict=True):
            if isinstance(answer, str):
                known[prompt] = answer
                if reading(answer) is not None:
                    self.keep(key_of(self.model, prompt), answer)
        if faults:
            raise OwnCodeError(
                f"judge {self.url} did not answer {len(faults)} of {len(prompts)} prompts after {TRIES} tries "
                f"({faults[0]}). Start the server; answers so far are kept"
            )
        return [known[one] or "" for one in prompts]

    def tried(self, prompt: str) -> str | Exception:
        """Returns the answer, or the error of the last try; errors that another try cannot change are tried once. One
        try has `SECONDS`, all of them have `ALL_SECONDS`, however slowly the server sends.
        """
        error: Exception = AssertionError()
        end = time.monotonic() + ALL_SECONDS
        for place in range(TRIES):
            if place:
                time.sleep(WAIT * 2 ** (place - 1))
            left = end - time.monotonic()
            if left <= 0:
                break
            try:
                return str(within(min(left, SECONDS), partial(self.asked, prompt), "the server"))
            except Declined as one:
                error = one
                if one.status < 500 and one.status not in (408, 409, 429):
                    return error
            except Overtime as one:
                error = AssayError(str(one).partition(". ")[0])
            except (OSError, ValueError, LookupError, TypeError, RecursionError, HTTPException) as one:
                error = AssayError(f"{type(one).__name__}: {one}")
        return error

    def asked(self, prompt: str) -> str:
        """Sends one prompt and returns the answer's text; Declined if the server answers with an error or a redirect,
        which is not followed: the key is for this address alone.
        """
        body = {"model": self.model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        address = f"{self.url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        try:
            with urllib.request.build_opener(NoRedirect).open(request, timeout=SECONDS) as response:
                sent = response.read(MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise Declined(error.code, error.headers.get("Location", ""), error.read(200)) from None
        if len(sent) > MOST_BYTES:
            raise ValueError(f"the answer has more than {MOST_BYTES:,} bytes")
        content = json.loads(sent)["choices"][0]["message"]["content"]
        if not isinstance(content, str):
            raise TypeError("the answer has no text")
        return content

    # ------------------------------------------------------------------------------------------------ on disk
    @property
    def file(self) -> Path:
        """Returns the file of kept answers, one for each server and model."""
        folder = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "assay" / "judge")
        return folder / f"{hashlib.sha256(f'{self.url} {self.model}'.encode()).hexdigest()[:16]}.jsonl"

    def read(self) -> None:
        """Reads kept answers once; a line that was cut by a crash is left out."""
        if self.known or not self.file.is_file():
            return
        for line in self.file.read_text().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                self.known[str(row["key"])] = str(row["answer"])

    def keep(self, key: str, answer: str) -> None:
        """Adds an answer to the file; several runs may do so at the same time."""
        self.known[key] = answer
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps({"key": key, "answer": answer}) + "\n")


@dataclass(frozen=True)
class LocalJudge(Judge):
    """A judge that is a user's function from a list of prompts to their answers; `url` is its address."""

    function: Callable[[list[str]], Sequence[str]] = list
    remote: RemoteFunction | None = field(default=None, repr=False, compare=False)

    def answers(self, prompts: Sequence[str], reading: Callable[[str], float | None] = len) -> list[str]:
        """Returns the function's answers; OwnCodeError unless it gives one text for each prompt."""
        try:
            if self.remote is None:
                found = list(self.function(list(prompts)))
            else:
                found = self.remote.texts(prompts, f"judge {self.url}", ALL_SECONDS)
        except OwnCodeError:
            raise
        except Exception as error:
            what = f"judge {self.url} raised {error!r}{at_place(error)}"
            raise OwnCodeError(f"{what}. It takes prompts and returns texts") from error
        if len(found) != len(prompts) or not all(isinstance(one, str) for one in found):
            what = f"judge {self.url} returned {len(found)} answers to {len(prompts)} prompts"
            raise OwnCodeError(f"{what}, or other things than texts. Return one text for each prompt")
        return found


def judge_of(word: str, model: str, prompt: str, pairs: bool, limits: Limits | None = None) -> Judge:
    """Returns the judge of an option: a server, or a function; with `limits`, that is called in worker processes."""
    address = address_of(word)
    if address is None:
        return Judge(word, model, prompt, pairs)
    name, function = function_of(address)
    remote = remote_function(address, name, limits)
    return LocalJudge(str(address), model, prompt, pairs, function=function, remote=remote)


def key_of(model: str, prompt: str) -> str:
    """Returns the key that an answer is kept under."""
    return hashlib.sha256(f"{model}\n{prompt}".encode()).hexdigest()


def filled(template: str, row: dict[str, Any]) -> str:
    """Returns the rubric with a row's texts in place of {prompt}, {completion}, {answer}, {first} and {second} and of
    other columns; braces in the texts stay as they are. Rows that are `swapped` have the completion second.
    """
    both = (row["completion"], row.get("answer", ""))
    first, second = reversed(both) if row.get("swapped") else both
    values = {**row, "first": first, "second": second}
    return re.sub(r"\{(\w+)\}", lambda one: str(values[one[1]]) if one[1] in values else one[0], template)
