"""`assay serve`: HTTP around `runs.distributed.serving`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from assay.core.errors import AssayError
from assay.core.http import Server, bound, is_loopback
from assay.runs.distributed.serving import Service, served_policy
from assay.runs.options.scoring import RebuiltOptions

__all__ = ["TOKEN", "Server", "make_server", "serve"]

TOKEN = "ASSAY_SERVE_TOKEN"
"""The environment variable with the token; the command line would show it to everyone on the machine."""


def make_server(
    address: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str = "",
    rebuilt: RebuiltOptions = RebuiltOptions(),
) -> Server:
    """Loads a policy and binds its server, which does not answer yet; port 0 takes a free one. AssayError for an
    address that other machines reach without a token.
    """
    if not host:
        raise AssayError("--host is empty. Use an address such as 127.0.0.1.")
    if not is_loopback(host) and not token:
        what = f"--host is {host}, which other machines can reach"
        raise AssayError(f"{what}. Set {TOKEN} or --token, which every request then needs, or use 127.0.0.1.")
    service = Service(served_policy(address, rebuilt))
    return bound(lambda: Server(service, host, port, token), host, port)


def serve(
    address: str,
    host: str,
    port: int,
    *,
    token: str | None = None,
    rebuilt: RebuiltOptions = RebuiltOptions(),
    announce: Callable[[str], None] = print,
) -> None:
    """Serves a policy until Ctrl-C or SIGTERM; `announce` gets a line with the address."""
    token = os.environ.get(TOKEN, "") if token is None else token
    with make_server(address, host, port, token, rebuilt) as server:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            if not is_loopback(host):
                announce(f"warning: {host} can be reached from other machines; the token is sent without encryption")
            service = server.service
            assert isinstance(service, Service)
            where = f"on {service.policy.flat.values.device} at {server.url}"
            announce(f"serving {service.policy.name} {where} (Ctrl-C to stop)")
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            announce("stopped")
