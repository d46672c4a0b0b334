"""What an MCP tool is: a name, words for the model, declared arguments, and the function that carries it out.

The arguments of a tool are a struct; its JSON Schema is made from it, and a call is checked against it. Nothing here
depends on MCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sandbox_kernel.agent.mcp.permissions import Reply
from sandbox_kernel.agent.tool import MOST_TIMEOUT_S
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.ground.wire import BadMessage, check
from sandbox_kernel.model import OnOutput

Schema = dict[str, object]

Timeout = Annotated[
    int,
    Meta(ge=1, le=MOST_TIMEOUT_S, description="Wall-clock limit in seconds; what was printed until then is kept."),
]
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool. A field with a default may be missing or null."""


def answer_schema(*required: str, **properties: Schema) -> Schema:
    """Return the JSON Schema of an answer with these fields; it may have more."""
    status: Schema = {"type": "string", "enum": ["success", "failed", "timeout", "memory_exceeded", "error"]}
    return {"type": "object", "properties": {"status": status, **properties}, "required": ["status", *required]}


RUN_ANSWER = answer_schema(
    "stdout", "stderr", "exit_code", "duration_ms",
    stdout=TEXT, stderr=TEXT, exit_code={"type": ["integer", "null"]}, duration_ms={"type": "integer", "minimum": 0},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call: its arguments, the callback for output, and the event that cancels it."""

    args: Mapping[str, object]
    on_output: OnOutput | None = None
    cancel: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool. The last three fields are hints for clients, not promises."""

    name: str
    title: str
    description: str
    act: Callable[[Any, ToolCall], Awaitable[Reply]]
    arguments: type[Arguments] | None = None
    output: Schema = field(default_factory=dict)
    read_only: bool = False
    destructive: bool = False
    open_world: bool = False

    @property
    def schema(self) -> Schema:
        """The arguments as JSON Schema."""
        assert self.arguments is not None
        _, components = msgspec.json.schema_components([self.arguments])
        return {
            name: each
            for name, each in components[self.arguments.__name__].items()
            if name not in ("title", "description")
        }

    async def call(self, call: ToolCall) -> Reply:
        """Check the arguments and carry the tool out. Raises ``InvalidRequest`` with words that a model can act on."""
        if self.arguments is None:
            return await self.act(call.args, call)
        given = {name: value for name, value in call.args.items() if value is not None}
        try:
            asked = check(given, self.arguments)
        except BadMessage as error:
            known = ", ".join(self.arguments.__struct_fields__)
            raise InvalidRequest(f"wrong arguments of {self.name}: {error}; known fields: {known}") from None
        return await self.act(asked, call)
