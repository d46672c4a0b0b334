"""The tools of sessions: ``session_run``, ``session_undo``, ``session_explore`` and ``session_keep``.

Sessions have names, so that a model can use several; a session is opened by its first cell.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sandbox_kernel.agent.answer import Answer, bounded, result_answer, with_failures, with_hints
from sandbox_kernel.agent.arguments import Fields, shown
from sandbox_kernel.agent.describe import MOST_TIMEOUT_S
from sandbox_kernel.agent.mcp import tool_specs as specs
from sandbox_kernel.agent.mcp.explore_tools import Explorations
from sandbox_kernel.agent.mcp.permission.domain_rights import DomainRights
from sandbox_kernel.agent.mcp.pictures import pictures_of
from sandbox_kernel.agent.mcp.tool_call import Reply, ToolCall
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.model import ExecResult, Language
from sandbox_kernel.session.opening.open_session import session_languages
from sandbox_kernel.session.session import Session

MOST_SESSIONS: Final = 8
_MOST_DISPLAYS = 20
_MOST_DISPLAY_BYTES = 16 << 10
_SESSION_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


class _NamedSession:
    """A named session. ``turn`` lets one call run at a time, so that cancelling a waiting call interrupts no other."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.session: Session | None = None
        self.language = Language.PYTHON


class SessionTools:
    """The named sessions of one server. ``rights`` has the sandbox, ``limits`` returns the limits of its cells."""

    def __init__(self, rights: DomainRights, limits: Callable[[], Limits]) -> None:
        self._rights, self._limits = rights, limits
        self._explored = Explorations()
        self._sessions: dict[str, _NamedSession] = {}

    def running(self) -> list[Session]:
        """Return the sessions that are open."""
        return [named.session for named in self._sessions.values() if named.session is not None]

    async def run(self, call: ToolCall) -> Reply:
        """Run a cell."""
        fields = Fields(call.args, ("code", "language", "session", "timeout_secs", "restart"))
        language = _language(fields)
        name, code = _session_name(fields, language), fields.text("code")
        timeout = fields.whole("timeout_secs", int(DEFAULT_TIMEOUT_S), 1, MOST_TIMEOUT_S)
        restart = fields.flag("restart")
        named = self._named(name)
        async with named.turn:
            if call.cancel.is_set():
                raise InvalidRequest("the call was cancelled before its turn came; nothing was run")
            session = named.session
            if session is None:
                session = named.session = await asyncio.to_thread(self._open, name, language or Language.PYTHON)
                named.language = language or Language.PYTHON
            elif language not in (None, named.language):
                raise InvalidRequest(f"session {shown(name)} runs {named.language}, not {language}; use another name")
            elif restart:
                await asyncio.to_thread(session.restart)
            async with self._rights.in_cell(session):
                result = await session.arun(code, timeout, call.on_output, cancel=call.cancel)
        complete = replace(result, timeout=result.timeout or float(timeout))
        answer = {
            **with_failures(result_answer(with_hints(complete), self._limits().output_bytes)),
            "session": name,
            **_shown(result),
        }
        return Reply(answer=answer, pictures=pictures_of(result.displays), questions=self._rights.questions(result))

    async def undo(self, call: ToolCall) -> Reply:
        """Go back to the state before the last cells."""
        fields = Fields(call.args, ("session", "cells"))
        cells = fields.whole("cells", 1, 1, specs.MOST_CELLS_UNDONE)
        name, session, turn = self._open_one(fields)
        async with turn:
            result = await asyncio.to_thread(session.undo, cells)
        return Reply(answer={**result_answer(result), "session": name})

    async def explore(self, call: ToolCall) -> Reply:
        """Try several candidates, each from the present state."""
        fields = Fields(call.args, ("session", "candidates", "timeout_secs"))
        name, session, turn = self._open_one(fields)
        async with turn:
            return Reply(answer=await self._explored.explore(name, session, fields, call.cancel))

    async def keep(self, call: ToolCall) -> Reply:
        """Make one candidate the state."""
        fields = Fields(call.args, ("session", "candidate"))
        name, session, turn = self._open_one(fields)
        async with turn:
            return Reply(answer=await self._explored.keep(name, session, fields))

    def _open_one(self, fields: Fields) -> tuple[str, Session, asyncio.Lock]:
        """Return the name, the session and the lock of a session that is open. Raises ``InvalidRequest`` without it."""
        name = _session_name(fields)
        named = self._sessions.get(name)
        if named is None or named.session is None:
            known = ", ".join(known for known, other in self._sessions.items() if other.session is not None)
            raise InvalidRequest(f"there is no session {shown(name)}; open sessions: {known or 'none'}")
        return name, named.session, named.turn

    def _named(self, name: str) -> _NamedSession:
        taken = [known for known, named in self._sessions.items() if named.session is not None or named.turn.locked()]
        if name not in taken and len(taken) >= MOST_SESSIONS:
            raise InvalidRequest(f"there are {MOST_SESSIONS} sessions already, use one of them: {', '.join(taken)}")
        return self._sessions.setdefault(name, _NamedSession())

    def _open(self, name: str, language: Language) -> Session:
        return self._rights.box.session(language, name=name, limits=self._limits())


def _language(fields: Fields) -> Language | None:
    """Return the language of a cell; None when it is not given. Not every language has sessions."""
    name = fields.optional_text("language")
    if name is None:
        return None
    language = Language.parse(name)
    if language not in session_languages():
        known = ", ".join(session_languages())
        raise InvalidRequest(f"there are no sessions for {language}; expected one of: {known}, or use sandbox_exec")
    return language


def _session_name(fields: Fields, language: Language | None = None) -> str:
    """Return the name of the session; each language has a default session."""
    name = fields.optional_text("session")
    if name is None:
        return specs.DEFAULT_SESSION if language in (None, Language.PYTHON) else f"{specs.DEFAULT_SESSION}-{language}"
    if not _SESSION_NAME.match(name):
        raise InvalidRequest(f'"session" must be letters, digits, ".", "_" or "-", at most 64, got {shown(name)}')
    return name


def _shown(result: ExecResult) -> Answer:
    """Return the displays of a cell: values as text, and the MIME types of others."""
    parts: Answer = {}
    displays = [_display(item.data) for item in result.displays[:_MOST_DISPLAYS] if item.kind != "result"]
    values = [_display(item.data) for item in result.displays if item.kind == "result"]
    if values:
        parts["value"] = values[-1]["text"]
    if displays:
        parts["displays"] = displays
    if result.error is not None:
        parts["error"] = {
            "name": result.error.ename,
            "message": bounded(result.error.evalue, _MOST_DISPLAY_BYTES),
        }
    return parts


def _display(data: Mapping[str, object]) -> Answer:
    text = data.get("text/plain")
    kinds = sorted(mime for mime in data if mime != "text/plain")
    return {
        "text": bounded(text, _MOST_DISPLAY_BYTES) if isinstance(text, str) else "",
        "kinds": kinds[:_MOST_DISPLAYS],
    }
