"""Which domains the user of one MCP server let programs reach, and how the user is asked; each answer is written down.

A right for one call holds for the next run or cell, one for the session until the server ends. The user answers, never
the model. An older client is sent the question while its call waits. A newer one gets it as the result of its call, and
calls again with the answer; the run is not repeated, its reply is kept. A client that cannot ask gets the reply alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from sandbox_kernel.agent.mcp.mcp_tool import Reply
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import PolicyViolation, SessionError
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.notes import RightAnswer, Wanted
from sandbox_kernel.net.audit import AuditRecord
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.policy.network_rule import lacked_domains, parse_rule
from sandbox_kernel.session.session import Session, reaching
from sandbox_kernel.session.session_rights import RightAnswers

if TYPE_CHECKING:
    import mcp.types as types
    from mcp.server import ServerRequestContext
    from mcp.server.session import ServerSession

#: Most questions of one call: how many hosts a program tries, the program decides.
MOST_QUESTIONS = 3
#: Most replies that wait for an answer; the oldest is given up.
_MOST_WAITING = 16
_FIELD = "answer"
#: What the audit log and the user's form call each answer.
_WORDS = {
    RightAnswer.ONCE: ("granted_once", "Allow once, in the next run"),
    RightAnswer.SESSION: ("granted", "Allow until the server ends"),
    RightAnswer.NEVER: ("declined", "Never, and do not ask again"),
}


class DomainRights:
    """The rights of one server. ``box`` is the sandbox under what holds until the server ends."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self._answers = RightAnswers()

    def questions(self, result: ExecResult) -> tuple[Wanted, ...]:
        """Return the domains that a run lacked and that the user may be asked for."""
        return tuple(each for each in lacked_domains(result) if each not in self._answers.never)[:MOST_QUESTIONS]

    def settle(self, wanted: Wanted, answer: RightAnswer, sessions: Iterable[Session]) -> str:
        """Change the policy by an answer, write it down, and return what holds now, for the model."""
        rule = parse_rule(wanted.what)
        port = rule.ports[0] if rule.ports else 0
        self.box.write_down(AuditRecord(event=_WORDS[answer][0], via="mcp", method="", host=rule.domain, port=port))
        if answer is RightAnswer.NEVER:
            self._answers.refuse(wanted)
            return f"the user does not let programs reach {wanted.what}, and is not asked again"
        if answer is RightAnswer.ONCE:
            self._answers.allow(wanted, once=True)
            return f"the user lets the next run or cell reach {wanted.what}; run it again"
        self.box = self.box.under(_reaching(self.box.policy, (wanted,)))
        refused = [session.name for session in sessions if not _allowed(session, wanted)]
        but = f", but not the sessions that run already ({', '.join(refused)}): restart them" if refused else ""
        return f"the user lets programs reach {wanted.what} from now on{but}; run it again"

    def box_for_next(self) -> Sandbox:
        """Return the sandbox for the next run; rights for one call are used up by it."""
        once = self._answers.take_once()
        return self.box.under(_reaching(self.box.policy, once)) if once else self.box

    def in_cell(self, session: Session) -> AbstractAsyncContextManager[None]:
        """Let a session reach the domains of the next call meanwhile; connections to them end with the cell."""
        return reaching(session, [wanted.what for wanted in self._answers.take_once()])


def _reaching(policy: SandboxPolicy, domains: Iterable[Wanted]) -> SandboxPolicy:
    for wanted in domains:
        rule = parse_rule(wanted.what)
        policy = policy.allow_domain(rule.domain, *rule.ports)
    return policy


def _allowed(session: Session, wanted: Wanted) -> bool:
    """Let a running session reach a domain; returns whether it could be given that."""
    try:
        if not session.reaches(wanted.what):
            session.allow(domain=wanted.what)
    except (PolicyViolation, SessionError):
        return False
    return True


_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        _FIELD: {
            "type": "string",
            "title": "Network access",
            "oneOf": [{"const": str(answer), "title": title} for answer, (_, title) in _WORDS.items()],
        }
    },
    "required": [_FIELD],
}


class Questions:
    """Asks the users of one server; ``settle`` changes the policy by an answer and returns what holds now."""

    def __init__(self, settle: Callable[[Wanted, RightAnswer], str]) -> None:
        self._settle = settle
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

    async def _settled(self, reply: Reply, answers: Mapping[Wanted, RightAnswer | None]) -> Reply:
        """Change the policy by the answers. A question that was put aside changes nothing and is asked again."""
        told = [
            await asyncio.to_thread(self._settle, wanted, answer)
            for wanted, answer in answers.items()
            if answer is not None
        ]
        notes = reply.answer.get("notes")
        all_notes = [*(notes if isinstance(notes, list) else []), *told]
        return Reply(answer={**reply.answer, **({"notes": all_notes} if all_notes else {})}, pictures=reply.pictures)


async def _elicited(session: ServerSession, wanted: Wanted) -> RightAnswer | None:
    """Ask the user of an older client. Whatever its client makes of the question, the reply of the run is not lost."""
    try:
        return _answer(await session.elicit_form(_text(wanted), _SCHEMA))
    except Exception:  # an error in place of an answer, or an answer that the protocol does not know
        return None


def _text(wanted: Wanted) -> str:
    return f"A program in the sandbox wanted to reach {wanted.what}. May programs reach it?"


def _answer(found: object) -> RightAnswer | None:
    """Return what the user chose; None for a question that was declined or put aside."""
    content = getattr(found, "content", None)
    if getattr(found, "action", None) != "accept" or not isinstance(content, Mapping):
        return None
    try:
        return RightAnswer(content.get(_FIELD))  # type: ignore[arg-type]
    except ValueError:
        return None
