"""Tools of an MCP client as host functions: a real client and server, called from inside a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("mcp")

from mcp import Client
from mcp.server import MCPServer

from sandbox_kernel import ExecResult, InvalidRequest, Sandbox
from sandbox_kernel.agent.mcp.client_tools import client_functions, function_name, signature_of


@asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    server = MCPServer("shop")

    @server.tool()
    def search(query: str, limit: int = 2) -> list[str]:
        """Search the shop."""
        return [f"{query} {number}" for number in range(limit)]

    @server.tool(name="say-hello")
    def say_hello(name: str) -> str:
        return f"hello {name}"

    @server.tool()
    def broken() -> str:
        raise ValueError("sold out")

    async with Client(server) as client:
        yield client


def with_box(act: Callable[[Sandbox, Client], Awaitable[ExecResult]]) -> ExecResult:
    async def go() -> ExecResult:
        async with connected() as client:
            with Sandbox(functions=await client_functions(client)) as box:
                return await act(box, client)

    return asyncio.run(go())


PROGRAM = """
from host import search, say_hello, broken, HostError
print(search("boat", limit=1), search(query="x"), say_hello("you"))
try: broken()
except HostError as error: print(error.type, "tool broken" in error.message)
try: search(5)
except HostError as error: print(error)
"""


def test_a_program_calls_the_tools_of_a_client() -> None:
    result = with_box(lambda box, client: box.arun(PROGRAM, timeout=60))
    assert result.ok, result.stderr
    first, second, third = result.stdout.splitlines()
    assert "boat 0" in first and "x 1" in first and "hello you" in first
    assert second == "ToolFailed True"
    assert third.startswith("TypeError: search() argument 'query': Expected `str`")
    assert [str(call.outcome) for call in result.calls] == ["ok", "ok", "ok", "error", "refused"]


def test_a_model_is_told_the_signatures_of_the_tools() -> None:
    async def go() -> str:
        async with connected() as client:
            with Sandbox(functions=await client_functions(client, ["search"])) as box:
                return box.describe_functions()

    text = asyncio.run(go())
    assert "def search(query: str, limit: int | None = None)" in text and "Search the shop." in text


def test_a_tool_that_is_not_there_is_told() -> None:
    async def go() -> None:
        async with connected() as client:
            with pytest.raises(InvalidRequest, match="no tool 'serch'; it has: search"):
                await client_functions(client, ["serch"])

    asyncio.run(go())


@pytest.mark.parametrize(
    ("tool", "name"), [("say-hello", "say_hello"), ("a.b/c", "a_b_c"), ("1st", "tool_1st"), ("import", "tool_import")]
)
def test_names_become_names_of_python(tool: str, name: str) -> None:
    assert function_name(tool) == name


def test_a_schema_of_a_stranger_makes_a_signature_or_leaves_out_what_it_cannot() -> None:
    schema = {
        "properties": {"a": {"type": "integer"}, "b c": {}, "import": {}, "d": True, "e": {"type": ["string"]}},
        "required": ["d", "a"],
    }
    assert str(signature_of(schema)) == "(a: int, d: Any, e: Any = None)"
    assert str(signature_of({"properties": 5, "required": None})) == "()"
