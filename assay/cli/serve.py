"""`assay serve`: HTTP around `runs.distributed.serving`. Every request and answer is JSON; errors have vLLM's form."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from assay.report.watch import bound, is_loopback, is_own_name, own_names
from assay.runs.distributed.serving import Refused, Service, served_policy

MOST_BYTES = 1 << 26


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    server_version, sys_version = "assay", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answers a request without a body."""
        if self.is_for_us():
            self.reply({})

    def is_for_us(self) -> bool:
        """Returns whether the Host header names this server; refuses the request if not. A page of another site whose
        name was bound to this address (DNS rebinding) has its own name there.
        """
        is_ours = is_own_name(self.headers.get_all("Host"), self.server.names, self.server.host)
        if not is_ours:
            self.refuse(Refused(421, f"the Host header is not that of this server. Use {self.server.url}."))
        return is_ours

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
            body = json.loads(sent or b"{}")
        except (ValueError, RecursionError) as error:
            return self.refuse(Refused(400, f"the body is not JSON ({error}). Send a JSON object."))
        return self.reply(body) if isinstance(body, dict) else self.refuse(Refused(400, "Send a JSON object."))

    def reply(self, body: Mapping[str, Any]) -> None:
        """Sends what the service answers."""
        try:
            found = self.server.service.answer(self.command, self.path, body)
        except Refused as refused:
            return self.refuse(refused)
        except Exception as error:
            self.refuse(Refused(500, f"{type(error).__name__}: {error}"))
            raise
        return self.send(200, found)

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

    def log_message(self, format: str, *values: Any) -> None:
        """Logs nothing: requests are frequent."""


class Server(ThreadingHTTPServer):
    """The server of one policy at `url`."""

    daemon_threads = True
    request_queue_size = 1024  # all rows of a batch connect at the same moment

    def __init__(self, service: Service, host: str, port: int) -> None:
        self.service = service
        super().__init__((host, port), Handler)
        self.url = f"http://{host}:{self.server_address[1]}"
        machine = () if is_loopback(host) else {socket.gethostname(), socket.getfqdn()}
        self.host, self.names = host, own_names(host, int(self.server_address[1]), machine)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints why a request failed; a client that has gone is not an error."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"assay: a request failed: {type(error).__name__}: {error}", file=sys.stderr)


def make_server(address: str, host: str = "127.0.0.1", port: int = 8000) -> Server:
    """Loads a policy and binds its server, which does not answer yet; port 0 takes a free one."""
    service = Service(served_policy(address))
    return bound(lambda: Server(service, host, port), host, port)


def serve(address: str, host: str, port: int, *, announce: Callable[[str], None] = print) -> None:
    """Serves a policy until Ctrl-C or SIGTERM; `announce` gets a line with the address."""
    with make_server(address, host, port) as server:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            if not is_loopback(host):
                announce(f"warning: {host} can be reached from other machines, which can then replace the weights")
            announce(f"serving {server.service.policy.name} at {server.url} (Ctrl-C to stop)")
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            announce("stopped")
