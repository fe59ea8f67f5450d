"""Servers as a run sees them: rows sampled over HTTP by the routes of vLLM 0.32, which `assay serve` answers too.

Weights go out as the path and digest of a file (`Published`). After each update 64 log-probabilities are compared with
the learner's, so that a missed update, a missed adapter or another model is an error, not staleness. Prompts go out as
token ids, a request and a seed for each row; tokens, their log-probabilities and versions come back.

Axes: B rows, T tokens.
"""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.spaces import Vocabulary
from assay.decoding.sampling_parameters import Narrowing
from assay.ops import random
from assay.ops.decoded import Written
from assay.rollouts import text
from assay.rollouts.completions import Ends
from assay.runs.distributed.rollout_worker import Lost
from assay.runs.distributed.weights import WeightFiles, Weights

GENERATE = "/inference/v1/generate"
OWNER = "assay"
"""`owned_by` in the list of models of `assay serve`: its sampler and its random numbers are those of this package."""
REACH, CHECKS = 10.0, 120.0
"""Seconds to connect, and for all checks of a server before a run begins."""
AWAY, PAUSE = 300.0, 0.2
"""Seconds that a run waits for a server that has gone, and before it asks again; each further pause is half as long
again, up to 5 s.
"""
MOST_BYTES = 1 << 27
"""The largest answer that is read."""
ROWS = 1024
"""Requests under way at once; more rows are sampled as several batches."""
NEAR, NEAR_FOREIGN = 1e-3, 5e-2
"""Largest mean gap of probe log-probabilities on `assay serve`, and elsewhere, where kernels may be in bfloat16."""
NOISE = 10.0
"""A later gap may be this many times the smallest so far, plus 1e-5: where kernels agree, small updates are seen."""
LOGP = "logprob_model"
"""The entry of `assay serve` beside `logprob`, which is that of the tokens' own distribution: the model's own."""
Row = tuple[list[int], list[float], list[float], bool]
SAME = "Serve the model of this run: 'assay serve RUN' with a run of the same method and settings, or vLLM 0.32"


# ---------------------------------------------------------------------------------------------------- probes, weights
def probes(vocabulary: Vocabulary) -> list[list[int]]:
    """Returns 8 sequences of 9 tokens, the first bos: 64 log-probabilities to compare."""
    tokens = random.integers(Draw(0, (15,)), vocabulary.size, 64).reshape(8, 8)
    return [[vocabulary.bos, *row] for row in tokens.tolist()]


def as_rows(rows: Sequence[Sequence[int]], vocabulary: Vocabulary) -> Experience:
    """Returns token sequences as experience in which every token but the first is a decision."""
    return text.written([row[:1] for row in rows], [row[1:] for row in rows], torch.arange(len(rows)), vocabulary.pad)


@dataclass(eq=False)
class Published(Weights):
    """Weights of one model as files, with the learner's log-probabilities of the probes; `fetch` tells a server of
    them.
    """

    files: WeightFiles
    model: str
    score: Callable[[], Tensor]
    known: dict[int, Tensor] = field(default_factory=dict)

    def publish(self, version: int, tree: State) -> None:
        """Writes the file, and scores the probes with the weights that the learner has now."""
        self.files.publish(version, {self.model: tree[self.model]})
        self.known[version] = self.score()
        for old in [one for one in self.known if one <= version - self.files.keep]:
            del self.known[old]

    def fetch(self, version: int, told: str = "") -> State:
        """Returns the path and digest of the file, a label that no other weights have, and the log-probabilities."""
        path = self.files.path(version)
        digest = path.stem.partition("-")[2]
        file = {"path": str(path), "sha256": digest, "model": self.model}
        return {"file": file, "version": f"{version}-{digest[:12]}", "logp": self.known[version]}


# ---------------------------------------------------------------------------------------------------- one server
@dataclass(eq=False)
class Server:
    """A server at `url` as an actor whose tokens it samples. Every request ends at `until`, on the monotonic clock.

    Raises Lost if it does not answer (or with a status of 500 and above), AssayError if it refuses a request or answers
    with something else than rows of the weights it was told of.
    """

    url: str
    vocabulary: Vocabulary
    until: float = 0.0
    version: str = ""
    is_foreign: bool = True
    """Whether it is not `assay serve`."""
    usual: float = math.inf
    """The smallest gap of the probes so far."""

    def __post_init__(self) -> None:
        self.live: set[HTTPConnection] = set()
        self.lock, self.is_closed = threading.Lock(), False

    # ------------------------------------------------------------------------------------------------ requests
    def ask(self, route: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the JSON object that the server answers to a GET, or to a POST of `body`."""
        left, at = self.until - time.monotonic(), urlsplit(self.url)
        kind = HTTPSConnection if at.scheme == "https" else HTTPConnection
        link = kind(at.hostname or "", at.port, timeout=max(0.001, min(REACH, left)))
        with self.lock:
            self.live.add(link)
        try:
            link.connect()
            if self.is_closed or left <= 0:
                raise TimeoutError("its deadline has passed")
            link.sock.settimeout(left)
            sent = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"}
            link.request("GET" if body is None else "POST", at.path.rstrip("/") + route, sent, headers)
            answer = link.getresponse()
            return self.read(route, answer.status, answer.read(MOST_BYTES + 1))
        except (OSError, HTTPException) as error:
            raise Lost(f"{self.url} does not answer: {str(error) or type(error).__name__}") from None
        finally:
            with self.lock:
                self.live.discard(link)
            link.close()

    def read(self, route: str, status: int, sent: bytes) -> dict[str, Any]:
        """Returns the JSON object of an answer; raises for another answer, and for a status that is an error."""
        if len(sent) > MOST_BYTES:
            raise AssayError(f"{self.url}{route} answers with more than {MOST_BYTES:,} bytes. {SAME}.")
        try:
            told = json.loads(sent)
        except (ValueError, RecursionError):
            told = None
        if status < 400 and isinstance(told, dict):
            return told
        given = told if isinstance(told, dict) else {}
        error = given.get("error", given.get("detail", "no JSON object"))
        words = " ".join(str(error["message"] if isinstance(error, dict) and "message" in error else error).split())
        what = f"{self.url}{route} answers {status} ({words[:300].rstrip('.')})"
        if status >= 500:
            raise Lost(what)
        raise AssayError(f"{what}. {SAME} as docs/scale.md starts it.")

    def together(self, bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Returns the answers to requests that are sent at the same time."""
        with ThreadPoolExecutor(len(bodies)) as pool:
            try:
                return list(pool.map(lambda body: self.ask(GENERATE, body), bodies))
            except BaseException:
                self.close()  # or the pool would wait for the others
                raise

    def wait(self, seconds: float) -> None:
        """Waits until the server answers, for instance after it was started again; AssayError after `seconds`."""
        begin, pause = time.monotonic(), PAUSE
        while not self.is_closed:
            self.until = time.monotonic() + REACH
            try:
                self.ask("/v1/models")
                return
            except Lost as lost:
                away = time.monotonic() - begin
                if away > seconds:
                    what = f"{lost}, for {away:.0f} s"
                    raise AssayError(f"{what}. Start the server again; steps so far are saved.") from None
                if pause == PAUSE:
                    warnings.warn(f"{lost}; the run waits for it, up to {seconds:g} s", stacklevel=2)
            time.sleep(pause)
            pause = min(5.0, 1.5 * pause)

    def close(self) -> None:
        """Ends all requests under way; further ones fail."""
        with self.lock:
            self.is_closed = True
            for link in self.live:
                if link.sock is not None:
                    with suppress(OSError):
                        link.sock.shutdown(SHUT_RDWR)

    # ------------------------------------------------------------------------------------------------ rows
    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        starts: np.ndarray,
        seeds: np.ndarray,
        ends: Ends,
        *,
        greedy: bool,
        narrowing: Narrowing = Narrowing(),
        since: np.ndarray | None = None,
    ) -> Written:
        """Returns a completion of each prompt, sampled by the server: `Remote`."""
        rows: list[Row] = []
        shared = sampling_params(ends, greedy, narrowing)
        when = np.zeros(len(prompts), dtype=np.int64) if since is None else since
        for first in range(0, len(prompts), ROWS):
            some = slice(first, first + ROWS)
            bodies = requests(prompts[some], starts[some], seeds[some], when[some], shared)
            rows += [self.row(told, ends, LOGP if narrowing.changes else "") for told in self.together(bodies)]
        self.confirm()
        size = len(rows), ends.max_tokens
        tokens, logp, model = torch.full(size, ends.vocabulary.pad), torch.zeros(size), torch.zeros(size)
        for place, (own, values, others, _) in enumerate(rows):
            tokens[place, : len(own)], logp[place, : len(own)] = torch.tensor(own), torch.tensor(values)
            model[place, : len(others)] = torch.tensor(others)
        length = torch.tensor([len(own) for own, *_ in rows])
        has_ended = torch.tensor([is_over for *_, is_over in rows])
        return Written(tokens, logp, length, has_ended, model if narrowing.changes else None)

    def row(self, told: dict[str, Any], ends: Ends, more: str = "") -> Row:
        """Returns tokens, log-probabilities, those of the model under the name `more` if it has one, and whether the
        row has ended; raises AssayError if they do not fit.
        """
        try:
            (choice,) = told["choices"]
            tokens, content = choice["token_ids"], choice["logprobs"]["content"]
            logp = [float(one["logprob"]) for one in content]
            model = [float(one[more]) for one in content] if more else []
            versions = {str(span["version"]) for span in choice.get("weight_versions") or ()}
            reason, size = choice["finish_reason"], ends.vocabulary.size
            fits = 0 < len(tokens) == len(logp) <= ends.max_tokens and all(map(math.isfinite, (*logp, *model)))
            foreign = [one for one in tokens if not 0 <= one < size]
        except (KeyError, TypeError, ValueError):
            fits, foreign, versions, reason = False, [], set(), ""
        if not fits:
            raise AssayError(f"{self.url} answers without token ids or their log-probabilities. {SAME}.")
        if foreign:
            raise self.other_vocabulary(f"answers with token {foreign[0]}")
        if reason not in ("stop", "length"):
            raise Lost(f"{self.url} ended a row with '{reason}'")
        self.check_version(versions)
        return tokens, logp, model, reason == "stop"

    def check_version(self, versions: set[str]) -> None:
        """Raises AssayError if rows were sampled by other weights than those that the server was told of."""
        if self.version and (other := versions - {self.version}):
            raise AssayError(
                f"{self.url} has weights {min(other)}, this run sent {self.version}: another run uses the same server. "
                "Start a server for each run."
            )

    def confirm(self) -> None:
        """Asks the server for the version that it has."""
        self.check_version({str(self.ask("/weight_info").get("weight_version"))})

    # ------------------------------------------------------------------------------------------------ weights
    def update(self, told: State) -> None:
        """Sends the server to a file of weights, and compares the probes."""
        self.version = ""
        self.ask("/pause?mode=keep", {})
        try:
            self.ask("/start_weight_update", {})
            self.ask("/update_weights", {"update_info": told["file"]})
            self.ask("/finish_weight_update", {"weight_version": told["version"]})
        except (Lost, AssayError):
            with suppress(Lost, AssayError):
                self.ask("/resume", {})
            raise
        self.ask("/resume", {})
        self.version = told["version"]
        self.confirm()
        self.compare(told["logp"])

    def compare(self, logp: Tensor) -> None:
        """Raises AssayError if the server's log-probabilities of the probes are not the learner's."""
        rows = probes(self.vocabulary)
        how = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        answered = self.together([{"token_ids": row, "sampling_params": how} for row in rows])
        try:
            pairs = [
                zip(row[1:], told["prompt_logprobs"][1:], strict=True) for row, told in zip(rows, answered, strict=True)
            ]
            found = torch.tensor([[float(one[str(token)]["logprob"]) for token, one in pair] for pair in pairs])
        except (KeyError, TypeError, ValueError):
            raise AssayError(f"{self.url} answers without log-probabilities of the prompt. {SAME}.") from None
        gap, limit = float((found - logp).abs().mean()), NEAR_FOREIGN if self.is_foreign else NEAR
        limit = min(limit, NOISE * self.usual + 1e-5)
        self.usual = min(self.usual, gap)
        if not gap <= limit:
            raise AssayError(
                f"after the update to version {self.version}, 64 log-probabilities of {self.url} are {gap:.2g} from "
                f"the learner's (limit {limit:.2g}): it has another model, or missed the update or an adapter. {SAME}."
            )

    def prepare(self, told: State) -> None:
        """Updates the server before the run begins; AssayError if it cannot take the weights."""
        try:
            self.update(told)
        except Lost as lost:
            raise AssayError(f"--server cannot load the weights of this run: {lost}. {SAME}.") from None

    def check(self) -> None:
        """Finds out what the server is; AssayError if it does not answer, or has another vocabulary."""
        self.until = time.monotonic() + REACH
        try:
            found = self.ask("/v1/models")
            self.until = time.monotonic() + CHECKS
            self.is_foreign = [one.get("owned_by") for one in found["data"]][:1] != [OWNER]
        except Lost as lost:
            raise AssayError(f"--server: {lost}. Start it with 'assay serve RUN', or fix the address.") from None
        except (KeyError, TypeError, AttributeError):
            raise AssayError(f"--server {self.url} has no list of models. {SAME}.") from None
        size = self.vocabulary.size
        self.row(self.ask(GENERATE, probe(self.vocabulary.bos)), Ends(1, self.vocabulary))
        for token, is_known in ((size - 1, True), (size, False)):
            try:
                self.ask(GENERATE, probe(token))
                accepts = True
            except AssayError:
                accepts = False
            if accepts is not is_known:
                raise self.other_vocabulary(f"{'accepts' if accepts else 'refuses'} token {token}")

    def other_vocabulary(self, what: str) -> AssayError:
        """Returns the error for a server that did with a token what the model of this run cannot."""
        tokens = f"this run has tokens 0 to {self.vocabulary.size - 1}"
        return AssayError(f"--server {self.url} has another vocabulary: it {what}, {tokens}. {SAME}.")


def probe(token: int) -> dict[str, Any]:
    """Returns a request for one token."""
    return {"token_ids": [token], "sampling_params": {"max_tokens": 1, "logprobs": 0}}


def sampling_params(ends: Ends, greedy: bool, narrowing: Narrowing) -> dict[str, Any]:
    """Returns what the requests of all rows share. The likeliest tokens are those of temperature 0; where another
    temperature decides their log-probabilities, `assay serve` is told apart.
    """
    stop, shared = ends.stop, {"max_tokens": ends.max_tokens, "logprobs": 0, **vars(narrowing)}
    shared |= {"extra_args": {"greedy": True}} if greedy and narrowing.changes else {}
    shared |= {"temperature": 0.0} if greedy and not narrowing.changes else {}
    shared |= {"ignore_eos": True, "stop_token_ids": [ends.vocabulary.eos], "detokenize": bool(stop)}
    return shared | ({} if stop is None else {"stop": list(stop.strings), "include_stop_str_in_output": True})


def requests(
    prompts: Sequence[Sequence[int]],
    starts: np.ndarray,
    seeds: np.ndarray,
    since: np.ndarray,
    shared: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Returns a request for each row. `extra_args`, which vLLM ignores, tells `assay serve` to sample them as one
    batch, because kernels round otherwise for other numbers of rows; and the row's seed and time, of which `seed` is
    made, so that no two turns of a conversation draw the same numbers anywhere.
    """
    batch = uuid.uuid4().hex
    mixed = np.where(since > 0, random.hashed_after(seeds, since), seeds).view(np.int64).tolist()
    rows = zip(prompts, starts.tolist(), seeds.view(np.int64).tolist(), since.tolist(), mixed, strict=True)
    found: list[dict[str, Any]] = []
    for place, (prompt, start, own, when, seed) in enumerate(rows):
        more = {"batch": batch, "rows": len(prompts), "place": place, "start": start, "seed": own, "time": when}
        params: dict[str, Any] = {**shared, "seed": seed, "extra_args": more | shared.get("extra_args", {})}
        found.append({"token_ids": list(prompt), "sampling_params": params})
    return found
