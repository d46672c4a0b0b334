"""What goes into a tool and what comes out of it. Plain values; nothing here depends on MCP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_kernel.agent.answer import Answer
from sandbox_kernel.model import OnOutput
from sandbox_kernel.model.notes import Wanted


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
