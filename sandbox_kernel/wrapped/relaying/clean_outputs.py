"""Cleans the outputs of a wrapped kernel (its messages on iopub) before a page gets them.

The same rules hold as for outputs of our own kernel: text without control sequences, displays after ``untrusted/``, in
a frame if they need scripts. Another message is dropped; comms pass a gate (``kernel_widgets.py``). The input comes
from a hostile kernel and may be any JSON value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import msgspec

from sandbox_kernel.notebook.render import name_of_program, told_apart
from sandbox_kernel.receipt import one_line, unmarked
from sandbox_kernel.untrusted.ansi import ColourFilter, few_colours
from sandbox_kernel.untrusted.frames.frame_output import LIBRARY, sanitize_display
from sandbox_kernel.untrusted.json_value import encodable
from sandbox_kernel.untrusted.sanitize import MAX_WORK, safe_text

Table = dict[str, object]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_T = TypeVar("_T")

#: Messages of widgets.
COMMS = frozenset(("comm_open", "comm_msg", "comm_close"))
#: Messages that show a MIME bundle.
DISPLAYS = frozenset(("display_data", "update_display_data", "execute_result"))
#: Kinds that a page must not get, and that kernels send all the same; they are not counted as malformed.
_SILENT = frozenset(("iopub_welcome", "debug_event"))
_HEADER = frozenset(("msg_id", "msg_type", "username", "session", "date", "version", "subshell_id"))
_MAX_FIELD, _MAX_VALUE, _MAX_TRACEBACK, _MAX_CODE = 200, 20_000, 500, 64 << 20
_TOO_MUCH = f"further outputs were too many to be shown: they are the work of more than {MAX_WORK} shapes"


class MalformedMessage(Exception):
    """A message that the protocol does not allow. It is dropped and counted."""


class _Status(msgspec.Struct):
    execution_state: Literal["busy", "idle", "starting"]


class _Stream(msgspec.Struct):
    name: Literal["stdout", "stderr"]
    text: str


class _Input(msgspec.Struct):
    code: str
    execution_count: Count | None = None


class _Display(msgspec.Struct):
    data: object = None
    metadata: object = None
    transient: object = None
    execution_count: Count | None = None


class _Error(msgspec.Struct):
    ename: object = ""
    evalue: str = ""
    traceback: list[str] = []


def declared(content: object, kind: type[_T]) -> _T:
    """Return the declared fields of a message. Raises ``MalformedMessage`` when one has another type."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError:
        raise MalformedMessage from None


def header(value: Mapping[str, object]) -> Table:
    """Return the known fields of a header. Raises ``MalformedMessage`` if one is not a short text."""
    found: Table = {}
    for name, field in value.items():
        if field is None or name not in _HEADER:
            continue
        if not isinstance(field, str) or len(field) > _MAX_FIELD or not field.isprintable():
            raise MalformedMessage
        found[name] = field
    return found


def line(value: object, limit: int = _MAX_FIELD) -> str:
    """Return text as one visible line; empty for anything else."""
    return one_line(unmarked(encodable(value)), limit) if isinstance(value, str) else ""


def error(content: Table) -> Table:
    """Return the three fields of an error. Its name is never that of one of our own errors."""
    given = declared(content, _Error)
    name = line(given.ename)
    return {
        "ename": name_of_program(name) if name else "",
        "evalue": safe_text(given.evalue, _MAX_VALUE),
        "traceback": few_colours([safe_text(each, _MAX_VALUE) for each in given.traceback[:_MAX_TRACEBACK]]),
    }


class OutputCleaner:
    """Cleans one kernel's outputs, in order. It remembers unfinished colour sequences and what it has told the user.

    ``gate`` is the name of the gate of the kernel's widgets.
    """

    def __init__(self, gate: str = "") -> None:
        self._gate = gate
        self.end()
        self._told: set[str] = set()
        self._removed: list[str] = []

    def clean(self, kind: str, content: Table) -> Table | None:
        """Return the content for the page; None for a message that is left out. Raises ``MalformedMessage``."""
        match kind:
            case "status":
                return {"execution_state": declared(content, _Status).execution_state}
            case "stream":
                return self._stream(declared(content, _Stream))
            case "execute_input":
                given = declared(content, _Input)
                return {"code": safe_text(given.code, _MAX_CODE), "execution_count": given.execution_count}
            case "display_data" | "update_display_data" | "execute_result":
                return self._display(kind, declared(content, _Display))
            case "error":
                return error(content)
            case "clear_output":
                return {"wait": content.get("wait") is True}
            case "shutdown_reply":
                return {"status": "ok", "restart": content.get("restart") is True}
        if kind in _SILENT:
            return None
        raise MalformedMessage

    def begin(self) -> None:
        """Forget what was told: a cell begins."""
        self._told.clear()

    def take_removed(self) -> list[str]:
        """Return what was removed since the last call and was not told in this cell yet, in words."""
        new = [words for words in dict.fromkeys(self._removed) if words not in self._told]
        self._told.update(new[:100])
        self._removed.clear()
        return new

    def take_rest(self) -> list[Table]:
        """Return the text that was held back as the start of a colour sequence; called when a cell is over."""
        rest = [(name, colours.close()) for name, colours in self._colours.items()]
        return [{"name": name, "text": text} for name, text in rest if text]

    def end(self) -> None:
        """Forget the colours and the work of a cell: it is over."""
        self._colours = {name: ColourFilter() for name in ("stdout", "stderr")}
        #: Whether the kernel's text ends within a line.
        self._amid_line, self._work = False, 0

    def closing(self) -> str:
        """Return what ends the kernel's line and colours before a line of ours, which stands on standard error."""
        ends = {colours.end_colours() for colours in self._colours.values()}
        end, self._amid_line = "\n" if self._amid_line else "", False
        return max(ends) + end

    def _stream(self, given: _Stream) -> Table | None:
        shown = unmarked(self._colours[given.name].feed(encodable(given.text)))
        self._amid_line = not shown.endswith("\n") if shown else self._amid_line
        return {"name": given.name, "text": shown} if shown else None

    def _display(self, kind: str, given: _Display) -> Table:
        clean = sanitize_display(given.data, given.metadata, self._gate)
        self._work += clean.work
        is_shown = self._work <= MAX_WORK
        self._removed.extend(clean.removed if is_shown else (_TOO_MUCH,))
        data = dict(clean.data) if LIBRARY in clean.data else told_apart(clean.data)
        made: Table = {"data": data, "metadata": dict(clean.metadata)} if is_shown else {"data": {}, "metadata": {}}
        if isinstance(given.transient, dict):  # the name of a display, by which the kernel can change it later
            name = given.transient.get("display_id")
            made["transient"] = {"display_id": line(name)} if isinstance(name, str) else {}
        return {**made, "execution_count": given.execution_count} if kind == "execute_result" else made
