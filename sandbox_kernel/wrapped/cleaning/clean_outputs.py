"""Cleans the outputs of a wrapped kernel (its messages on iopub) before a page gets them.

The same rules hold as for outputs of our own kernel: text without control sequences, displays after ``untrusted/``, in
a frame if they need scripts. Another message is dropped; comms pass a gate (``relaying/kernel_widgets.py``).
"""

from __future__ import annotations

from sandbox_kernel.receipt import unmarked
from sandbox_kernel.untrusted.ansi import ColourFilter
from sandbox_kernel.untrusted.json_value import encodable
from sandbox_kernel.untrusted.sanitize import MAX_WORK
from sandbox_kernel.wrapped.cleaning import clean_parts
from sandbox_kernel.wrapped.cleaning.clean_parts import MalformedMessage, Table

#: Messages of widgets.
COMMS = frozenset(("comm_open", "comm_msg", "comm_close"))
#: Messages that show a MIME bundle.
DISPLAYS = frozenset(("display_data", "update_display_data", "execute_result"))
#: Kinds that a page must not get, and that kernels send all the same; they are not counted as malformed.
_SILENT = frozenset(("iopub_welcome", "debug_event"))
_MAX_CODE = 64 << 20
_STREAMS = ("stdout", "stderr")
_TOO_MUCH = f"further outputs were too many to be shown: they are the work of more than {MAX_WORK} shapes"
_STATES = ("busy", "idle", "starting")


class OutputCleaner:
    """Cleans one kernel's outputs, in order. It remembers unfinished colour sequences and what it has told the user.

    ``gate`` is the name of the gate of the kernel's widgets.
    """

    def __init__(self, gate: str = "") -> None:
        self._gate = gate
        #: Whether the kernel's text ends within a line.
        self.amid_line = False
        self.end()
        self._told: set[str] = set()
        self._removed: list[str] = []

    def clean(self, kind: str, content: Table) -> Table | None:
        """Return the content for the page; None for a message that is left out. Raises ``MalformedMessage``."""
        match kind:
            case "status":
                return self._status(content)
            case "stream":
                return self._stream(content)
            case "execute_input":
                code = clean_parts.text(content.get("code"), _MAX_CODE)
                return {"code": code, "execution_count": _count(content)}
            case "display_data" | "update_display_data":
                return {**self._bundle(content), **_transient(content)}
            case "execute_result":
                return {**self._bundle(content), **_transient(content), "execution_count": _count(content)}
            case "error":
                return clean_parts.error(content)
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

    def is_amid_colour(self, name: str) -> bool:
        """Whether text of a stream is held back: what is printed next may be the rest of its colour sequence."""
        return self._colours[name].holds

    def take_rest(self) -> list[Table]:
        """Return the text that was held back as the start of a colour sequence; called when a cell is over."""
        rest = [(name, colours.close()) for name, colours in self._colours.items()]
        return [{"name": name, "text": text} for name, text in rest if text]

    def end(self) -> None:
        """Forget the colours and the work of a cell: it is over."""
        self._colours = {name: ColourFilter() for name in _STREAMS}
        self.amid_line, self._work = False, 0

    def closing(self) -> str:
        """Return what ends the kernel's line and colours before a line of ours, which stands on standard error."""
        ends = {colours.end_colours() for colours in self._colours.values()}
        line, self.amid_line = "\n" if self.amid_line else "", False
        return max(ends) + line

    def _status(self, content: Table) -> Table:
        state = content.get("execution_state")
        if state not in _STATES:
            raise MalformedMessage
        return {"execution_state": state}

    def _stream(self, content: Table) -> Table | None:
        name, text = content.get("name"), content.get("text")
        if not isinstance(name, str) or name not in self._colours or not isinstance(text, str):
            raise MalformedMessage
        shown = unmarked(self._colours[name].feed(encodable(text)))
        self.amid_line = not shown.endswith("\n") if shown else self.amid_line
        return {"name": name, "text": shown} if shown else None

    def _bundle(self, content: Table) -> Table:
        clean, removed, work = clean_parts.display(content, self._gate)
        self._work += work
        self._removed.extend(removed if self._work <= MAX_WORK else (_TOO_MUCH,))
        return clean if self._work <= MAX_WORK else {"data": {}, "metadata": {}}


def _count(content: Table) -> int | None:
    value = content.get("execution_count")
    return None if value is None else clean_parts.count(value)


def _transient(content: Table) -> Table:
    """Return the name of a display, by which the kernel can change it later."""
    transient = content.get("transient")
    if not isinstance(transient, dict):
        return {}
    name = transient.get("display_id")
    return {"transient": {"display_id": clean_parts.line(name)} if isinstance(name, str) else {}}
