"""JSON over HTTP for programs: checks of Host, token, size and time before a service sees a request.

Every request and answer is JSON, or a stream of JSON events; an error is {"error": {"message", "type", "code"}}, as
OpenAI's and vLLM's clients read it.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import math
import re
import select
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol, TypeVar

from assay.core.errors import AssayError

MOST_BYTES = 1 << 26
"""The largest body of a request."""
SESSION = "X-Assay-Session"
"""The header that names a session."""
RETRIED = "x-stainless-retry-count"
"""The header in which OpenAI's clients count how often they have sent a request before."""
Bound = TypeVar("Bound", bound=ThreadingHTTPServer)


class Refused(Exception):
    """A request that gets an error as its answer: a status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Caller(NamedTuple):
    """The sender of a request: its session ("" if it names none), whether it sends the request again, and a function
    that says whether it has left.
    """

    session: str = ""
    is_retry: bool = False
    has_left: Callable[[], bool] = lambda: False


Answer = Mapping[str, Any] | Iterator[Mapping[str, Any]]
"""JSON, or a stream of JSON."""


class Service(Protocol):
    """Answers requests by method and path, from any thread."""

    def answer(self, method: str, path: str, body: Mapping[str, Any], caller: Caller = Caller()) -> Answer:
        """Returns the answer; raises Refused for an error."""

    def close(self) -> None:
        """Ends the work of the service, whose server has been closed."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    server_version, sys_version = "assay", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answers a request without a body."""
        if self.is_for_us():
            self.reply({})

    def do_POST(self) -> None:
        """Answers a request whose body is a JSON object, as long as its header says."""
        if not self.is_for_us():
            return None
        length = self.headers.get("Content-Length", "")[:20]
        if not (length.isascii() and length.isdecimal()) or int(length) > MOST_BYTES:
            return self.refuse(Refused(413, f"the body has {length or 'no'} bytes. Send at most {MOST_BYTES:,}."))
        sent = self.rfile.read(int(length))
        if len(sent) != int(length):  # else a cut body would be an empty one, which /pause obeys
            return self.refuse(Refused(400, f"the body ended after {len(sent):,} of {length} bytes. Send it again."))
        if not self.headers.get("Content-Type", "").startswith("application/json"):  # pages of other sites cannot
            return self.refuse(Refused(415, "the body is not application/json. Set the Content-Type."))
        try:
            body = read_json(sent or b"{}")
        except (ValueError, RecursionError) as error:
            return self.refuse(Refused(400, f"the body is not JSON that can be used ({error}). Send a JSON object."))
        return self.reply(body) if isinstance(body, dict) else self.refuse(Refused(400, "Send a JSON object."))

    def is_for_us(self) -> bool:
        """Returns whether the Host header names this server and the key is its token, if it has one; refuses the
        request if not. A page of another site whose name was bound to this address (DNS rebinding) has its own name
        there.
        """
        server = self.server
        if not is_own_name(self.headers.get_all("Host"), server.names, server.host):
            self.refuse(Refused(421, f"the Host header is not that of this server. Use {server.url}."))
            return False
        if server.token and not hmac.compare_digest(self.key.encode(), server.token.encode()):
            self.refuse(Refused(401, "the token is missing or wrong. Send 'Authorization: Bearer TOKEN'."))
            return False
        return True

    @property
    def key(self) -> str:
        """The key of the request; "" without one."""
        kind, _, key = self.headers.get("Authorization", "").partition(" ")
        return key.strip() if kind.lower() == "bearer" else ""

    def caller(self, body: Mapping[str, Any]) -> Caller:
        """Returns the sender: its session is the header `X-Assay-Session`, else the key if that is no token, else the
        entry `user` of the request.
        """
        user = body.get("user")
        key = "" if self.server.token else self.key
        session = self.headers.get(SESSION, "") or key or (user if isinstance(user, str) else "")
        return Caller(session[:200], self.headers.get(RETRIED, "0") not in ("", "0"), self.has_left)

    def has_left(self) -> bool:
        """Returns whether the other side has closed the connection."""
        with suppress(OSError, ValueError):
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
        return True

    def reply(self, body: Mapping[str, Any]) -> None:
        """Sends what the service answers."""
        try:
            found = self.server.service.answer(self.command, self.path, body, self.caller(body))
        except Refused as refused:
            return self.refuse(refused)
        except Exception as error:
            self.refuse(Refused(500, f"{type(error).__name__}: {error}"))
            raise
        return self.send(200, found) if isinstance(found, Mapping) else self.stream(found)

    def refuse(self, refused: Refused) -> None:
        """Sends an error."""
        told = {"message": str(refused), "type": "BadRequestError", "code": refused.status}
        self.send(refused.status, {"error": told})

    def send(self, status: int, found: Mapping[str, Any]) -> None:
        """Sends JSON."""
        sent = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def stream(self, events: Iterator[Mapping[str, Any]]) -> None:
        """Sends JSON objects as server-sent events; the connection ends with them."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        for event in events:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *values: Any) -> None:
        """Logs nothing: requests are frequent."""


class Server(ThreadingHTTPServer):
    """A service at `url`. With a `token` every request needs it."""

    daemon_threads = True
    request_queue_size = 1024  # all rows of a batch connect at the same moment

    def __init__(self, service: Service, host: str, port: int, token: str = "") -> None:
        self.service, self.token = service, token
        super().__init__((host, port), Handler)
        self.url = f"http://{host}:{self.server_address[1]}"
        machine = () if is_loopback(host) else {socket.gethostname(), socket.getfqdn()}
        self.host, self.names = host, own_names(host, int(self.server_address[1]), machine)

    def server_close(self) -> None:
        """Closes the address, then the service."""
        super().server_close()
        self.service.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints why a request failed; a client that has gone is not an error."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"assay: a request failed: {type(error).__name__}: {error}", file=sys.stderr)


# ---------------------------------------------------------------------------------------------------- bodies
def read_json(sent: bytes) -> Any:
    """Returns a body without what no service can use: ValueError for one that is not JSON, that has a number beyond 64
    bits or beyond floats (NaN, 1e999), or half a surrogate pair; RecursionError for one that is too deep.
    """
    found = json.loads(sent, parse_int=whole, parse_float=finite, parse_constant=finite)
    json.dumps(found, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return found


def whole(digits: str) -> int:
    """Returns a whole number; ValueError if it has more than 64 bits."""
    found = int(digits) if len(digits) <= 20 else 1 << 64
    if not -(1 << 63) <= found < 1 << 64:
        raise ValueError(f"{digits[:20]}{'...' * (len(digits) > 20)} has more than 64 bits")
    return found


def finite(digits: str) -> float:
    """Returns a number; ValueError if it is not finite."""
    if not math.isfinite(found := float(digits)):
        raise ValueError(f"{digits[:20]} is not a finite number")
    return found


# ---------------------------------------------------------------------------------------------------- addresses
def own_names(host: str, port: int, names: Iterable[str] = ()) -> set[str]:
    """Returns the Host headers that name a server: its address, localhost on the loopback, and further `names`."""
    hosts = {f"[{host}]" if ":" in host else host, *names}
    hosts |= {"localhost", "127.0.0.1"} if is_loopback(host) else set()
    return {f"{name}:{port}".lower() for name in hosts} | ({*hosts} if port == 80 else set())


def is_own_name(given: Sequence[str] | None, names: set[str], host: str) -> bool:
    """Returns whether a request's Host headers are one that names the server at `host`: one of its `names`, or any IP
    address where it is bound beyond the loopback, because its addresses are not known then.
    """
    name = given[0].lower() if given is not None and len(given) == 1 else ""
    found = re.fullmatch(r"\[?([0-9a-f.:]+?)\]?(?::([0-9]{1,5}))?", name[:80])
    if name in names or is_loopback(host) or not found:
        return name in names
    try:
        ipaddress.ip_address(found[1])
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bound(make: Callable[[], Bound], host: str, port: int) -> Bound:
    """Returns the server that `make` binds to an address; AssayError if it cannot."""
    if not host:
        raise AssayError("--host is empty. Use an address such as 127.0.0.1.")
    if not 0 <= port < 65536:
        raise AssayError(f"--port is {port}. Use a number from 0 to 65535.")
    try:
        return make()
    except OSError as error:
        why = error.strerror or str(error)
        raise AssayError(
            f"cannot serve at {host}:{port} ({why}). Choose another --port (0 takes a free one) or --host."
        ) from error
