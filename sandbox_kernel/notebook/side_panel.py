"""Answers the requests of the side panel in JupyterLab: what changed, the tree of states, limits, and changes to them.

A ``sandbox_request`` comes from the page itself, on control while a cell runs: frames of outputs reach only the gate of
their widgets. Types and sizes are checked all the same. Changes go the way of their ``%sandbox`` lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NoReturn

import msgspec

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import Conflict, InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.limits import quoted
from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.line_commands import LineCommands, rights_rows, session_of
from sandbox_kernel.notebook.options.cell_options import CellOptions, without_packages
from sandbox_kernel.notebook.options.option_table import BY_NAME
from sandbox_kernel.notebook.options.own_rights import LineSetting
from sandbox_kernel.notebook.options.parse_cell import (
    LINES_VARIABLE,
    CellPlan,
    LineCommand,
    first_defaults,
    keep_user_limits,
    new_defaults,
    parse_line,
    parse_options,
    plan_line,
)
from sandbox_kernel.notebook.page.views import MOST_DIFF, picture_urls
from sandbox_kernel.notebook.render import Door, Message, ShowOutput
from sandbox_kernel.notebook.sessions import WouldLose
from sandbox_kernel.session.tree.node import Node, StateDiff
from sandbox_kernel.session.tree.variables import Seen, size_of
from sandbox_kernel.untrusted.ansi import plain
from sandbox_kernel.util.wire import BadMessage, check

#: The most changes and states that a reply lists, names of variables at a state, and characters of a value.
MOST_CHANGES, MOST_STATES, MOST_NAMES, MOST_VALUE = 500, 500, 40, 300
_MOST_CODE = 2000
#: The fields of the dialog for limits, and their options.
_DIALOG = {
    "timeout": BY_NAME["--timeout"],
    "memory": BY_NAME["--memory"],
    "here": BY_NAME["--here"],
    "domains": BY_NAME["--allow-net"],
    "mounts": BY_NAME["--mount"],
}
_PLAIN_LIMITS = frozenset({"timeout_s", "memory_mb"})

_State = Annotated[int, msgspec.Meta(ge=0)]
_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Texts = Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)]
_NONE = -1


class PanelRequest(msgspec.Struct):
    """What an action may be told; each takes what concerns it. A state that is not named is none of the tree."""

    path: _Text = ""
    paths: _Texts = ()
    #: The digest of the changes that the page shows.
    shown: _Text = ""
    state: _State = _NONE
    before: _State = _NONE
    after: _State = _NONE
    name: _Text = ""
    cells: _Texts = ()
    key: _Text = ""
    line: _Text = ""
    cell: _Text = ""
    #: Whether the user was asked about variables that would be lost.
    anyway: bool = False
    timeout: _Text | msgspec.UnsetType = msgspec.UNSET
    memory: _Text | msgspec.UnsetType = msgspec.UNSET
    here: _Text | msgspec.UnsetType = msgspec.UNSET
    domains: _Texts | msgspec.UnsetType = msgspec.UNSET
    mounts: _Texts | msgspec.UnsetType = msgspec.UNSET
    #: Whether time and memory are also those of all notebooks.
    every: bool = False


class PanelDesk:
    """The side panel's counterpart in the kernel. ``cells`` has the id of the cell that ran under each number."""

    def __init__(self, state: NotebookState, cells: Mapping[int, str]) -> None:
        self._state = state
        self._cells = cells

    async def answer(self, content: object, cancel: asyncio.Event) -> dict[str, object]:
        """Return the content of the reply. It never raises for anything that a request can cause."""
        try:
            action = content.get("action") if isinstance(content, Mapping) else None
            take = _ACTIONS.get(action) if isinstance(action, str) else None
            if take is None:
                raise InvalidRequest(f"there is no action {quoted(action)}; known ones: {', '.join(sorted(_ACTIONS))}")
            try:
                request = check(content, PanelRequest)
            except BadMessage as error:
                raise InvalidRequest(f"{action}: {error}") from None
            if request.every and self._state.rights.setting is LineSetting.LOCKED:
                raise PolicyViolation(f"nobody sets limits for all notebooks here: {LINES_VARIABLE}=locked")
            done = take(self, request)
            if isinstance(done, CellPlan):
                reply = await self._do(done, cancel)
                if request.every and reply["status"] == "ok":
                    keep_user_limits(self._state.defaults)
                return reply
            found = await asyncio.get_running_loop().run_in_executor(None, done)
            return {"status": "ok", **(found or {})}
        except SandboxError as error:
            return failed(error)

    async def _do(self, plan: CellPlan, cancel: asyncio.Event) -> dict[str, object]:
        """Run line commands as a cell would, and return what they say. Only the user's press sends such a request."""
        door = _TextDoor()
        done = await CellExecution(self._state, door, _no_input, cancel).run(plan, pressed=True)
        if done.bug is not None:
            raise done.bug
        if done.refused is not None:
            return failed(done.refused)
        if done.failure is not None:
            return {"status": "error", "error": done.failure.evalue, "conflicts": []}
        return {"status": "ok", "text": "\n".join(door.texts)}

    def _line(self, command: LineCommand) -> CellPlan:
        return plan_line(command, new_defaults(command, self._state.defaults))

    def _limited(self, command: LineCommand, said: PanelRequest) -> CellPlan:
        return plan_line(command, limits_of_dialog(said, self._state.defaults))

    @property
    def _context(self) -> LineCommands:
        return LineCommands(self._state, self._state.defaults)

    def _tree(self) -> dict[str, object]:
        session = self._state.sandboxes.sessions.find(CellOptions())
        return tree(() if session is None else session.history(), self._cells)

    def _compare(self, said: PanelRequest) -> dict[str, object]:
        return difference(session_of(LineCommand(name="diff"), self._context).diff(said.before, said.after))

    def _give_more(self, said: PanelRequest) -> None:
        """Give a running cell more ``time`` or ``memory``: a right, so nobody does in a locked kernel."""
        if self._state.rights.setting is LineSetting.LOCKED:
            raise PolicyViolation(f"nobody gives a running cell more here: {LINES_VARIABLE}=locked")
        lift = self._state.lifts.get(said.cell)
        if lift is None:
            raise InvalidRequest("that cell does not run")
        lift.give(said.name)

    def _variables(self, said: PanelRequest) -> dict[str, object]:
        found = session_of(LineCommand(name="tree"), self._context).variables(said.state)
        return {"known": found is not None, **variables(found or {})}


def limits_of_dialog(said: PanelRequest, defaults: CellOptions) -> CellOptions:
    """Return the notebook's defaults with what the dialog changed; an empty field is as in a new notebook."""
    given = {name: value for name in _DIALOG if (value := getattr(said, name)) is not msgspec.UNSET}
    words: list[str] = []
    for name, value in given.items():
        texts = [value] if isinstance(value, str) else value
        words += [f"{_DIALOG[name].name}={text.strip()}" for text in texts if text.strip()]
    asked = parse_options(words)
    changed = {_DIALOG[name].field: getattr(asked, _DIALOG[name].field) for name in given}
    usual = first_defaults()
    for name in _PLAIN_LIMITS & changed.keys():
        changed[name] = changed[name] if changed[name] is not None else getattr(usual, name)
    return replace(defaults, **changed).check_together()


def _answered(line: str) -> LineCommand:
    command = parse_line(line.strip().removeprefix("%sandbox"))
    if command.name not in ("allow", "install", "never"):
        raise InvalidRequest(f"an answer to an offer allows or installs something or never, got {quoted(line)}")
    return command


def _named(said: PanelRequest) -> LineCommand:
    state = None if said.state == _NONE else said.state
    return LineCommand(name="checkpoint", target=said.name.strip(), state=state)


#: Each action: returns the plan that does it, or what looks it up in a thread.
_ACTIONS: Mapping[str, Callable[[PanelDesk, PanelRequest], CellPlan | Callable[[], dict[str, object] | None]]] = {
    "limits": lambda desk, said: desk._limited(LineCommand(name="defaults"), said),
    "restart": lambda desk, said: desk._limited(LineCommand(name="restart", flag=True, anyway=said.anyway), said),
    "undo": lambda desk, said: desk._line(LineCommand(name="undo")),
    "redo": lambda desk, said: desk._line(LineCommand(name="redo")),
    "go": lambda desk, said: desk._line(LineCommand(name="go", state=said.state)),
    "name": lambda desk, said: desk._line(_named(said)),
    "apply": lambda desk, said: desk._line(LineCommand(name="apply", targets=said.paths, shown=said.shown or None)),
    "discard": lambda desk, said: desk._line(LineCommand(name="discard", targets=said.paths)),
    "answer": lambda desk, said: desk._line(_answered(said.line)),
    "overview": lambda desk, said: partial(overview, desk._context),
    "changes": lambda desk, said: lambda: changes(desk._context.box),
    "change": lambda desk, said: lambda: change(desk._context.box, said.path.strip()),
    "tree": lambda desk, said: desk._tree,
    "variables": lambda desk, said: partial(desk._variables, said),
    "compare": lambda desk, said: partial(desk._compare, said),
    "report": lambda desk, said: lambda: {"report": desk._context.box.report().to_dict()},
    "rights": lambda desk, said: lambda: desk._state.rights.survey(said.cells, desk._state.defaults),
    "more": lambda desk, said: partial(desk._give_more, said),
    "allow-rights": lambda desk, said: partial(desk._state.rights.allow_surveyed, said.key),
    "keep-line": lambda desk, said: partial(desk._state.rights.keep_line, said.line, desk._state.defaults),
}


def overview(context: LineCommands) -> dict[str, object]:
    """Return the limits and rights of the notebook's next cell, and whether a session runs."""
    session, options = context.state.sandboxes.sessions.find(CellOptions()), without_packages(context.defaults)
    filled = replace(options.of_session, timeout_s=options.effective_timeout_s, here=options.here or "")
    if session is not None and filled.memory_mb is not None:
        filled = replace(filled, memory_mb=session.usual_memory(filled.memory_mb))
    usual = first_defaults()  # the time and memory that each notebook begins with need no words
    nothing: dict[str, Any] = {name: None for name in _PLAIN_LIMITS if getattr(options, name) == getattr(usual, name)}
    limits: dict[str, object] = {}
    for name, option in _DIALOG.items():  # as a user writes them
        value = getattr(filled, option.field)
        limits[name] = [option.write(one) for one in value] if option.repeats else option.write(value)
    return {
        "session": "" if session is None else str(session.language),
        "limits": limits,
        "line": f"%sandbox {replace(options, **nothing).words()}".strip(),
        "rows": [[name, text[: 4 * MOST_VALUE]] for name, text in rights_rows(context.defaults)],
    }


def changes(box: Sandbox) -> dict[str, object]:
    """Return what differs from the folder, with the ``digest`` to apply it; ``named`` ones are applied only by name."""
    if box.here is None:
        return {"here": "", "changes": [], "more": 0, "digest": ""}
    digest, found = box.digest(), box.diff()
    named = set(box.left_out())
    listed = [
        {"path": one.path, "kind": str(one.kind), "type": str(one.type), "size": one.size, "named": one.path in named}
        for one in found[:MOST_CHANGES]
    ]
    return {"here": box.here, "changes": listed, "more": max(0, len(found) - MOST_CHANGES), "digest": digest}


def change(box: Sandbox, path: str) -> dict[str, object]:
    """Return one change: its lines as a unified diff, and for a picture the one before and the one after."""
    digest = box.digest()
    (before, after) = next((picture_urls(box, one) for one in box.diff() if one.path == path), ("", ""))
    patch = "" if before or after else box.patch([path])
    told = {"patch": plain(patch[:MOST_DIFF]), "cut": len(patch) > MOST_DIFF, "before": before, "after": after}
    return {**told, "digest": digest}


def tree(nodes: Sequence[Node], cells: Mapping[int, str]) -> dict[str, object]:
    """Return the latest states; ``cells`` has the id of the notebook's cell by its number."""
    return {"nodes": [_node(node, cells) for node in nodes[-MOST_STATES:]], "more": max(0, len(nodes) - MOST_STATES)}


def _node(node: Node, cells: Mapping[int, str]) -> dict[str, object]:
    known = node.to_dict()
    for name in ("added", "changed", "removed", "unsure"):
        known[name] = [text[:MOST_VALUE] for text in getattr(node.changed, name)[:MOST_NAMES]]
    known["files"] = [[one.path[:MOST_VALUE], str(one.kind)] for one in node.changed.files[:MOST_NAMES]]
    known["unknown"] = node.changed.unknown[:MOST_VALUE]
    return {**known, "code": node.code[:_MOST_CODE], "cell": cells.get(node.number, "") if node.code else ""}


def variables(found: Mapping[str, Seen]) -> dict[str, object]:
    """Return the largest variables of a state, each with its type, a few words and about how many bytes it takes."""
    rows = sorted(((name, seen, size_of(seen)) for name, seen in found.items()), key=lambda row: -(row[2] or 0))
    first = [[name, plain(kind), _value(text), size] for name, (kind, _, text), size in rows[:MOST_STATES]]
    return {"variables": first, "more": len(rows) - len(first)}


def difference(found: StateDiff) -> dict[str, object]:
    """Return how two states differ."""
    first = MOST_NAMES
    return {
        "before": found.before,
        "after": found.after,
        "added": [[name, _value(text)] for name, text in list(found.added.items())[:first]],
        "changed": [[name, _value(one.before), _value(one.after)] for name, one in list(found.changed.items())[:first]],
        "removed": [[name, _value(text)] for name, text in list(found.removed.items())[:first]],
        "unsure": list(found.unsure[:first]),
        "files": [[one.path, one.kind, plain(one.patch[: MOST_DIFF // 4])] for one in found.files[:first]],
        "unknown": [_value(text) for text in found.unknown[:first]],
    }


def _value(text: str) -> str:
    return plain(text[:MOST_VALUE])


def failed(error: SandboxError) -> dict[str, object]:
    """Return the reply for a request that was refused."""
    conflicts = error.paths[:MOST_CHANGES] if isinstance(error, Conflict) else ()
    told = {"loses": list(error.variables)} if isinstance(error, WouldLose) else {}
    return {"status": "error", "error": str(error), "conflicts": list(conflicts), **told}


class _TextDoor(Door):
    """Keeps what line commands say, as plain text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, message: Message) -> None:
        if isinstance(message, ShowOutput):
            self.texts.append(str(message.data.get("text/plain", "")))


async def _no_input(prompt: str, password: bool) -> NoReturn:
    raise EOFError("the side panel answers no questions")
