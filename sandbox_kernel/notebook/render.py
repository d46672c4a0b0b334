"""From a result to the messages that a notebook shows. Pure: the kernel and the magic only send them.

A cell that ended well shows its displays, its value and its receipt. A failing cell shows one error and nothing else
(clients, and Jupyter's own kernel tests, rely on that), so its receipt stands in the traceback. nbval compares data and
ignores metadata and tracebacks; measured numbers stand only there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from sandbox_kernel import receipt
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.model import Display, ExecResult, Note, Status, describe_end, notes
from sandbox_kernel.notebook.page.told_apart import ERROR_NAMES, framed, name_of_program, with_own_names
from sandbox_kernel.receipt import unmarked
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.ansi import few_colours, plain
from sandbox_kernel.untrusted.sanitize import SanitizedBundle, safe_text, sanitize_bundle
from sandbox_kernel.untrusted.tex import defused

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
class Failure:
    """An ``error`` message; the reply carries the same three fields."""

    ename: str
    evalue: str
    traceback: tuple[str, ...]


@dataclass(frozen=True)
class ReportPanel:
    """The capability report as a widget, below its static table; ``document`` is ``CapabilityReport.to_dict()``."""

    document: Mapping[str, object]


Message = ShowOutput | ClearOutput | Value | Failure | ReportPanel


def render_result(result: ExecResult, *, quiet: bool = False) -> tuple[Message, ...]:
    """The messages of a finished cell, in order; its streams have been sent while it ran."""
    messages: list[Message] = []
    removed: list[Note] = []
    for display in result.displays:
        message, gone = render_display(display)
        messages.append(message)
        removed += gone
    noted = replace(result, notes=(*result.notes, *_notes(result), *dict.fromkeys(removed)))
    if not result.ok:
        # What a failing cell displayed before it failed stays visible; without any, the error stands alone.
        return (*messages, failure(noted))
    if not quiet or noted.notes or noted.violations or noted.limit is not None:
        messages.append(receipt_message(noted))
    return tuple(messages)


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
    data, removed = told_apart(clean.data), tuple(map(notes.removed_output, words))
    if display.kind == "result":
        return Value(data, clean.metadata), removed
    display_id = display.page_id if isinstance(display, SessionDisplay) else ""
    return ShowOutput(data, clean.metadata, display_id, display.kind == "update"), removed


def told_apart(data: Mapping[str, object]) -> dict[str, object]:
    """The clean bundle of a sandbox so that nothing in it passes for ours, or reaches what another has shown."""
    guards = {"text/html": framed, "text/plain": unmarked, "image/svg+xml": with_own_names}
    guarded = {mime: guard(text) for mime, guard in guards.items() if isinstance(text := data.get(mime), str)}
    return {**data, **guarded}


def receipt_message(result: ExecResult) -> ShowOutput:
    """The receipt of a cell that ended well; the page draws the measured numbers from the metadata."""
    ending = describe_end(result)
    bundle = receipt.mime_bundle(result, ending)
    # The receipt quotes the sandbox (paths, names): a page typesets formulas in HTML, so these are defused too.
    bundle["text/html"] = defused(receipt.html(result, ending))
    return ShowOutput(bundle, {receipt.MIME: receipt.measurements(result)})


def failure(result: ExecResult) -> Failure:
    """The one message of a cell that did not end well."""
    ename, evalue = error_name(result), describe_end(result)
    lines: list[str] = []
    if result.error is not None:
        if result.status is Status.FAILED:
            name = one_line(result.error.ename, _MAX_NAME)
            ename = name_of_program(name) if name else ename
            evalue = _text(result.error.evalue, _MAX_VALUE)
        lines += few_colours([_text(line, _MAX_VALUE) for line in result.error.traceback[:_MAX_TRACEBACK]])
    # Each line of ours begins with the end of all colours: what a program left behind must not hide it.
    if not lines:
        lines.append(f"{END}{receipt.MARK} {BOLD}{RED}{ename}{END}: {evalue}")
    if result.rolled_back:
        lines.append(f"{END}{receipt.MARK} {BOLD}The session is as it was before this cell.{END}")
    lines.append(f"{END}{DIM}{plain(receipt.plain_text(result, describe_end(result)))}{_measured(result)}{END}")
    return Failure(ename, evalue, tuple(lines))


def error_name(result: ExecResult) -> str:
    """The stable name of how a cell failed, for clients and for ``raises-exception`` cells."""
    return ERROR_NAMES.get(result.status, ERROR_NAMES[Status.FAILED])


def refusal(error: SandboxError) -> Failure:
    """A request that was not run at all."""
    name = type(error).__name__
    return Failure(name, str(error), (f"{receipt.MARK} {BOLD}{RED}{name}{END}: {error}",))


def one_line(text: object, limit: int) -> str:
    """Words of a sandbox for places that take one line without colours."""
    return receipt.one_line(plain(_text(text, 4 * limit)), limit)


def _text(text: object, limit: int) -> str:
    """Words of a sandbox, colours included."""
    try:
        return safe_text(text, limit)
    except ContentRefused:
        return ""


def _notes(result: ExecResult) -> list[Note]:
    cut = [name for name in ("stdout", "stderr") if getattr(result, f"{name}_truncated")]
    return [notes.output_cut(cut)] if cut else []


def _measured(result: ExecResult) -> str:
    """What differs from run to run, for the end of a traceback."""
    parts = [f"ran {result.duration:.2f} s"]
    if result.cpu_seconds is not None:
        parts.append(f"CPU {result.cpu_seconds:.2f} s")
    if result.peak_memory_bytes is not None:
        parts.append(f"peak {result.peak_memory_bytes / (1 << 20):.0f} MB")
    if result.peak_gpu_memory_bytes is not None:
        parts.append(f"GPU peak {result.peak_gpu_memory_bytes / (1 << 20):.0f} MB")
    return f"\n  {', '.join(parts)}"
