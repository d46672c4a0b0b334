"""Cleans the messages of a wrapped kernel before a front end gets them: its outputs, and below them its replies.

The rules are those of our own kernel. Any other message is dropped; comms pass a gate. The input is hostile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from sandbox_kernel.notebook.render import PROMPT_MARK, name_of_program, told_apart
from sandbox_kernel.receipt import one_line, unmarked
from sandbox_kernel.session.cell.displays import MAX_DISPLAYS
from sandbox_kernel.session.cell.front_end import Page, Payload
from sandbox_kernel.session.code_answers import Completeness, Completions, suggestions
from sandbox_kernel.untrusted.ansi import MAX_LINES, ColourFilter
from sandbox_kernel.untrusted.frames.frame_output import LIBRARY, sanitize_display
from sandbox_kernel.untrusted.json_value import size_of
from sandbox_kernel.untrusted.sanitize import MAX_WORK, safe_lines, safe_text, sanitize_bundle, sanitize_docstring
from sandbox_kernel.util.wire import BadMessage, check, check_each, encodable
from sandbox_kernel.wrapped.relaying.wire import from_json

Table = dict[str, object]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]

#: Messages of widgets.
COMMS = frozenset(("comm_open", "comm_msg", "comm_close"))
#: Messages that show a MIME bundle.
DISPLAYS = frozenset(("display_data", "update_display_data", "execute_result"))
#: Kinds that a page must not get, and that kernels send all the same; they are not counted as malformed.
_SILENT = frozenset(("iopub_welcome", "debug_event"))
_HEADER = frozenset(("msg_id", "msg_type", "username", "session", "date", "version", "subshell_id"))
_MAX_FIELD, _MAX_VALUE, _MAX_TRACEBACK, _MAX_CODE = 200, 20_000, 500, 256 << 10
_TOO_MUCH = f"further outputs were too many to be shown: they are the work of more than {MAX_WORK} shapes"
#: What an output counts by itself, and a line of an error, in shapes.
_WORK_OF_AN_OUTPUT, _WORK_OF_A_LINE = MAX_WORK // MAX_DISPLAYS, MAX_WORK // MAX_LINES
#: The most lines of ours on what was removed in one cell.
MOST_REPORTED = 100
_MORE = "more parts of the outputs of this cell are not shown"


class _Status(msgspec.Struct):
    execution_state: Literal["busy", "idle", "starting"]


class _Stream(msgspec.Struct):
    name: Literal["stdout", "stderr"]
    text: str


_PRINTED = msgspec.json.Decoder(_Stream)


def printed(part: bytes) -> Table | None:
    """Decode the content of printed text, which is long, in a fifth of the time; what msgspec refuses, as any other."""
    try:
        given = _PRINTED.decode(part)
    except (msgspec.DecodeError, RecursionError):
        return from_json(part)
    return {"name": given.name, "text": given.text}


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


def header(value: Mapping[str, object]) -> Table:
    """Return the known fields of a header. Raises ``BadMessage`` if one is not a short text."""
    found: Table = {}
    for name, field in value.items():
        if field is None or name not in _HEADER:
            continue
        if not isinstance(field, str) or len(field) > _MAX_FIELD or not field.isprintable():
            raise BadMessage
        found[name] = field
    return found


def line(value: object, limit: int = _MAX_FIELD) -> str:
    """Return text as one visible line; empty for anything else."""
    return one_line(unmarked(encodable(value)), limit) if isinstance(value, str) else ""


def error(content: Table) -> Table:
    """Return the three fields of an error. Its name is never that of one of our own errors."""
    given = check(content, _Error)
    name = line(given.ename)
    return {
        "ename": name_of_program(name) if name else "",
        "evalue": safe_text(given.evalue, _MAX_VALUE),
        "traceback": safe_lines(given.traceback[:_MAX_TRACEBACK], _MAX_VALUE),
    }


class OutputCleaner:
    """Cleans one kernel's outputs, in order. ``gate`` is the name of the gate of its widgets."""

    def __init__(self, gate: str = "") -> None:
        self._gate = gate
        self.end()
        self._reported: set[str] = set()
        self._removed: list[str] = []

    def clean(self, kind: str, content: Table) -> Table | None:
        """Return the content for the page; None for a message that is left out. Raises ``BadMessage``."""
        match kind:
            case "status":
                return {"execution_state": check(content, _Status).execution_state}
            case "stream":
                return self._stream(check(content, _Stream))
            case "execute_input":
                given = check(content, _Input)
                return {"code": safe_text(given.code, _MAX_CODE), "execution_count": given.execution_count}
            case "display_data" | "update_display_data" | "execute_result":
                return self._display(kind, check(content, _Display))
            case "error":
                made = error(content)
                text = "\n".join((str(made["evalue"]), *check(made["traceback"], list[str])))
                work = len(text) // 8 + _WORK_OF_A_LINE * text.count("\n") + text.count("\x1b")
                return made if self._fits(_WORK_OF_AN_OUTPUT + work) else None
            case "clear_output":
                return {"wait": content.get("wait") is True}
            case "shutdown_reply":
                return {"status": "ok", "restart": content.get("restart") is True}
        if kind in _SILENT:
            return None
        raise BadMessage

    def begin(self) -> None:
        """Forget what was reported: a cell begins."""
        self._reported.clear()

    def take_removed(self) -> list[str]:
        """Return what was removed since the last call and was not reported in this cell yet, in words."""
        new: list[str] = []
        for removed in self._removed:
            words = removed if len(self._reported) < MOST_REPORTED else _MORE
            if removed not in self._reported and words not in self._reported:
                self._reported.add(words)
                new.append(words)
        self._removed.clear()
        return new

    def take_rest(self) -> list[Table]:
        """Return the text that was held back as the start of a colour sequence; called when a cell is over."""
        return [{"name": name, "text": text} for name, each in self._colours.items() if (text := each.close())]

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

    def _display(self, kind: str, given: _Display) -> Table | None:
        if not self._fits(0):
            return None
        clean = sanitize_display(given.data, given.metadata, self._gate)
        # An update takes the place of an output.
        if not self._fits(clean.work + (0 if kind == "update_display_data" else _WORK_OF_AN_OUTPUT)):
            return None
        self._removed.extend(clean.removed)
        data = dict(clean.data) if LIBRARY in clean.data else told_apart(clean.data)
        made: Table = {"data": data, "metadata": dict(clean.metadata)}
        if isinstance(given.transient, dict):  # the name of a display, by which the kernel can change it later
            name = given.transient.get("display_id")
            made["transient"] = {"display_id": line(name)} if isinstance(name, str) else {}
        return {**made, "execution_count": given.execution_count} if kind == "execute_result" else made

    def _fits(self, work: int) -> bool:
        """Count what a page draws for an output. Returns False, and tells of it, when the cell has shown too much."""
        self._work += work
        self._removed.extend(() if self._work <= MAX_WORK else (_TOO_MUCH,))
        return self._work <= MAX_WORK


# A reply can do more than inform: a completion writes into a cell, a payload opens a pager or a new cell, a help link
# is clicked, an exporter is imported by the server. Each kind of reply is written anew from declared fields.

_MAX_PROMPT, _MAX_BANNER, _MAX_LINKS, _MAX_PAYLOADS, _MAX_EXPRESSIONS = 1000, 20_000, 20, 20, 100
_MAX_HISTORY = 10_000
#: The most characters of a history, and of all values of expressions: they are cleaned in one step.
_MAX_TEXT = 1 << 20
#: Names of exporters and lexers without a dot: the server imports what a dotted name says.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_+#-]{1,60}\Z")
_LANGUAGE_FIELDS = {
    "name": re.compile(r"[^\x00-\x1f<>&\"]{1,60}\Z"),
    "version": re.compile(r"[A-Za-z0-9_+#.-]{1,60}\Z"),
    "mimetype": re.compile(r"[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}\Z"),
    "file_extension": re.compile(r"\.[A-Za-z0-9_+-]{1,20}\Z"),
    "pygments_lexer": _PLAIN_NAME,
    "nbconvert_exporter": _PLAIN_NAME,
}
#: Optional parts of the protocol that work through the relay. A debugger's answers hold displays, so it is left out.
_FEATURES = frozenset(("kernel subshells",))
_Name = Annotated[str, msgspec.Meta(max_length=200)]
#: Replies whose status may be an error.
_REPLIES = frozenset(
    f"{name}_reply"
    for name in ("execute", "complete", "inspect", "is_complete", "history", "kernel_info", "shutdown", "interrupt",
                 "create_subshell", "delete_subshell", "list_subshell", "usage")
)  # fmt: skip


class CompletionRequest(NamedTuple):
    """What a front end asked to complete: the code and the place of the cursor."""

    code: str
    position: int


class _Execute(msgspec.Struct):
    payload: list[object] | None = None
    user_expressions: dict[str, Table] | None = None
    execution_count: Count | None = None


class _History(msgspec.Struct):
    #: Session, line and source of each cell, or source and output.
    history: list[tuple[Count, Count, str | tuple[str, str | None]]] = []


class _Subshell(msgspec.Struct):
    subshell_id: _Name | Annotated[list[_Name], msgspec.Meta(max_length=1000)] | None = None


class _Link(msgspec.Struct):
    url: Annotated[str, msgspec.Meta(pattern=r"^https?://[!-~]{1,500}\Z")]
    text: str = ""


class _Info(msgspec.Struct):
    protocol_version: Annotated[str, msgspec.Meta(pattern=r"^5\.\d{1,2}(\.\d{1,2})?\Z")]
    language_info: Table
    implementation: str = ""
    implementation_version: str = ""
    banner: str = ""
    help_links: list[object] | None = None
    supported_features: list[object] | None = None


def clean_reply(
    kind: str, content: Table, asked: CompletionRequest | None, more: Callable[[], bool] = lambda: True
) -> Table:
    """Return the content of a reply for the front end. Raises ``BadMessage``.

    ``asked`` is what was to be completed. Each value or page may take a while: ``more`` says whether it is cleaned too.
    """
    status = content.get("status")
    if kind in _REPLIES and status == "error":
        return {"status": "error", **error(content), **_count(check(content, _Execute))}
    match kind:
        case "execute_reply" if status in ("aborted", "abort"):
            return {"status": "aborted", **_count(check(content, _Execute))}
        case "execute_reply":
            return _execute(check(content, _Execute), more)
        case "complete_reply":
            return _complete(check(content, Completions), asked)
        case "inspect_reply":
            found = content.get("found") is True
            data = dict(sanitize_docstring(content.get("data")).data) if found else {}
            return {"status": "ok", "found": found, "data": data, "metadata": {}}
        case "is_complete_reply":
            given = check(content, Completeness)
            return {"status": given.status} | ({"indent": given.indent} if given.status == "incomplete" else {})
        case "history_reply":
            if size_of(content.get("history")) > _MAX_TEXT:
                return {"status": "ok", "history": []}
            kept = check(content, _History).history[-_MAX_HISTORY:]
            return {"status": "ok", "history": [[session, number, _said(cell)] for session, number, cell in kept]}
        case "kernel_info_reply":
            return _kernel_info(check(content, _Info))
        case "shutdown_reply":
            return {"status": "ok", "restart": content.get("restart") is True}
        case "create_subshell_reply" | "list_subshell_reply":
            return {"status": "ok", "subshell_id": check(content, _Subshell).subshell_id}
        case "interrupt_reply" | "delete_subshell_reply" | "usage_reply":
            return {"status": "ok"}
        case "debug_reply":
            return {"success": False, "message": "the debugger of a kernel in a sandbox is not available"}
        case "input_request":
            prompt = PROMPT_MARK + line(content.get("prompt"), _MAX_PROMPT)
            return {"prompt": prompt, "password": content.get("password") is True}
    raise BadMessage


def _count(given: _Execute) -> Table:
    return {} if given.execution_count is None else {"execution_count": given.execution_count}


def _execute(given: _Execute, more: Callable[[], bool]) -> Table:
    payload = check_each((given.payload or [])[:_MAX_PAYLOADS], Payload)
    expressions, left = list((given.user_expressions or {}).items())[:_MAX_EXPRESSIONS], _MAX_TEXT
    for place, expression in enumerate(expressions):
        left -= size_of([*expression])
        if left < 0:
            del expressions[place:]
    return {
        "status": "ok",
        **_count(given),
        "payload": [
            {"source": "page", "data": dict(sanitize_docstring(page.data).data), "start": page.start}
            for page in payload
            if isinstance(page, Page) and more()
        ],
        "user_expressions": {line(name): _expression(value) for name, value in expressions if more()},
    }


def _expression(value: Table) -> Table:
    if value.get("status") == "error":
        return {"status": "error", **error(value)}
    clean = sanitize_bundle(value.get("data"), value.get("metadata"))
    return {"status": "ok", "data": told_apart(clean.data), "metadata": dict(clean.metadata)}


def _complete(given: Completions, asked: CompletionRequest | None) -> Table:
    place = asked.position if asked is not None else 0
    none: Table = {"status": "ok", "matches": [], "cursor_start": place, "cursor_end": place, "metadata": {}}
    if asked is None or given.cursor_end != place:
        return none
    allowed = suggestions(given.matches, asked.code, given.cursor_start, place)[0]
    if not allowed:
        return none
    where = {"cursor_start": given.cursor_start, "cursor_end": place}
    named = {each.text: each for each in reversed(given.typed())}  # the first counts
    types = [
        {"start": given.cursor_start, "end": place, "text": each.text, "type": line(each.type),
         "signature": line(each.signature)}
        for text in allowed if (each := named.get(text))
    ]  # fmt: skip
    metadata = {"_jupyter_types_experimental": types} if types else {}
    return {"status": "ok", "matches": allowed, **where, "metadata": metadata}


def _said(cell: str | tuple[str, str | None]) -> object:
    return safe_text(cell) if isinstance(cell, str) else [text and safe_text(text) for text in cell]


def _kernel_info(given: _Info) -> Table:
    links = check_each((given.help_links or [])[:_MAX_LINKS], _Link)
    return {
        "status": "ok",
        "protocol_version": given.protocol_version,
        # By its name the extension knows our own kernel.
        "implementation": name_of_program(line(given.implementation)),
        "implementation_version": line(given.implementation_version),
        "banner": safe_text(given.banner, _MAX_BANNER),
        "language_info": _language(given.language_info),
        "help_links": [{"text": line(link.text, 80), "url": link.url} for link in links],
        "debugger": False,
        "supported_features": sorted(_FEATURES.intersection(map(str, given.supported_features or []))),
    }


def _language(given: Table) -> Table:
    found: Table = {}
    for name, form in _LANGUAGE_FIELDS.items():
        field = given.get(name)
        if isinstance(field, str) and form.match(field):
            found[name] = unmarked(field)
    mode = given.get("codemirror_mode")
    if isinstance(mode, str):
        found["codemirror_mode"] = line(mode)
    elif isinstance(mode, dict):
        pairs = list(mode.items())[:10]
        plain = {str(key)[:60]: field for key, field in pairs if isinstance(field, str | int) and len(str(field)) <= 60}
        found["codemirror_mode"] = plain
    return found
