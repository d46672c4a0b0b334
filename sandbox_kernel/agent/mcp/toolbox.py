"""Carries out the tools of one sandbox: runs, sessions, files and the report. Each call answers with JSON.

One toolbox serves one user: every caller can see its files and sessions. This module does not depend on MCP.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sandbox_kernel.agent.answer import (
    Answer,
    bounded,
    error_answer,
    result_answer,
    storable,
    with_failures,
    with_hints,
)
from sandbox_kernel.agent.arguments import Fields, shown
from sandbox_kernel.agent.box_backend import BoxBackend
from sandbox_kernel.agent.describe import MOST_TIMEOUT_S
from sandbox_kernel.agent.mcp import explore_tools
from sandbox_kernel.agent.mcp import tool_specs as specs
from sandbox_kernel.agent.mcp.explore_tools import Explorations
from sandbox_kernel.agent.mcp.here_tools import Act, here_tools
from sandbox_kernel.agent.mcp.permission.domain_rights import DomainAnswer, DomainRights
from sandbox_kernel.agent.mcp.pictures import pictures_of
from sandbox_kernel.agent.mcp.tool_specs import ToolSpec
from sandbox_kernel.agent.tool import SandboxTool, internal_error
from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S
from sandbox_kernel.model import ExecResult, Language
from sandbox_kernel.model.wanted import Wanted
from sandbox_kernel.session.opening.open_session import session_languages
from sandbox_kernel.session.session import Session
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, PackedFiles

_log = logging.getLogger(__name__)

MOST_SESSIONS: Final = 8
_MOST_ENTRIES = 1000
_MOST_DISPLAYS = 20
_MOST_DISPLAY_BYTES = 16 << 10
_SESSION_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_STATE = (
    "Each call starts anew, without variables or processes of earlier ones; the files in /box, the working folder, are "
    "shared by all calls, by sessions and by read_file, write_file and list_dir. A program that ends with another "
    'exit code than 0, or does not compile, has the status "failed" here.'
)


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


class _NamedSession:
    """A named session. ``turn`` lets one call run at a time, so that cancelling a waiting call interrupts no other."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.session: Session | None = None
        self.language = Language.PYTHON


class Toolbox:
    """The tools of a sandbox. Use it on one event loop; it ends with the sandbox."""

    def __init__(self, box: Sandbox, *, may_apply: bool = False) -> None:
        self._rights = DomainRights(box)
        self._explored = Explorations()
        self.exec = SandboxTool(BoxBackend(box), state=_STATE)
        self._sessions: dict[str, _NamedSession] = {}
        self._writing = threading.Lock()
        self._acts: dict[str, Callable[[ToolCall], Awaitable[Reply]]] = {
            self.exec.name: self._exec,
            "session_run": self._session_run,
            "session_undo": self._session_undo,
            explore_tools.SESSION_EXPLORE.name: self._session_explore,
            explore_tools.SESSION_KEEP.name: self._session_keep,
            "read_file": self._read_file,
            "write_file": self._write_file,
            "list_dir": self._list_dir,
            "report": self._report,
        }
        self._here = here_tools(box, may_apply=may_apply)
        self._acts |= {name: self._on_folder(act) for name, (_, act) in self._here.items()}

    @property
    def box(self) -> Sandbox:
        """The sandbox, with what the user let programs reach until the server ends."""
        return self._rights.box

    def settle(self, wanted: Wanted, answer: DomainAnswer) -> str:
        """Change the policy by what the user answered; returns what holds now."""
        running = [named.session for named in self._sessions.values() if named.session is not None]
        told = self._rights.settle(wanted, answer, running)
        self.exec.backend = BoxBackend(self.box)
        return told

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools."""
        return tuple(self._acts)

    async def specs(self) -> tuple[ToolSpec, ...]:
        """Return the description of each tool. The first call measures the sandbox, which takes some seconds."""
        tool = self.exec
        description = await asyncio.to_thread(lambda: tool.description)
        run = ToolSpec(
            name=tool.name,
            title="Run a program in a sandbox",
            description=description,
            parameters=tool.parameters_schema(),
            output=specs.RUN_ANSWER,
            open_world=self._open_world,
        )
        session = replace(specs.SESSION_RUN, open_world=self._open_world)
        here = (spec for spec, _ in self._here.values())
        return (
            run,
            session,
            specs.SESSION_UNDO,
            replace(explore_tools.SESSION_EXPLORE, open_world=self._open_world),
            explore_tools.SESSION_KEEP,
            specs.READ_FILE,
            specs.WRITE_FILE,
            specs.LIST_DIR,
            specs.REPORT,
            *here,
        )

    async def call(self, name: str, call: ToolCall) -> Reply:
        """Call a tool by its name and return the reply. Never raises for a known name."""
        act = self._acts[name]
        began = time.monotonic()
        try:
            return await act(call)
        except SandboxError as error:
            return Reply(answer=error_answer(error, time.monotonic() - began))
        except Exception as error:
            _log.exception("the tool %s failed", name)
            return Reply(answer=error_answer(internal_error(error), time.monotonic() - began))

    def _on_folder(self, act: Act) -> Callable[[ToolCall], Awaitable[Reply]]:
        async def answered(call: ToolCall) -> Reply:
            return Reply(answer=await act(dict(call.args)))

        return answered

    async def _exec(self, call: ToolCall) -> Reply:
        results: list[ExecResult] = []
        box = self._rights.box_for_next()
        tool = self.exec if box is self.box else self.exec.on(BoxBackend(box))
        answer = await tool.execute(call.args, on_output=call.on_output, cancel=call.cancel, on_result=results.append)
        questions = self._rights.questions(results[0]) if results else ()
        return Reply(answer=with_failures(answer), questions=questions)

    async def _session_run(self, call: ToolCall) -> Reply:
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
            **with_failures(result_answer(with_hints(complete), self.exec.limits.output_bytes)),
            "session": name,
            **_shown(result),
        }
        return Reply(answer=answer, pictures=pictures_of(result.displays), questions=self._rights.questions(result))

    async def _session_undo(self, call: ToolCall) -> Reply:
        fields = Fields(call.args, ("session", "cells"))
        cells = fields.whole("cells", 1, 1, specs.MOST_CELLS_UNDONE)
        name, session, turn = self._open_one(fields)
        async with turn:
            result = await asyncio.to_thread(session.undo, cells)
        return Reply(answer={**result_answer(result), "session": name})

    async def _session_explore(self, call: ToolCall) -> Reply:
        fields = Fields(call.args, ("session", "candidates", "timeout_secs"))
        name, session, turn = self._open_one(fields)
        async with turn:
            return Reply(answer=await self._explored.explore(name, session, fields, call.cancel))

    async def _session_keep(self, call: ToolCall) -> Reply:
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

    async def _read_file(self, call: ToolCall) -> Reply:
        fields = Fields(call.args, ("path", "offset", "max_bytes"))
        path, offset = fields.text("path"), fields.whole("offset", 0, 0, 1 << 62)
        most = fields.whole("max_bytes", specs.DEFAULT_READ_BYTES, 1, specs.MOST_FILE_BYTES)
        part, size = await asyncio.to_thread(self.box.read_file_part, path, offset, most)
        content, encoding, taken = _as_text(part)
        answer: Answer = {"status": "success", "content": content, "encoding": encoding, "size": size}
        if part and offset + taken < size:
            answer["next_offset"] = offset + taken
        return Reply(answer=answer)

    async def _write_file(self, call: ToolCall) -> Reply:
        fields = Fields(call.args, ("path", "content", "encoding"))
        path, content = fields.text("path"), fields.text("content")
        data = _as_bytes(content, fields.choice("encoding", specs.ENCODINGS[0], specs.ENCODINGS))
        if len(data) > specs.MOST_FILE_BYTES:
            most = specs.MOST_FILE_BYTES
            raise InvalidRequest(f"content has {len(data)} bytes, at most {most} are taken; write it from code")
        await asyncio.to_thread(self._write, path, data)
        return Reply(answer={"status": "success", "size": len(data)})

    def _write(self, path: str, data: bytes) -> None:
        """Write a file if the folder then still fits into a sandbox: a larger folder would make all later runs fail."""
        with self._writing:
            held = self.box.files
            names = set(held) - {path}
            total = held.total_bytes if isinstance(held, PackedFiles) else 0
            if total + len(data) > MAX_PACKED_BYTES or len(names) >= MAX_PACKED_FILES:
                raise InvalidRequest(
                    f"the shared folder holds {len(names)} files and {total} bytes, at most {MAX_PACKED_FILES} and "
                    f"{MAX_PACKED_BYTES} are taken; remove files from code first"
                )
            self.box.write_file(path, data)

    async def _list_dir(self, call: ToolCall) -> Reply:
        path = Fields(call.args, ("path",)).optional_text("path")
        found = await asyncio.to_thread(self.box.list_dir, path if path is not None else ".")
        listed = [
            {"name": each.name, "type": each.type, **({"size": each.size} if each.is_file else {})}
            for each in found[:_MOST_ENTRIES]
        ]
        answer: Answer = {"status": "success", "entries": storable(listed)}
        if len(found) > len(listed):
            answer["left_out"] = len(found) - len(listed)
        return Reply(answer=answer)

    async def _report(self, call: ToolCall) -> Reply:
        again = Fields(call.args, ("again",)).flag("again")
        report = await asyncio.to_thread(lambda: self.box.report(again=again))
        return Reply(answer={"status": "success", **report.to_dict()})

    @property
    def _open_world(self) -> bool:
        return self.box.policy.network or bool(self.box.policy.network_rules)

    def _named(self, name: str) -> _NamedSession:
        taken = [known for known, named in self._sessions.items() if named.session is not None or named.turn.locked()]
        if name not in taken and len(taken) >= MOST_SESSIONS:
            raise InvalidRequest(f"there are {MOST_SESSIONS} sessions already, use one of them: {', '.join(taken)}")
        return self._sessions.setdefault(name, _NamedSession())

    def _open(self, name: str, language: Language) -> Session:
        return self.box.session(language, name=name, limits=self.exec.limits)


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


def _as_text(data: bytes) -> tuple[str, str, int]:
    """Return part of a file as text or base64, and its number of bytes; no character is cut in two."""
    try:
        text, taken = codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError:
        taken = 0
    if data and not taken:
        return base64.b64encode(data).decode(), "base64", len(data)
    return text, "utf-8", taken


def _as_bytes(content: str, encoding: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True) if encoding == "base64" else content.encode()
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"content is not {encoding}: {error}") from None
