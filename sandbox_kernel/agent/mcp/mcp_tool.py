"""What an MCP tool is: a method whose name, docstring and parameters are what clients see and calls are checked by."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

import msgspec

from sandbox_kernel.agent.sandbox_tool import Answer, schema_of
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import OnOutput
from sandbox_kernel.model.notes import Wanted
from sandbox_kernel.util.wire import BadMessage, check

Schema = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call: its arguments, the callback for output, and the event that cancels it."""

    args: Mapping[str, object]
    on_output: OnOutput | None = None
    cancel: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answer of a call, and pictures as base64 PNG."""

    answer: Answer
    pictures: tuple[str, ...] = ()
    #: Domains that the program lacked and that the user may be asked for.
    questions: tuple[Wanted, ...] = ()


@dataclass(frozen=True)
class Tool:
    """One tool. ``act`` gets the call and its arguments. The last three fields are hints for clients, not promises."""

    act: Callable[..., Awaitable[Reply]]
    title: str
    read_only: bool = False
    destructive: bool = False
    open_world: bool = False

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.act.__name__

    @property
    def description(self) -> str:
        """The docstring of the method, for the model."""
        return " ".join((self.act.__doc__ or "").split())

    @cached_property
    def _arguments(self) -> type[msgspec.Struct]:
        """The parameters after ``call`` as a struct. One with a default may be missing or null."""
        hints = get_type_hints(self.act, include_extras=True)
        _, *parameters = inspect.signature(self.act).parameters.values()
        fields = [
            (each.name, hints[each.name], *(() if each.default is each.empty else (each.default,)))
            for each in parameters
        ]
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)

    @property
    def schema(self) -> Schema:
        """The arguments as JSON Schema."""
        return schema_of(self._arguments)

    async def call(self, call: ToolCall) -> Reply:
        """Check the arguments and carry the tool out. Raises ``InvalidRequest`` with words that a model can act on."""
        given = {name: value for name, value in call.args.items() if value is not None}
        try:
            asked = check(given, self._arguments)
        except BadMessage as error:
            known = ", ".join(self._arguments.__struct_fields__)
            raise InvalidRequest(f"wrong arguments of {self.name}: {error}; known fields: {known}") from None
        arguments: dict[str, Any] = msgspec.structs.asdict(asked)
        return await self.act(call, **arguments)
