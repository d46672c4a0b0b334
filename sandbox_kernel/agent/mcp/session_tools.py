"""The tools of sessions: ``session_run``, ``session_undo``, ``session_explore`` and ``session_keep``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final

from msgspec import Meta

from sandbox_kernel.agent.mcp.mcp_tool import Reply, Tool, ToolCall
from sandbox_kernel.agent.mcp.permissions import DomainRights
from sandbox_kernel.agent.sandbox_tool import Answer, Timeout, bounded, result_answer, shown, with_failures
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.model import Display, ExecResult, Language
from sandbox_kernel.session.cell.request import MAX_CHECKPOINTS
from sandbox_kernel.session.language_workers import ENGINES
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.time_travel import Exploration
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.media import check_image

MOST_SESSIONS: Final = 8
MOST_CANDIDATES: Final = 16
_DEFAULT = "default"
_MOST_DISPLAYS = 20
_MOST_DISPLAY_BYTES = 16 << 10
_NONE = -1
#: Pictures of an answer, and bytes of one.
MOST_PICTURES, MOST_PICTURE_BYTES = 4, 1 << 20

_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="Name of the session.")]
_Language = Annotated[
    str,
    Meta(
        description="Language of the cell; by default that of an existing session.",
        extra_json_schema={"enum": [str(language) for language in ENGINES]},
    ),
]


class _NamedSession:
    """A named session. ``turn`` lets one call run at a time, so that cancelling a waiting call interrupts no other."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.session: Session | None = None
        self.language = Language.PYTHON
        #: What was explored last.
        self.explored: Exploration | None = None


class SessionTools:
    """The named sessions of one server. ``rights`` has the sandbox, ``limits`` returns the limits of its cells."""

    def __init__(self, rights: DomainRights, limits: Callable[[], Limits]) -> None:
        self._rights, self._limits = rights, limits
        self._sessions: dict[str, _NamedSession] = {}

    def tools(self, *, open_world: bool) -> tuple[Tool, ...]:
        """Return the tools, in the order in which clients list them."""
        return (
            Tool(self.session_run, "Run a cell in a session", open_world=open_world),
            Tool(self.session_undo, "Take back cells of a session", destructive=True),
            Tool(self.session_explore, "Try several cells from the same state", open_world=open_world),
            Tool(self.session_keep, "Keep one of the explored candidates"),
        )

    def running(self) -> list[Session]:
        """Return the sessions that are open."""
        return [named.session for named in self._sessions.values() if named.session is not None]

    async def session_run(
        self,
        call: ToolCall,
        code: Annotated[str, Meta(description="The cell; the last expression's value is returned.")],
        language: _Language = "",
        session: _Name = _DEFAULT,
        timeout_secs: Timeout = int(DEFAULT_TIMEOUT_S),
        restart: Annotated[bool, Meta(description="Restart the session before the code runs.")] = False,
    ) -> Reply:
        """Run code in a session whose variables, imports and files live on from call to call, like notebook cells.

        A cell that times out, runs out of memory or crashes is taken back: the session is as it was before it, and its
        output is kept. The value of the last expression is in "value", figures come as images. Each language has
        sessions of its own; all share the files in /box with sandbox_exec, read_file and write_file.
        """
        asked = Language.parse(language) if language else None
        if asked is not None and asked not in ENGINES:
            known = ", ".join(ENGINES)
            raise InvalidRequest(f"there are no sessions for {asked}; expected one of: {known}, or use sandbox_exec")
        name = session
        if name == _DEFAULT and asked not in (None, Language.PYTHON):
            name = f"{_DEFAULT}-{asked}"  # each language has a default session
        taken = [known for known, other in self._sessions.items() if other.session is not None or other.turn.locked()]
        if name not in taken and len(taken) >= MOST_SESSIONS:
            raise InvalidRequest(f"there are {MOST_SESSIONS} sessions already, use one of them: {', '.join(taken)}")
        named = self._sessions.setdefault(name, _NamedSession())
        async with named.turn:
            if call.cancel.is_set():
                raise InvalidRequest("the call was cancelled before its turn came; nothing was run")
            running = named.session
            if running is None:
                named.language = asked or Language.PYTHON
                running = named.session = await asyncio.to_thread(
                    self._rights.box.session, named.language, name=name, limits=self._limits()
                )
            elif asked not in (None, named.language):
                raise InvalidRequest(f"session {shown(name)} runs {named.language}, not {asked}; use another name")
            elif restart:
                await asyncio.to_thread(running.restart)
            async with self._rights.in_cell(running):
                result = await running.arun(code, timeout_secs, call.on_output, cancel=call.cancel)
        answer = {
            **with_failures(result_answer(result, self._limits().output_bytes, hinted=True)),
            "session": name,
            **_shown(result),
        }
        return Reply(answer=answer, pictures=pictures_of(result.displays), questions=self._rights.questions(result))

    async def session_undo(
        self, call: ToolCall, session: _Name = _DEFAULT, cells: Annotated[int, Meta(ge=1, le=MAX_CHECKPOINTS)] = 1
    ) -> Reply:
        """Bring a session back to the state before its last cells, files included."""
        named, running = self._open_one(session)
        async with named.turn:
            result = await asyncio.to_thread(running.undo, cells)
        return Reply(answer={**result_answer(result), "session": session})

    async def session_explore(
        self,
        call: ToolCall,
        candidates: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MOST_CANDIDATES)],
        session: _Name = _DEFAULT,
        timeout_secs: Timeout = int(DEFAULT_TIMEOUT_S),
    ) -> Reply:
        """Run candidates one after another, each from the present variables and files of a session.

        Compare their results. Afterwards the session is where it was; session_keep makes one candidate its state. Use
        it to try several fixes, parameters or rewrites without undoing each.
        """
        named, running = self._open_one(session)
        async with named.turn:
            work = asyncio.ensure_future(asyncio.to_thread(running.explore, list(candidates), timeout_secs))
            stop = asyncio.ensure_future(call.cancel.wait())
            while not work.done():
                await asyncio.wait({work, stop}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if stop.done() and not work.done():
                    running.interrupt()  # once for each candidate that is left
                    await asyncio.wait({work}, timeout=1.0)
            stop.cancel()
            found = named.explored = await work
        results = [with_failures(result_answer(result, hinted=True)) for result in found.results]
        can_be_kept = [number for number, node in enumerate(found.nodes) if node is not None]
        answer: Answer = {"status": "success", "session": session, "results": results, "can_be_kept": can_be_kept}
        return Reply(answer=answer)

    async def session_keep(
        self,
        call: ToolCall,
        candidate: Annotated[
            int, Meta(ge=_NONE, lt=MOST_CANDIDATES, description="Its number, counted from 0; -1 drops all candidates.")
        ] = _NONE,
        session: _Name = _DEFAULT,
    ) -> Reply:
        """Make a candidate of the last session_explore the state of the session; without one, drop them all."""
        named, _ = self._open_one(session)
        async with named.turn:
            found = named.explored
            if found is None:
                raise InvalidRequest(f"session {session} has no candidates; session_explore makes some")
            if candidate == _NONE:
                await asyncio.to_thread(found.discard)
                kept: Answer = {"status": "success"}
            else:
                kept = result_answer(await asyncio.to_thread(found.keep, candidate))
            named.explored = None
        return Reply(answer={**kept, "session": session})

    def _open_one(self, name: str) -> tuple[_NamedSession, Session]:
        named = self._sessions.get(name)
        if named is None or named.session is None:
            known = ", ".join(known for known, other in self._sessions.items() if other.session is not None)
            raise InvalidRequest(f"there is no session {shown(name)}; open sessions: {known or 'none'}")
        return named, named.session


def _shown(result: ExecResult) -> Answer:
    """Return the displays of a cell: values as text, and the MIME types of others."""
    parts: Answer = {}
    if values := [item.data for item in result.displays if item.kind == "result"]:
        parts["value"] = _text(values[-1])
    if others := [item.data for item in result.displays[:_MOST_DISPLAYS] if item.kind != "result"]:
        parts["displays"] = [
            {"text": _text(each), "kinds": sorted(each.keys() - {"text/plain"})[:_MOST_DISPLAYS]} for each in others
        ]
    if result.error is not None:
        parts["error"] = {"name": result.error.ename, "message": bounded(result.error.evalue, _MOST_DISPLAY_BYTES)}
    return parts


def _text(data: Mapping[str, object]) -> str:
    text = data.get("text/plain")
    return bounded(text, _MOST_DISPLAY_BYTES) if isinstance(text, str) else ""


def pictures_of(displays: Iterable[Display]) -> tuple[str, ...]:
    """Return the last few pictures as canonical base64. They are untrusted, and checked as those of a page are."""
    found: list[str] = []
    for each in displays:
        encoded = each.data.get("image/png")
        if isinstance(encoded, str) and len(encoded) <= MOST_PICTURE_BYTES * 4 // 3 + 4:
            with contextlib.suppress(ContentRefused):
                found.append(check_image("image/png", encoded))
    return tuple(found[-MOST_PICTURES:])
