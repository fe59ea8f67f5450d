"""A sandbox on another machine: POST /run with a job as JSON, the result as JSON; and the server of one.

Request: {"code": text, "kind": "stdin" | "calls" | "assertions", "inputs": {...}, "limits": {...}} (`values.job_of`).
Answer: {"result": "completed" | "program" | "sandbox", ...}, see `values.result_of`. Whatever else happens between the
two machines is a fault of the sandbox. A server that listens to other machines wants a token.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from assay.core.errors import AssayError
from assay.core.http import Caller, Refused, Server, bound, is_loopback
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.values import (
    Inputs,
    Job,
    Limits,
    Result,
    SandboxFault,
    Stdin,
    job_as_json,
    job_of,
    result_as_json,
    result_of,
)

TOKEN = "ASSAY_SANDBOX_TOKEN"
MAX_BODY = 1 << 24
"""Bytes that are read of an answer."""
MOST = Limits(seconds=600.0, cpu_seconds=600.0, memory=1 << 34, address_space=1 << 34, disk=1 << 30, processes=256)
"""The largest limits that a server grants; of output those of a usual run."""
WAIT = 300.0
"""Seconds for which an answer is waited for beyond the limit of a job, since jobs wait for a free box."""


class RemoteSandbox:
    """Runs programs on the machine at an address, http://HOST:PORT; the token is in ASSAY_SANDBOX_TOKEN."""

    def __init__(self, address: str, num_slots: int = 32) -> None:
        self.kind, self.num_slots = address, num_slots
        parts = urllib.parse.urlsplit(address)
        try:
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # no valid port
            is_address = False
        if not is_address or parts.username is not None:
            raise AssayError(f"the sandbox '{address}' is not an address. Write http://HOST:PORT")
        self.secure, self.place, self.path = parts.scheme == "https", parts.netloc, parts.path.rstrip("/")

    def run(self, code: str, inputs: Inputs = Stdin(), limits: Limits = Limits()) -> Result:
        """Runs a program with inputs, within limits."""
        job = Job(code, inputs, limits)
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = kind(self.place, timeout=WAIT + limits.seconds)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get(TOKEN, '')}"}
        try:
            connection.request("POST", f"{self.path}/run", json.dumps(job_as_json(job)), headers)
            answer = connection.getresponse()
            content = answer.read(MAX_BODY)
            plain = json.loads(content) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            return SandboxFault(f"{self.kind} did not answer: {type(error).__name__}: {error}")
        finally:
            connection.close()
        if plain is None:
            return SandboxFault(f"{self.kind} answered with the status {answer.status}: {content[:80]!r}")
        return result_of(plain)

    def run_all(self, jobs: Sequence[Job]) -> list[Result]:
        """Runs several programs at once; the results are in the order of the jobs."""
        with ThreadPoolExecutor(self.num_slots) as pool:
            return list(pool.map(lambda job: self.run(job.code, job.inputs, job.limits), jobs))

    def close(self) -> None:
        """Nothing is held."""


class Runs:
    """The service of a sandbox: POST /run."""

    def __init__(self, sandbox: LocalSandbox) -> None:
        self.sandbox = sandbox

    def answer(self, method: str, path: str, body: Mapping[str, Any], caller: Caller = Caller()) -> dict[str, Any]:
        """Returns the result of a job; Refused for anything else, and for limits beyond `MOST`."""
        if (method, path) != ("POST", "/run"):
            raise Refused(404, f"there is no {method} {path[:80]}. Use POST /run.")
        try:
            job = job_of(body)
        except AssayError as error:
            raise Refused(400, str(error)[:300]) from None
        for name, most in asdict(MOST).items():
            if getattr(job.limits, name) > most:
                raise Refused(400, f"'limits.{name}' is {getattr(job.limits, name):g}. Use at most {most:g}.")
        return result_as_json(self.sandbox.run(job.code, job.inputs, job.limits))

    def close(self) -> None:
        """Ends nothing: the sandbox is its owner's."""


def server(sandbox: LocalSandbox, host: str, port: int, token: str) -> Server:
    """Returns a server of a sandbox; AssayError for an address that it cannot have, and without a token if other
    machines can reach it.
    """
    if host and not token and not is_loopback(host):
        raise AssayError(
            f"--host {host} can be reached by other machines. Set a token: {TOKEN}=... (also for its users)"
        )
    return bound(lambda: Server(Runs(sandbox), host, port, token), host, port)
