"""`assay watch`: serves the page of a folder live to this machine, read-only.

Two addresses exist, `/` and `/data.json`; everything else is 404 and every method but GET and HEAD is 405. The folder
is looked at again if the size or time of one of its journals has changed; only runs that have changed are read, from
where the last reading ended. Pages of other sites cannot read the data: the Host header must name this server, which
stops DNS rebinding, and no header allows other origins. On an address beyond the loopback (--host) an IP address as
Host is accepted too: DNS rebinding needs a name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.http import bound, is_loopback, is_own_name, own_names
from assay.core.store import is_locked
from assay.report import page
from assay.report.arms import COMPARISON
from assay.report.journal import signature
from assay.report.page_runs import CONFIG, below
from assay.runs.folder import METRICS, SAMPLES

log = logging.getLogger(__name__)
WATCHED = (METRICS, SAMPLES, CONFIG)
POLL_MS = 2000
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageSource:
    """The data of a folder, gathered again only if a journal has changed, and by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = Path(folder), threading.Lock()
        self.seen: object = None
        self.data: dict[str, Any] = {}
        self.text, self.tag = "", ""
        self.looked, self.cost = -1e9, 0.0
        self.known = page.Known()

    def signature(self) -> list[tuple[object, ...]]:
        """Returns name, size and time of every file that the page shows, and which runs are locked."""
        found: list[tuple[object, ...]] = [signature(self.folder / COMPARISON)]
        for run in below(self.folder):
            found.append((str(run), is_locked(run)))
            for name in WATCHED:
                found.append((str(run / name), *signature(run / name)))
        return found

    def current(self) -> tuple[dict[str, Any], str, str]:
        """Returns the data, its JSON and its tag; reads the disk for at most a fifth of the time."""
        with self.lock:
            begun = time.monotonic()
            if begun - self.looked < min(4 * self.cost, 30.0):
                return self.data, self.text, self.tag
            now = self.signature()
            if now != self.seen:
                self.seen, self.data = now, self.gathered()
                self.text = page.encoded(self.data, self.known)
                self.tag = f'"{hashlib.sha256(self.text.encode()).hexdigest()[:24]}"'
            self.looked = time.monotonic()
            self.cost = self.looked - begun
            return self.data, self.text, self.tag

    def gathered(self) -> dict[str, Any]:
        """Gathers the page's data; a folder without runs gives a sentence, since runs may still start."""
        try:
            data = page.gather([self.folder], known=self.known)
        except AssayError as error:
            data = page.nothing(f"{error} This page updates by itself.")
        return data | {"live": True, "poll": POLL_MS}


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    server_version, sys_version = "assay", ""
    timeout = 30

    def do_GET(self) -> None:
        """Answers with the page or its data."""
        if not self.is_for_us():
            self.answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "This server answers to its own address only.\n")
        elif self.path == "/":
            data, text, tag = self.server.source.current()
            self.answer(HTTPStatus.OK, "text/html", page.document(data, f'{text[:-1]},"tag":{json.dumps(tag)}}}'))
        elif self.path == "/data.json":
            _, text, tag = self.server.source.current()
            is_known = self.headers.get("If-None-Match") == tag
            status = HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK
            self.answer(status, "application/json", "" if is_known else text, {"ETag": tag})
        else:
            self.answer(HTTPStatus.NOT_FOUND, "text/plain", "Only / and /data.json exist.\n")

    do_HEAD = do_GET

    def refuse(self) -> None:
        """Refuses every other HTTP method."""
        self.close_connection = True
        self.answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", "Read-only.\n", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = refuse

    def is_for_us(self) -> bool:
        """Returns whether the Host header names this server (a rebound DNS name does not)."""
        return is_own_name(self.headers.get_all("Host"), self.server.names, self.server.host)

    def answer(self, status: HTTPStatus, kind: str, text: str, headers: dict[str, str] | None = None) -> None:
        """Sends one response with the common headers."""
        body = text.encode()
        self.send_response(status)
        policy = page.policy(live=True) + "; frame-ancestors 'none'"
        special = {"Content-Type": f"{kind}; charset=utf-8", "Content-Security-Policy": policy} | (headers or {})
        for name, value in (HEADERS | special).items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Sends an error of the base class with the common headers; an unknown method is 405."""
        self.command, self.close_connection = self.command or "", True
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self.refuse()
        else:
            self.answer(HTTPStatus(code), "text/plain", f"{HTTPStatus(code).phrase}.\n")

    def log_message(self, format: str, *values: Any) -> None:
        """Logs nothing: requests are frequent."""
        log.debug(format, *values)


class Server(ThreadingHTTPServer):
    """The server of one folder at `url`."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, host: str, port: int, names: tuple[str, ...] = ()) -> None:
        self.source = PageSource(folder)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        self.host, self.port = host, int(self.server_address[1])
        self.shown = f"[{host}]" if ":" in host else host
        self.names = own_names(host, self.port, names)

    @property
    def url(self) -> str:
        """Returns the address to open in a browser."""
        return f"http://{self.shown}:{self.port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs a failed request and keeps serving."""
        log.warning("a request from %s failed: %s", client_address, sys.exc_info()[1])


def make_server(folder: Path, host: str = "127.0.0.1", port: int = 8000, names: tuple[str, ...] = ()) -> Server:
    """Binds a server that does not answer yet; port 0 takes a free one. `names`: further hosts that it answers to."""
    folder = Path(folder)
    if not folder.is_dir():
        raise AssayError(f"{folder} is not a folder. Name a run folder, or a folder that contains some.")
    return bound(lambda: Server(folder, host, port, names), host, port)


def serve(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    names: tuple[str, ...] = (),
    announce: Callable[[str], None] = print,
) -> None:
    """Serves the folder's page until Ctrl-C; `announce` gets a line with the address, and a warning if it is public."""
    with make_server(folder, host, port, names) as server:
        if not is_loopback(host):
            announce(f"warning: {host} can be reached from other machines; these runs are readable on the network")
        announce(f"watching {folder} at {server.url} (Ctrl-C to stop)")
        try:
            server.serve_forever(poll_interval=0.5)
        except KeyboardInterrupt:
            announce("stopped")
