"""The widgets of a wrapped kernel: its comms pass the same gate as those of our own kernel, and end in frames.

Our extension opens one comm to this relay. What passes the gate is sent to the kernel as a message of ours; what its
callbacks print is told to that page. Other comms of front ends are closed, those of the kernel dropped.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_kernel.notebook.frames.frame_libraries import NotebookLibraries
from sandbox_kernel.notebook.frames.gated_pages import CALLBACK_S, MAX_PAGES, MAX_PRINTED, TARGET, GatedPages
from sandbox_kernel.notebook.render import told_apart
from sandbox_kernel.session.cell.displays import MAX_COMM_MESSAGES
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.frames.comm_message import comm_of_kernel
from sandbox_kernel.untrusted.frames.frame_output import ids_apart
from sandbox_kernel.wrapped.relaying.cleaning import COMMS, Table
from sandbox_kernel.wrapped.relaying.outside import Outside

#: The most messages of pages that wait for the kernel; a page sends its next one when it was told that one is done.
MAX_WAITING = 1000
_SHOWN = frozenset(("display_data", "execute_result"))
#: What callbacks show and the page is told as text; a display of a cell that they update goes to the page as it is.
_OF_CALLBACKS = frozenset((*_SHOWN, "stream", "error"))


@dataclass(eq=False)
class RelayPage:
    """Our end of the comm to one page; sends over the outputs' channel."""

    comm_id: str
    _outside: Outside

    def send(self, data: dict[str, object], *, buffers: list[bytes]) -> None:
        """See ``FramePage``."""
        self._outside.send("iopub", [b"comm_msg"], "comm_msg", {}, {"comm_id": self.comm_id, "data": data}, buffers)


@dataclass(kw_only=True)
class _Delivered:
    """A message of a page that the kernel has, and what its callbacks have printed."""

    page: RelayPage
    #: The id that the page gave it.
    name: str
    printed: str = ""
    since: float | None = None
    interrupted: bool = False

    def add(self, text: str) -> None:
        self.printed = (self.printed + text)[-MAX_PRINTED:]


class KernelWidgets:
    """One for each relay. ``deliver`` sends a comm message to the kernel: its id, its content and its buffers."""

    def __init__(self, outside: Outside, deliver: Callable[[str, Table, Sequence[bytes]], None]) -> None:
        #: The name of this kernel's gate.
        self.gate = uuid.uuid4().hex
        self._outside = outside
        self._deliver = deliver
        self._gated = GatedPages()
        #: What frames need and the page or the notebook lacks.
        self.libraries = NotebookLibraries()
        self._pages: dict[str, RelayPage] = {}
        self._delivered: OrderedDict[str, _Delivered] = OrderedDict()
        self._left = MAX_COMM_MESSAGES

    # From the kernel

    def begin(self) -> None:
        """A cell begins: it may send as many messages as each cell may, and pages get what they have missed."""
        self._left = MAX_COMM_MESSAGES
        self._gated.catch_up(self.gate)

    def from_kernel(self, kind: str, parent_id: str, content: Table, metadata: Table, buffers: Sequence[bytes]) -> bool:
        """Take a comm message of the kernel; whether the pages got it."""
        self._left -= 1
        known = self._delivered.get(parent_id)
        try:
            if self._left < 0:
                return False
            cause = known.name if known is not None else ""
            return self._gated.take(self.gate, comm_of_kernel(kind, content, metadata, buffers, cause))
        except ContentRefused:
            return False

    def with_state(self, data: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        """Return the display of a widget with its state in its HTML, for a saved notebook, and metadata of it."""
        made = self._gated.saved(self.gate, data)
        shown, apart = ids_apart(data)
        return (shown if made is None else {**shown, **told_apart({"text/html": made})}), apart

    def takes(self, kind: str, parent_id: str, content: Table) -> bool:
        """Take an output of a widget's callbacks, which no cell shows; False for outputs of cells."""
        known = self._delivered.get(parent_id)
        if known is None:
            return False
        state = content.get("execution_state") if kind == "status" else None
        if state == "busy":
            known.since = time.monotonic()
        elif state == "idle":
            del self._delivered[parent_id]
            self._gated.done(known.page, self.gate, known.name, known.printed)
        elif kind == "stream":
            known.add(str(content["text"]))
        elif kind in _SHOWN and isinstance(data := content.get("data"), Mapping):
            known.add(f"{data.get('text/plain', '')}\n")
        elif kind == "error" and isinstance(lines := content.get("traceback"), list):
            known.add("\n".join((*map(str, lines), "")))
        return kind in _OF_CALLBACKS

    def left_s(self) -> float | None:
        """Return how long the callbacks that run may still run; None when none run, or they were interrupted."""
        known = next(iter(self._delivered.values()), None)
        if known is None or known.since is None or known.interrupted:
            return None
        return known.since + CALLBACK_S - time.monotonic()

    def interrupted(self) -> None:
        """Note that the callbacks that run were interrupted for their time."""
        known = next(iter(self._delivered.values()))
        known.interrupted = True
        known.add(f"[the widget's callback ran longer than {CALLBACK_S:g} s and was interrupted]\n")

    def close(self) -> None:
        """Close the widgets on the pages: the kernel has ended."""
        self._gated.keep_only(set())

    # From front ends

    def open_comms(self, target: object) -> dict[str, object]:
        """Return the comms that front ends have to us, as ``comm_info`` tells them; ``target`` None is every target."""
        return {name: {"target_name": TARGET} for name in self._pages} if target in (None, TARGET) else {}

    def from_page(self, kind: str, header: Table, content: Table, buffers: Sequence[bytes]) -> None:
        """Take a comm message of a front end. The kernel gets none of them as they are."""
        comm_id = content.get("comm_id")
        if kind not in COMMS or not isinstance(comm_id, str):
            return
        page = self._pages.get(comm_id)
        if kind == "comm_open" and content.get("target_name") == TARGET and page is None:
            while len(self._pages) >= MAX_PAGES:  # most of them were closed without a word
                del self._pages[next(iter(self._pages))]
            self._pages[comm_id] = RelayPage(comm_id, self._outside)
            self._gated.connect(self._pages[comm_id])
        elif kind == "comm_open":
            self._outside.publish("comm_close", header, {"comm_id": comm_id, "data": {}})
        elif page is not None and kind == "comm_close":
            self._gated.disconnect(self._pages.pop(comm_id))
        elif page is not None:
            sent = self._gated.received(page, content.get("data"), buffers)
            if sent is not None and len(self._delivered) < MAX_WAITING:
                message_id = uuid.uuid4().hex
                inside: Table = {"comm_id": sent.message.comm_id, "data": sent.message.data}
                self._deliver(message_id, inside, sent.message.buffers)
                self._delivered[message_id] = _Delivered(page=page, name=sent.message.message_id)
