"""The MCP tools that try several cells from the same state of a session: ``session_explore``, then ``session_keep``.

Each candidate begins with the present variables and files, and the session stays where it was until one is kept.
"""

from __future__ import annotations

import asyncio

from sandbox_kernel.agent.answer import Answer, result_answer, with_failures, with_hints
from sandbox_kernel.agent.arguments import Fields
from sandbox_kernel.agent.describe import MOST_TIMEOUT_S, timeout_schema
from sandbox_kernel.agent.mcp.tool_specs import SESSION_NAME, ToolSpec, answer_schema, object_schema
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.time_travel import Exploration

MOST_CANDIDATES = 16
_NONE = -1

SESSION_EXPLORE = ToolSpec(
    name="session_explore",
    title="Try several cells from the same state",
    description=(
        "Run candidates one after another, each from the present variables and files of a session, and compare their "
        "results. Afterwards the session is where it was; session_keep makes one candidate its state. Use it to try "
        "several fixes, parameters or rewrites without undoing each."
    ),
    parameters=object_schema(
        ["candidates"],
        candidates={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_CANDIDATES},
        session=SESSION_NAME,
        timeout_secs=timeout_schema(),
    ),
    output=answer_schema(results={"type": "array", "items": {"type": "object"}}),
)
SESSION_KEEP = ToolSpec(
    name="session_keep",
    title="Keep one of the explored candidates",
    description="Make a candidate of the last session_explore the state of the session; without one, drop them all.",
    parameters=object_schema(
        [],
        candidate={
            "type": "integer", "minimum": _NONE, "maximum": MOST_CANDIDATES - 1, "default": _NONE,
            "description": "Its number, counted from 0; -1 drops all candidates.",
        },
        session=SESSION_NAME,
    ),
    output=answer_schema(),
)  # fmt: skip


class Explorations:
    """The last exploration of each session of one server."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Session, Exploration]] = {}

    async def explore(self, name: str, session: Session, fields: Fields, cancel: asyncio.Event) -> Answer:
        """Run the candidates of a call; interrupts them when the call is cancelled."""
        codes = fields.texts("candidates", MOST_CANDIDATES)
        timeout = fields.whole("timeout_secs", int(DEFAULT_TIMEOUT_S), 1, MOST_TIMEOUT_S)
        running = asyncio.ensure_future(asyncio.to_thread(session.explore, codes, timeout))
        stop = asyncio.ensure_future(cancel.wait())
        while not running.done():
            await asyncio.wait({running, stop}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if stop.done() and not running.done():
                session.interrupt()  # once for each candidate that is left
                await asyncio.wait({running}, timeout=1.0)
        stop.cancel()
        found = await running
        self._last[name] = (session, found)
        results = [with_failures(result_answer(with_hints(result))) for result in found.results]
        can_be_kept = [number for number, node in enumerate(found.nodes) if node is not None]
        return {"status": "success", "session": name, "results": results, "can_be_kept": can_be_kept}

    async def keep(self, name: str, session: Session, fields: Fields) -> Answer:
        """Make a candidate the state of its session, or drop all."""
        candidate = fields.whole("candidate", _NONE, _NONE, MOST_CANDIDATES - 1)
        owner, found = self._last.pop(name, (None, None))
        if found is None or owner is not session:
            raise InvalidRequest(f"session {name} has no candidates; session_explore makes some")
        if candidate == _NONE:
            await asyncio.to_thread(found.discard)
            return {"status": "success", "session": name}
        try:
            result = await asyncio.to_thread(found.keep, candidate)
        except InvalidRequest:
            self._last[name] = (session, found)
            raise
        return {**result_answer(result), "session": name}
