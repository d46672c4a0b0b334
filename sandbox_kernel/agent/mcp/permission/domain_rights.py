"""Which domains the user of one MCP server let programs reach, and for how long; each answer is written down.

A right for one call holds for the next run or cell. A right for the session holds for every later run and for all
sessions until the server ends. The user answers, never the model.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from enum import StrEnum, unique
from functools import partial

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import PolicyViolation, SessionError
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.notes import Wanted
from sandbox_kernel.net.audit import AuditRecord
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.policy.lacked_domains import lacked_domains
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.session.session import Session

#: Most questions of one call: how many hosts a program tries, the program decides.
MOST_QUESTIONS = 3


@unique
class DomainAnswer(StrEnum):
    """What the user may answer."""

    ONCE = "once"
    SESSION = "session"
    NEVER = "never"


_EVENTS = {DomainAnswer.ONCE: "granted_once", DomainAnswer.SESSION: "granted", DomainAnswer.NEVER: "declined"}


class DomainRights:
    """The rights of one server. ``box`` is the sandbox under what holds until the server ends."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self._once: dict[Wanted, None] = {}
        self._never: set[Wanted] = set()

    def questions(self, result: ExecResult) -> tuple[Wanted, ...]:
        """Return the domains that a run lacked and that the user may be asked for."""
        return tuple(each for each in lacked_domains(result) if each not in self._never)[:MOST_QUESTIONS]

    def settle(self, wanted: Wanted, answer: DomainAnswer, sessions: Iterable[Session]) -> str:
        """Change the policy by an answer, write it down, and return what holds now, for the model."""
        rule = parse_rule(wanted.what)
        port = rule.ports[0] if rule.ports else 0
        self.box.write_down(AuditRecord(event=_EVENTS[answer], via="mcp", method="", host=rule.domain, port=port))
        if answer is DomainAnswer.NEVER:
            self._never.add(wanted)
            return f"the user does not let programs reach {wanted.what}, and is not asked again"
        if answer is DomainAnswer.ONCE:
            self._once[wanted] = None
            return f"the user lets the next run or cell reach {wanted.what}; run it again"
        self.box = self.box.under(_reaching(self.box.policy, (wanted,)))
        refused = [session.name for session in sessions if not _allowed(session, wanted)]
        but = f", but not the sessions that run already ({', '.join(refused)}): restart them" if refused else ""
        return f"the user lets programs reach {wanted.what} from now on{but}; run it again"

    def box_for_next(self) -> Sandbox:
        """Return the sandbox for the next run; rights for one call are used up by it."""
        once = self._take()
        return self.box.under(_reaching(self.box.policy, once)) if once else self.box

    @contextlib.asynccontextmanager
    async def in_cell(self, session: Session) -> AsyncIterator[None]:
        """Let a session reach the domains of the next call meanwhile; connections to them end with the cell."""
        given = [wanted for wanted in self._take() if not session.reaches(wanted.what)]
        for wanted in given:
            await asyncio.to_thread(partial(session.allow, domain=wanted.what))
        try:
            yield
        finally:
            for wanted in given:
                with contextlib.suppress(SessionError):  # it was closed: nothing is left that could reach anything
                    await asyncio.to_thread(partial(session.revoke, domain=wanted.what))

    def _take(self) -> tuple[Wanted, ...]:
        once, self._once = tuple(self._once), {}
        return once


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
