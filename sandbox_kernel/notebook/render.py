"""From a result to the messages that a notebook shows; the kernel and the magic only send them.

A cell that ended well shows its displays, its value and its receipt. A failing cell shows one error and nothing else
(clients, and Jupyter's own kernel tests, rely on that), so its receipt stands in the traceback. nbval compares data and
ignores metadata and tracebacks; measured numbers stand only there.

Users rely on our receipts, reports and errors, so a program must not be able to imitate one:

- HTML of a sandbox is shown in a frame; our own HTML never is. It cannot leave the frame: the cleaner removes styles
  that move an element out, and the frame clips what overflows.
- Text of a sandbox never contains the mark with which our own lines begin (``receipt.unmarked``).
- An error of a program never has the name of one of our errors.
- A drawing can refer only to its own elements. Static pages hold all drawings in one document, where the first element
  with an id counts: without this, a drawing could replace shapes, such as digits, of another drawing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from hashlib import sha256
from typing import Protocol

from sandbox_kernel import errors, receipt
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import CellError, Display, ExecResult, Note, Status, describe_end, notes
from sandbox_kernel.model.notes import NoteKind
from sandbox_kernel.receipt import unmarked
from sandbox_kernel.session.cell.displays import LateListener, SessionDisplay
from sandbox_kernel.session.cell.front_end import FrontEndReply
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.ansi import plain
from sandbox_kernel.untrusted.sanitize import SanitizedBundle, safe_lines, safe_text, sanitize_bundle
from sandbox_kernel.untrusted.tex import defused
from sandbox_kernel.util.values import dataclass

#: A ``blockquote``, because viewers that remove styles, like GitHub, still show it as a quotation.
_FRAME = (
    '<blockquote title="shown by the program in the sandbox" '
    'style="margin:0;padding:0 0 0 8px;border:0;border-left:3px solid #9e9e9e;overflow:auto">{}</blockquote>'
)

#: Error names by status, for clients and for cells tagged ``raises-exception``.
ERROR_NAMES = {
    Status.FAILED: "SandboxExit",
    Status.TIMEOUT: "SandboxTimeout",
    Status.CPU_LIMIT: "CpuLimitExceeded",
    Status.MEMORY_EXCEEDED: "MemoryExceeded",
    Status.FUEL_EXHAUSTED: "FuelExhausted",
    Status.COMPILE_FAILED: "CompileError",
    Status.INTERRUPTED: "KeyboardInterrupt",
    Status.KILLED: "SandboxKilled",
}
INTERNAL_ERROR = "InternalError"
#: With this each input prompt of a program begins.
PROMPT_MARK = "sandbox asks: "
_TAG = re.compile(r"<[A-Za-z][^<>]*>")
#: The text before an id, in a tag that the cleaner has written.
_REFERENCE = re.compile(r"""\sid="|\s(?:xlink:)?href="#|url\((?:'|"|&quot;)?#""")
_OURS = frozenset(
    name.casefold()
    for name in (
        *(name for status, name in ERROR_NAMES.items() if status is not Status.INTERRUPTED),
        INTERNAL_ERROR,
        *(name for name, value in vars(errors).items() if isinstance(value, type)),
    )
)


def with_own_names(drawing: str) -> str:
    """Make the ids of a clean SVG unique: each gets a digest of the drawing as prefix, the same at every run."""
    name = sha256(drawing.encode()).hexdigest()[:16]
    return _TAG.sub(lambda tag: _REFERENCE.sub(rf"\g<0>d{name}-", tag[0]), drawing)


def name_of_program(name: str) -> str:
    """Return the name of a program's error or kernel; if it is like one of ours, with "(of the program)" added."""
    plain = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name))).casefold()
    # Many letters of other scripts look like Latin ones, so a name with any of them is always marked.
    if name.isascii() and plain not in _OURS and not plain.startswith("sandbox"):
        return name
    return f"{name} (of the program)"


RED, BOLD, DIM, END = "\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"

_MAX_NAME, _MAX_VALUE, _MAX_TRACEBACK = 200, 20_000, 500


@dataclass(frozen=True)
class ShowOutput:
    """A ``display_data`` message; with ``update`` it replaces what was shown under the same ``display_id``."""

    data: Mapping[str, object]
    metadata: Mapping[str, object] = field(default_factory=dict)
    display_id: str = ""
    update: bool = False


@dataclass(frozen=True)
class ClearOutput:
    """A ``clear_output`` message: everything so far goes, now or (``wait``) with the next output."""

    wait: bool


@dataclass(frozen=True)
class Value:
    """An ``execute_result`` message: the value of the cell's last expression."""

    data: Mapping[str, object]
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportPanel:
    """The capability report as a widget, below its static table; ``document`` is ``CapabilityReport.to_dict()``."""

    document: Mapping[str, object]


#: An error's fields are also in the reply.
Message = ShowOutput | ClearOutput | Value | CellError | ReportPanel


@dataclass(frozen=True)
class Progress:
    """How long a cell has been running and what memory it uses, in bytes, each with its limit."""

    elapsed_s: float
    timeout_s: float
    memory: tuple[int, int] | None = None
    #: How many seconds and MB a press gives; zeros where there is none.
    more: tuple[float, int] = (0.0, 0)

    def content(self, cell: str) -> dict[str, object]:
        """Return the content of the message that our extension draws beside the cell with this id."""
        used, limit = self.memory or (None, None)
        times = {"elapsed_s": self.elapsed_s, "timeout_s": self.timeout_s}
        more = {"more_s": self.more[0], "more_bytes": self.more[1] << 20}
        return {"cell": cell, **times, "memory_bytes": used, "memory_limit_bytes": limit, **more}


#: The kind of that message. It is no output: no front end saves it, and those that do not know it pass it over.
PROGRESS = "sandbox_progress"
#: The kind of the message that brings a page the code of a library, which is no output either.
LIBRARY = "sandbox_library"


class LateDoor(LateListener, Protocol):
    """Where output of one cell goes that comes after its end."""

    def open(self) -> None:
        """The cell has sent its last message; before that, late output is held."""


class Door:
    """Where messages of a cell go: the kernel's ``KernelDoor``, IPython's display, or the text of a side panel."""

    def progress(self, made: Progress) -> None:
        """Tell a page how far a cell is that runs for long; what it shows goes when the cell ends."""

    def library(self, made: Mapping[str, object]) -> None:
        """Give a page the code of a library, which it keeps for its frames."""

    def watched(self) -> bool:
        """Whether a person looks on: what is shown for a while only is for nobody else."""
        return False

    def late(self, messages: Callable[[SessionDisplay], list[Message]]) -> LateDoor | None:
        """Return where output goes after the cell, or None. ``messages`` returns what a page gets for a display."""
        return None

    def stream(self, name: str, text: str) -> None:
        """Show text of stdout or stderr."""

    def message(self, message: Message) -> None:
        """Show a display, a value or an error."""


def render_result(result: ExecResult, *, quiet: bool = False) -> tuple[Message, ...]:
    """The last messages of a finished cell; its streams and displays have been sent while it ran."""
    if not result.ok:
        return (failure(result),)
    if quiet and not result.notes and not result.violations and result.limit is None:
        return ()
    ending = describe_end(result)
    bundle = receipt.mime_bundle(result, ending)
    # The receipt quotes the sandbox (paths, names): a page typesets formulas in HTML, so these are defused too.
    bundle["text/html"] = defused(str(bundle["text/html"]))
    # The page draws the measured numbers from the metadata.
    return (ShowOutput(bundle, {receipt.MIME: receipt.measurements(result)}),)


def render_display(display: Display) -> tuple[Message, tuple[Note, ...]]:
    """One display of a sandbox, made inert, and what was removed from it."""
    if display.kind == "clear":
        return ClearOutput(display.metadata.get("wait") is True), ()
    clean: Display | SanitizedBundle = display
    words = display.removed if isinstance(display, SessionDisplay) else None
    if words is None:
        # A display that no session has cleaned.
        clean = sanitize_bundle(display.data, display.metadata)
        words = clean.removed
    data, removed = told_apart(clean.data), tuple(notes.removed_output(each) for each in words)
    if display.kind == "result":
        return Value(data, clean.metadata), removed
    display_id = display.page_id if isinstance(display, SessionDisplay) else ""
    return ShowOutput(data, clean.metadata, display_id, display.kind == "update"), removed


def told_apart(data: Mapping[str, object]) -> dict[str, object]:
    """The clean bundle of a sandbox so that nothing in it passes for ours, or reaches what another has shown."""
    guards = {"text/html": _FRAME.format, "text/plain": unmarked, "image/svg+xml": with_own_names}
    guarded = {mime: guard(text) for mime, guard in guards.items() if isinstance(text := data.get(mime), str)}
    return {**data, **guarded}


def failure(result: ExecResult) -> CellError:
    """The one message of a cell that did not end well."""
    ename, evalue = ERROR_NAMES.get(result.status, ERROR_NAMES[Status.FAILED]), describe_end(result)
    lines: list[str] = []
    if result.error is not None:
        if result.status is Status.FAILED:
            name = one_line(result.error.ename, _MAX_NAME)
            ename = name_of_program(name) if name else ename
            evalue = _text(result.error.evalue, _MAX_VALUE)
        lines += safe_lines(result.error.traceback[:_MAX_TRACEBACK], _MAX_VALUE)
    # Each line of ours begins with the end of all colours: what a program left behind must not hide it.
    ending = "" if not lines else describe_end(result)
    if not lines:
        lines.append(f"{END}{receipt.MARK} {BOLD}{RED}{ename}{END}: {evalue}")
    if result.rolled_back and not any(note.kind is NoteKind.ROLLED_BACK_FURTHER for note in result.notes):
        lines.append(f"{END}{receipt.MARK} {BOLD}The session is as it was before this cell.{END}")
        result = replace(result, notes=tuple(one for one in result.notes if one.kind is not NoteKind.ROLLED_BACK))
    lines.append(f"{END}{DIM}{plain(receipt.plain_text(result, ending))}{_measured(result)}{END}")
    return CellError(ename=ename, evalue=evalue, traceback=tuple(lines))


def refusal(error: SandboxError) -> CellError:
    """A request that was not run at all."""
    name, text = type(error).__name__, tame(str(error))
    return CellError(ename=name, evalue=text, traceback=(f"{receipt.MARK} {BOLD}{RED}{name}{END}: {text}",))


def tame(text: str) -> str:
    """Return text of ours that quotes a program: without our mark and control characters, cheap for a page to draw."""
    return unmarked(plain(text))


def one_line(text: object, limit: int) -> str:
    """Words of a sandbox for places that take one line without colours."""
    return receipt.one_line(plain(_text(text, 4 * limit)), limit)


def _text(text: object, limit: int) -> str:
    try:
        return safe_text(text, limit)
    except ContentRefused:
        return ""


def _measured(result: ExecResult) -> str:
    """What differs from run to run, for the end of a traceback."""
    parts = [f"ran {result.duration:.2f} s"]
    if result.cpu_seconds is not None:
        parts.append(f"CPU {result.cpu_seconds:.2f} s")
    added = result.added_memory_bytes
    for name, peak in (("peak", result.peak_memory_bytes), ("GPU peak", result.peak_gpu_memory_bytes)):
        if peak is not None:
            parts.append(f"{name} {peak / (1 << 20):.0f} MB")
            parts[-1] += f" (this cell +{added / (1 << 20):.0f} MB)" if added and name == "peak" else ""
    return f"\n  {', '.join(parts)}"


_OWN_LINES = re.compile(r"(?:\ufeff?%{1,2}sandbox(?:\s[^\n]*)?\n)*")


def expressions(reply: FrontEndReply) -> dict[str, object]:
    """The values of ``user_expressions``, by name."""
    return {name: _apart(value) for name, value in reply.expressions.items()}


def payload(reply: FrontEndReply, cell: str) -> list[dict[str, object]]:
    """The pages for the pager and the text for another cell. What replaces ``cell`` keeps its ``%sandbox`` lines."""
    parts: list[dict[str, object]] = [{"source": "page", "start": 0, "data": told_apart(data)} for data in reply.pages]
    found = reply.next_input
    if found is not None:
        own = _OWN_LINES.match(cell.replace("\r\n", "\n"))
        text = f"{own[0] if own else ''}{found.text}" if found.replace else found.text
        parts.append({"source": "set_next_input", "text": text, "replace": found.replace})
    return parts


def _apart(value: Mapping[str, object]) -> dict[str, object]:
    data = value.get("data")
    if isinstance(data, Mapping):
        return {**value, "data": told_apart(data)}
    lines = value.get("traceback")
    shown = [unmarked(line) for line in lines] if isinstance(lines, list) else []
    return {**value, "evalue": unmarked(str(value.get("evalue"))), "traceback": shown}
