"""Sends the messages of one cell to the page, each with that cell's request as its parent.

A parent from a context variable would be wrong in other threads: output from a reader thread would appear below the
latest cell. The kernel makes one ``Wire`` for each request; a silent request sends nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from sandbox_kernel.notebook.render import ClearOutput, Failure, Message, ReportPanel, ShowOutput, Value
from sandbox_kernel.untrusted.json_value import encodable

if TYPE_CHECKING:
    from sandbox_kernel.notebook.page.late_wire import LateWire
    from sandbox_kernel.notebook.page.widgets import RunPanel
    from sandbox_kernel.session.cell.displays import SessionDisplay


class KernelPublisher(Protocol):
    """What a ``Wire`` needs of the kernel."""

    def publish(self, kind: str, content: Mapping[str, object], parent: Mapping[str, object]) -> None:
        """Send one iopub message with this parent."""

    def report_view(self, document: Mapping[str, object]) -> Mapping[str, object]:
        """Return the MIME bundle that shows the widget of a report."""

    def run_panel(self, timeout_s: float, stop: Callable[[], None]) -> RunPanel:
        """Return a new run panel with open widgets."""


class Wire:
    """The ``Door`` of ``CellExecution`` in the kernel: sends the iopub messages of one cell."""

    def __init__(
        self, publisher: KernelPublisher, parent: Mapping[str, object], number: int, *, silent: bool, watched: bool
    ) -> None:
        self._publisher = publisher
        self._parent = parent
        self._number = number
        self._silent = silent
        self._watched = watched

    def watched(self) -> bool:
        """See ``execution.Door``."""
        return self._watched and not self._silent

    def late(self, messages: Callable[[SessionDisplay], list[Message]]) -> LateWire:
        """See ``execution.Door``."""
        from sandbox_kernel.notebook.page.late_wire import LateWire

        return LateWire(self, messages)

    def stream(self, name: str, text: str) -> None:
        """Send text of stdout or stderr."""
        self._send("stream", {"name": name, "text": encodable(text)})

    def message(self, message: Message) -> None:
        """Send a display, a value or an error."""
        match message:
            case ShowOutput():
                self._display(message.data, message.metadata, message.display_id, update=message.update)
            case ClearOutput():
                self._send("clear_output", {"wait": message.wait})
            case ReportPanel():
                if not self._silent:
                    self._display(self._publisher.report_view(message.document), {})
            case Value():
                content = {"data": dict(message.data), "metadata": dict(message.metadata)}
                self._send("execute_result", {**content, "execution_count": self._number})
            case Failure():
                self._send("error", failure_fields(message))

    def live(self, timeout_s: float, stop: Callable[[], None]) -> LivePanel | None:
        """See ``execution.Door``. Returns None unless a notebook page runs the cell."""
        if not self.watched():
            return None
        return LivePanel(self, self._publisher.run_panel(timeout_s, stop))

    def _display(
        self, data: Mapping[str, object], metadata: Mapping[str, object], display_id: str = "", *, update: bool = False
    ) -> None:
        transient = {"display_id": display_id} if display_id else {}
        content = {"data": dict(data), "metadata": dict(metadata), "transient": transient}
        self._send("update_display_data" if update else "display_data", content)

    def _send(self, kind: str, content: Mapping[str, object]) -> None:
        if not self._silent:
            self._publisher.publish(kind, content, self._parent)


class LivePanel:
    """A run panel in the output area of its cell. After ``close`` nothing of it is left in the notebook."""

    def __init__(self, wire: Wire, panel: RunPanel) -> None:
        self._wire = wire
        self._panel = panel
        self._id = uuid.uuid4().hex
        from sandbox_kernel.notebook.page.widgets import view  # most cells end before they have a panel

        wire._display(view(panel.widget, "running"), {}, self._id)

    def update(self, elapsed_s: float, memory: tuple[int, int] | None) -> None:
        """See ``execution.RunPanelHandle``."""
        self._panel.update(elapsed_s, memory)

    def close(self) -> None:
        """See ``execution.RunPanelHandle``. Makes the display empty: a closed widget cannot be drawn."""
        self._panel.close()
        self._wire._display({"text/plain": ""}, {}, self._id, update=True)


def failure_fields(failure: Failure) -> dict[str, object]:
    """Return the three fields of an error, for the message and for the reply."""
    return {
        "ename": encodable(failure.ename),
        "evalue": encodable(failure.evalue),
        "traceback": [encodable(line) for line in failure.traceback],
    }
