"""Tools of an MCP client as host functions: a program inside calls them, and the model writes the program."""

from __future__ import annotations

import asyncio
import inspect
import keyword
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from sandbox_kernel.errors import InvalidRequest, SandboxError

if TYPE_CHECKING:
    import mcp.types as types
    from mcp import Client

_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
}


class ToolFailed(SandboxError):
    """A tool of a client answered with an error. The message is the tool's."""

    code = "tool_failed"


async def client_functions(
    client: Client, names: Collection[str] | None = None
) -> dict[str, Callable[..., Awaitable[object]]]:
    """Return the tools of a connected client as functions, by names that a program can use; ``names``: only these.

    Calls run on this event loop: use ``box.arun`` on it. Raises ``InvalidRequest`` for tools that are missing or share
    a name.
    """
    loop = asyncio.get_running_loop()
    page = await client.list_tools()
    tools = {tool.name: tool for tool in page.tools}
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools |= {tool.name: tool for tool in page.tools}
    unknown = [name for name in names or () if name not in tools]
    if unknown:
        raise InvalidRequest(f"the client has no tool {unknown[0]!r:.80}; it has: {', '.join(tools)}")
    found: dict[str, Callable[..., Awaitable[object]]] = {}
    for name in tools if names is None else names:
        inside = function_name(name)
        if inside in found:
            raise InvalidRequest(f"two tools are called {inside} inside; choose one with names=…")
        found[inside] = _function(client, loop, tools[name], inside)
    return found


def function_name(tool: str) -> str:
    """Return a tool's name as a name of Python: what cannot stand in one becomes ``_``."""
    name = re.sub(r"\W", "_", tool, flags=re.ASCII).lstrip("_")
    return f"tool_{name}" if not name.isidentifier() or keyword.iskeyword(name) else name


def signature_of(schema: Mapping[str, object]) -> inspect.Signature:
    """Return the signature that a tool's schema means: its fields as keyword arguments, optional ones with None."""
    fields, required = schema.get("properties"), schema.get("required")
    needed, parameters = set(required) if isinstance(required, list) else set(), []
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            continue  # it cannot be written as an argument
        kind = field.get("type") if isinstance(field, Mapping) else None
        hint = _TYPES.get(kind, Any) if isinstance(kind, str) else Any
        one = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hint)
        if name not in needed:
            one = one.replace(default=None, annotation=hint if hint is Any else hint | None)
        parameters.append(one)
    parameters.sort(key=lambda each: each.default is not inspect.Parameter.empty)
    return inspect.Signature(parameters)


def _function(
    client: Client, loop: asyncio.AbstractEventLoop, tool: types.Tool, name: str
) -> Callable[..., Awaitable[object]]:
    signature = signature_of(tool.input_schema)

    async def call(*args: object, **kwargs: object) -> object:
        bound = signature.bind(*args, **kwargs)
        given = {key: value for key, value in bound.arguments.items() if value is not None}
        asked = client.call_tool(tool.name, given)
        if asyncio.get_running_loop() is loop:
            return _value(await asked)
        return _value(await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, loop)))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = tool.description or tool.title or ""
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return call


def _value(result: types.CallToolResult) -> object:
    """Return what a tool answered: its structured content, else its text. Raises ``ToolFailed`` for an error."""
    texts = [text for block in result.content if isinstance(text := getattr(block, "text", None), str)]
    if result.is_error:
        raise ToolFailed("\n".join(texts) or "the tool failed without a message")
    return "\n".join(texts) if result.structured_content is None else result.structured_content
