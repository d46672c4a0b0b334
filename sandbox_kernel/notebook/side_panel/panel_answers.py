"""Answers one request of the side panel. What changes something goes the way of its ``%sandbox`` line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from sandbox_kernel.errors import Conflict, InvalidRequest, SandboxError
from sandbox_kernel.limits import quoted
from sandbox_kernel.notebook.execution import CellExecution, NotebookState, RunPanelHandle
from sandbox_kernel.notebook.line_commands import LineCommands, session_of
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import CellPlan, LineCommand, new_defaults
from sandbox_kernel.notebook.render import Message, ShowOutput
from sandbox_kernel.notebook.side_panel import panel_facts
from sandbox_kernel.notebook.side_panel.panel_request import (
    Content,
    action_of,
    command_of,
    limits_of_dialog,
    state_of,
    text_of,
    texts_of,
)

if TYPE_CHECKING:
    from sandbox_kernel.notebook.execution import LateDoor
    from sandbox_kernel.session.cell.displays import SessionDisplay

#: How many cells are remembered with the number under which they ran.
_MOST_CELLS = 5000


class PanelDesk:
    """The side panel's counterpart in the kernel: one for each notebook."""

    def __init__(self, state: NotebookState) -> None:
        self._state = state
        self._cells: dict[int, str] = {}

    def ran(self, number: int, cell_id: object) -> None:
        """Remember which cell of the notebook ran under this number."""
        if isinstance(cell_id, str) and 0 < len(cell_id) <= 64:
            self._cells[number] = cell_id
            if len(self._cells) > _MOST_CELLS:
                del self._cells[next(iter(self._cells))]

    async def answer(self, content: object, cancel: asyncio.Event) -> dict[str, object]:
        """Return the content of the reply. It never raises for anything that a request can cause."""
        try:
            action, request = action_of(content)
            if action in _WITH_LIMITS:
                after = limits_of_dialog(request, self._state.defaults)
                plan = CellPlan(code="", options=after, commands=(_WITH_LIMITS[action],), defaults=after)
                return await self._do(plan, cancel)
            if (command := command_of(action, request)) is not None:
                defaults = new_defaults(command, self._state.defaults)
                return await self._do(
                    CellPlan(code="", options=defaults, commands=(command,), defaults=defaults), cancel
                )
            look = _LOOKS.get(action)
            if look is None:
                raise InvalidRequest(f"there is no action {quoted(action)}; known ones: {', '.join(sorted(_LOOKS))}")
            work = partial(look, self, request)
            return {"status": "ok", **await asyncio.get_running_loop().run_in_executor(None, work)}
        except SandboxError as error:
            return failed(error)

    async def _do(self, plan: CellPlan, cancel: asyncio.Event) -> dict[str, object]:
        """Run line commands as a cell would, and return what they say. Only the user's press sends such a request."""
        door = _TextDoor()
        done = await CellExecution(self._state, door, _no_input, cancel).run_plan(plan, pressed=True)
        if done.bug is not None:
            raise done.bug
        if done.refused is not None:
            return failed(done.refused)
        if done.failure is not None:
            return {"status": "error", "error": done.failure.evalue, "conflicts": []}
        return {"status": "ok", "text": "\n".join(door.texts)}

    def _context(self) -> LineCommands:
        return LineCommands(self._state.sandboxes, self._state.defaults, self._state.files)

    def _overview(self, request: Content) -> dict[str, object]:
        return panel_facts.overview(self._context())

    def _changes(self, request: Content) -> dict[str, object]:
        return panel_facts.changes(self._state.sandboxes.box(self._state.defaults))

    def _change(self, request: Content) -> dict[str, object]:
        return panel_facts.change(self._state.sandboxes.box(self._state.defaults), text_of(request, "path"))

    def _tree(self, request: Content) -> dict[str, object]:
        context = self._context()
        session = context.sandboxes.sessions.find(CellOptions())
        return panel_facts.tree(() if session is None else session.history(), self._cells)

    def _compare(self, request: Content) -> dict[str, object]:
        session = session_of(LineCommand(name="diff"), self._context())
        return panel_facts.difference(session.diff(state_of(request, "before"), state_of(request, "after")))

    def _rights(self, request: Content) -> dict[str, object]:
        return self._state.rights.survey(texts_of(request, "cells"), self._state.defaults)

    def _allow_rights(self, request: Content) -> dict[str, object]:
        self._state.rights.allow_surveyed(text_of(request, "key"))
        return {}

    def _report(self, request: Content) -> dict[str, object]:
        return {"report": self._state.sandboxes.box(self._state.defaults).report().to_dict()}


#: Actions that take the fields of the dialog: what a running session can follow, or a new session with its variables.
_WITH_LIMITS = {"limits": LineCommand(name="defaults"), "restart": LineCommand(name="restart", keep=True)}

_LOOKS: Mapping[str, Callable[[PanelDesk, Content], dict[str, object]]] = {
    "overview": PanelDesk._overview,
    "changes": PanelDesk._changes,
    "change": PanelDesk._change,
    "tree": PanelDesk._tree,
    "compare": PanelDesk._compare,
    "report": PanelDesk._report,
    "rights": PanelDesk._rights,
    "allow-rights": PanelDesk._allow_rights,
}


def failed(error: SandboxError) -> dict[str, object]:
    """Return the reply for a request that was refused."""
    conflicts = error.paths[: panel_facts.MOST_CHANGES] if isinstance(error, Conflict) else ()
    return {"status": "error", "error": str(error), "conflicts": list(conflicts)}


class _TextDoor:
    """A ``Door`` that keeps what line commands say, as plain text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def live(self, timeout_s: float, stop: Callable[[], None]) -> RunPanelHandle | None:
        """See ``execution.Door``."""
        return None

    def watched(self) -> bool:
        """See ``execution.Door``."""
        return False

    def late(self, messages: Callable[[SessionDisplay], list[Message]]) -> LateDoor | None:
        """See ``execution.Door``."""
        return None

    def stream(self, name: str, text: str) -> None:
        """See ``execution.Door``."""

    def message(self, message: Message) -> None:
        """See ``execution.Door``."""
        if isinstance(message, ShowOutput):
            self.texts.append(str(message.data.get("text/plain", "")))


async def _no_input(prompt: str, password: bool) -> NoReturn:
    raise EOFError("the side panel answers no questions")
