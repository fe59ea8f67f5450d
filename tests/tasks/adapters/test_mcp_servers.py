"""The tools of an MCP server: a process for each rollout, its schemas, its errors, and its end."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import AssayError
from assay.core.record import InfraFault
from assay.runs.user_code.tools import tools_of
from assay.tasks.adapters.mcp_servers import Client, server_of
from assay.tasks.language.addition import addition
from assay.tasks.language.tools import ToolUse, with_tools

SERVER = '''
import os, time
from mcp.server.mcpserver import MCPServer

server = MCPServer("counter")
count = 0

@server.tool()
def add(by: int = 1) -> str:
    """Adds to the counter."""
    global count
    count += by
    return f"count {count}"

@server.tool()
def fail(how: str) -> str:
    """Fails."""
    if how == "exit":
        os._exit(3)
    if how == "wait":
        time.sleep(60)
    raise ValueError("no such thing")

server.run("stdio")
'''


@pytest.fixture
def command(tmp_path: Path) -> str:
    package = pytest.importorskip("mcp", reason="needs the extra mcp")
    path = f"import sys\nsys.path.append({str(Path(package.__file__).parents[1])!r})\n"  # a server has no PYTHONPATH
    (tmp_path / "server.py").write_text(path + SERVER)
    return f"{sys.executable} {tmp_path / 'server.py'}"


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.mark.parametrize("prefix", ["mcp:", "mcp-shared:"])
def test_each_rollout_has_a_server_of_its_own_unless_it_is_shared(command: str, prefix: str) -> None:
    (box,) = tools_of([prefix + command])
    assert [one["function"]["name"] for one in box.schemas] == ["add", "fail"]
    assert box.schemas[0]["function"]["parameters"]["properties"]["by"]["type"] == "integer"
    partner = ToolUse(addition(1).items, (box,))
    one, two = (partner.open(partner.item(place, 0), 0) for place in range(2))
    assert "count 1" in one.reply(call("add")).text
    assert ("count 1" in two.reply(call("add")).text) == (prefix == "mcp:")
    assert "error: argument 'by' of add is 'x', not integer" in one.reply(call("add", by="x")).text
    assert "error: " in one.reply(call("fail", how="raise")).text
    one.close()
    two.close()


def test_a_server_that_dies_or_hangs_is_a_fault_of_the_infrastructure(command: str) -> None:
    box = server_of("mcp:" + command)
    partner = ToolUse(addition(1).items, (box,), seconds=1.0)
    for how in ("exit", "wait"):
        session = partner.open(partner.item(0, 0), 0)
        begin = time.monotonic()
        assert isinstance(session.reply(call("fail", how=how)).outcome, InfraFault)
        assert time.monotonic() - begin < 5.0
        session.close()


def test_a_server_that_cannot_be_reached_is_one_sentence(command: str) -> None:
    with pytest.raises(AssayError, match=r"cannot be reached: .*Check the command or address"):
        Client("/no/such/command")


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(AssayError, match=r"mcp is needed for the tools of a server.*assay\[mcp\]"):
        with_tools(addition(1), tools_of(["mcp:python server.py"]), 2)
