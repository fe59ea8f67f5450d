"""Tools of a server that speaks the Model Context Protocol: started by a command, or reached at an address.

    mcp:python server.py           a process for each rollout: rows do not see each other
    mcp:http://HOST:PORT/mcp       a client for each rollout
    mcp-shared:...                 one client for all rollouts of this process

Names, descriptions and schemas come from the server. A server that is gone, or does not answer, is a fault of the
infrastructure; an error that a tool reports is text for the policy.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import InfraFault
from assay.core.tool_servers import OWN, SHARED
from assay.rollouts.concurrent_calls import event_loop
from assay.tasks.language.tools import Row

STARTING, CLOSING = 30.0, 10.0
"""Seconds that a server may take to start, and to stop."""


@dataclass(frozen=True)
class McpServer:
    """The tools of a server. With `is_shared`, rollouts have one client together."""

    address: str
    schemas: tuple[Mapping[str, Any], ...] = ()
    is_shared: bool = False
    pays = tells = False

    def open(self, row: Row) -> McpTools:
        """Connects a client, or returns the one that is shared."""
        client = shared_client(self.address, os.getpid()) if self.is_shared else Client(self.address)
        return McpTools(client, self.is_shared)


@dataclass(frozen=True)
class McpTools:
    """The tools of a server in one rollout."""

    client: Client
    is_shared: bool
    told = ""

    def call(self, name: str, arguments: Mapping[str, Any]) -> str | InfraFault:
        """Returns the texts of a result; a fault if the server does not answer."""
        return self.client.call(name, arguments)

    def reward(self) -> None:
        """Returns None: a server gives no outcome."""

    def close(self) -> None:
        """Ends the client of this rollout."""
        if not self.is_shared:
            self.client.close()


@dataclass
class Client:
    """A connection, held by one task of the event loop from its beginning to its end, as the library wants it."""

    address: str
    connected: Future[Any] = field(default_factory=Future)
    ended: asyncio.Future[None] = field(default_factory=lambda: event_loop(os.getpid()).create_future())
    task: Future[None] | None = None
    not_a_part = "a connection"

    def __post_init__(self) -> None:
        require("mcp", "mcp", "the tools of a server")
        self.task = asyncio.run_coroutine_threadsafe(self.hold(), event_loop(os.getpid()))
        try:
            self.connected.result(STARTING)
        except TimeoutError:
            self.close()
            raise AssayError(f"{OWN}{self.address} did not answer within {STARTING:g} s. Check the server") from None
        except Exception as error:
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            what = f"{OWN}{self.address} cannot be reached: {type(cause).__name__}: {cause}"
            raise AssayError(f"{what}. Check the command or address") from error

    async def hold(self) -> None:
        """Connects, and stays until the client is closed."""
        try:
            async with AsyncExitStack() as stack:
                streams = await stack.enter_async_context(transport(self.address))
                library = require("mcp", "mcp", "the tools of a server")
                session = await stack.enter_async_context(library.ClientSession(streams[0], streams[1]))
                await session.initialize()
                self.connected.set_result(session)
                await asyncio.wait([self.ended])
        except BaseException as error:
            if not self.connected.done():
                self.connected.set_exception(error)
                return
            raise

    def schemas(self) -> list[dict[str, Any]]:
        """Returns the descriptions of the server's tools."""
        listed = self.asked(self.connected.result(0).list_tools())
        return [describe_tool(one) for one in listed.tools]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str | InfraFault:
        """Returns the texts of a result, after "error: " if the server says that it is one."""
        try:
            found = self.asked(self.connected.result(0).call_tool(name, dict(arguments)))
        except Exception as error:
            return InfraFault(f"{OWN}{self.address} failed: {type(error).__name__}")
        texts = [one.text if one.type == "text" else f"[{one.type}]" for one in found.content]
        return ("error: " if found.is_error else "") + "\n".join(texts)

    def asked(self, coroutine: Any) -> Any:
        """Returns what a coroutine gives on the event loop. The caller has a limit of time of its own."""
        return asyncio.run_coroutine_threadsafe(coroutine, event_loop(os.getpid())).result(threading.TIMEOUT_MAX)

    def close(self) -> None:
        """Ends the connection, and with it a process that was started for it."""
        event_loop(os.getpid()).call_soon_threadsafe(self.ended.cancel)
        assert self.task is not None
        try:
            self.task.result(CLOSING)
        except TimeoutError:
            self.task.cancel()
            raise


def transport(address: str) -> Any:
    """Returns the streams of a server, to be entered: by HTTP, or of a new process."""
    if address.startswith(("http://", "https://")):
        return require("mcp.client.streamable_http", "mcp").streamable_http_client(address)
    command, *arguments = shlex.split(address)
    library = require("mcp", "mcp", "the tools of a server")
    given = library.StdioServerParameters(command=command, args=arguments, cwd=os.getcwd())
    return library.stdio_client(given, errlog=sys.__stderr__)  # a notebook's own stream is no file


def describe_tool(tool: Any) -> dict[str, Any]:
    """Returns the description of a server's tool in OpenAI's format."""
    function = {"name": tool.name, "description": tool.description or tool.name, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


@lru_cache(maxsize=8)
def shared_client(address: str, process: int) -> Client:
    """Returns the client that all rollouts of a process share."""
    return Client(address)


def server_of(word: str) -> McpServer:
    """Returns the tools of the server that `--tool` names; AssayError if it cannot be reached or has none."""
    is_shared = word.startswith(SHARED)
    address = word.removeprefix(SHARED if is_shared else OWN).strip()
    if not address:
        raise AssayError(f"--tool {word} names no server. Use {OWN}COMMAND or {OWN}http://HOST:PORT/PATH.")
    client = Client(address)
    try:
        schemas = client.schemas()
    finally:
        client.close()
    if not schemas:
        raise AssayError(f"--tool {word}: the server has no tools. Check its address.")
    return McpServer(address, tuple(schemas), is_shared)
