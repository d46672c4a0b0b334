"""The question to the user of an MCP client, "may programs reach example.org?", in both generations of the protocol.

An older client is sent the question while its call waits. A newer one gets it as the result of its call, and calls
again with the answer; the run is not repeated, its reply is kept for that moment. A client that cannot ask its user
gets the reply without a question.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.agent.mcp.permission.domain_rights import DomainAnswer
from sandbox_kernel.agent.mcp.tool_call import Reply
from sandbox_kernel.agent.mcp.toolbox import Toolbox
from sandbox_kernel.model.notes import Wanted

if TYPE_CHECKING:
    import mcp.types as types
    from mcp.server import ServerRequestContext
    from mcp.server.session import ServerSession

#: Most replies that wait for an answer; the oldest is given up.
_MOST_WAITING = 16
_FIELD = "answer"
_TITLES = {
    DomainAnswer.ONCE: "Allow once, in the next run",
    DomainAnswer.SESSION: "Allow until the server ends",
    DomainAnswer.NEVER: "Never, and do not ask again",
}
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        _FIELD: {
            "type": "string",
            "title": "Network access",
            "oneOf": [{"const": str(answer), "title": title} for answer, title in _TITLES.items()],
        }
    },
    "required": [_FIELD],
}


class Questions:
    """Asks the users of one server."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._waiting: dict[str, Reply] = {}

    async def ask(
        self, reply: Reply, context: ServerRequestContext[dict[str, object]]
    ) -> Reply | types.InputRequiredResult:
        """Ask the user for what a run lacked. Returns the reply, with what was answered, or the question."""
        session = context.session
        able = session.client_capabilities
        if not reply.questions or able is None or able.elicitation is None:
            return reply
        if session.can_send_request:
            return await self._settled(reply, {each: await _elicited(session, each) for each in reply.questions})
        import mcp.types as types

        if session.protocol_version not in types.version.MODERN_PROTOCOL_VERSIONS:
            return reply
        state = secrets.token_urlsafe(16)
        while len(self._waiting) >= _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[state] = reply
        asked: dict[str, types.InputRequest] = {
            each.what: types.ElicitRequest(
                params=types.ElicitRequestFormParams(message=_text(each), requested_schema=_SCHEMA)
            )
            for each in reply.questions
        }
        return types.InputRequiredResult(input_requests=asked, request_state=state)

    async def answered(self, params: types.CallToolRequestParams) -> Reply | None:
        """Return the reply that a client calls again for, with what its user answered; None for a call of its own."""
        if params.request_state is None:
            return None
        reply = self._waiting.pop(params.request_state, None)
        if reply is None:
            return Reply(
                answer={"status": "error", "stdout": "", "stderr": "this question is over; call the tool again",
                        "exit_code": None, "duration_ms": 0}
            )  # fmt: skip
        given = params.input_responses or {}
        return await self._settled(reply, {each: _answer(given.get(each.what)) for each in reply.questions})

    async def _settled(self, reply: Reply, answers: Mapping[Wanted, DomainAnswer | None]) -> Reply:
        """Change the policy by the answers. A question that was put aside changes nothing and is asked again."""
        told = [
            await asyncio.to_thread(self._toolbox.settle, wanted, answer)
            for wanted, answer in answers.items()
            if answer is not None
        ]
        notes = reply.answer.get("notes")
        all_notes = [*(notes if isinstance(notes, list) else []), *told]
        return Reply(answer={**reply.answer, **({"notes": all_notes} if all_notes else {})}, pictures=reply.pictures)


async def _elicited(session: ServerSession, wanted: Wanted) -> DomainAnswer | None:
    """Ask the user of an older client. Whatever its client makes of the question, the reply of the run is not lost."""
    try:
        return _answer(await session.elicit_form(_text(wanted), _SCHEMA))
    except Exception:  # an error in place of an answer, or an answer that the protocol does not know
        return None


def _text(wanted: Wanted) -> str:
    return f"A program in the sandbox wanted to reach {wanted.what}. May programs reach it?"


def _answer(found: object) -> DomainAnswer | None:
    """Return what the user chose; None for a question that was declined or put aside."""
    content = getattr(found, "content", None)
    if getattr(found, "action", None) != "accept" or not isinstance(content, Mapping):
        return None
    try:
        return DomainAnswer(content.get(_FIELD))  # type: ignore[arg-type]
    except ValueError:
        return None
