"""How one cell's messages reach the page: each with the cell's own parent, whatever thread or task sends it.

The base class finds the parent in a context variable; output that arrives from a reader thread would be printed into
the latest cell instead of its own. Made by the kernel for each request; a silent request sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sandbox_kernel.notebook.render import Failure, Message, Shown, Value
from sandbox_kernel.notebook.untrusted.json_value import encodable


class Publisher(Protocol):
    """Sends one iopub message for a parent; the kernel is one."""

    def publish(self, kind: str, content: Mapping[str, object], parent: Mapping[str, object]) -> None:
        """Send it now."""


class Wire:
    """The iopub side of one cell."""

    def __init__(self, publisher: Publisher, parent: Mapping[str, object], number: int, silent: bool) -> None:
        self._publisher = publisher
        self._parent = parent
        self._number = number
        self._silent = silent

    def stream(self, name: str, text: str) -> None:
        """Text of stdout or stderr."""
        self._send("stream", {"name": name, "text": encodable(text)})

    def message(self, message: Message) -> None:
        """A display, a value or an error."""
        match message:
            case Shown():
                content = {"data": dict(message.data), "metadata": dict(message.metadata), "transient": {}}
                self._send("display_data", content)
            case Value():
                content = {"data": dict(message.data), "metadata": dict(message.metadata)}
                self._send("execute_result", {**content, "execution_count": self._number})
            case Failure():
                self._send("error", failure_fields(message))

    def _send(self, kind: str, content: Mapping[str, object]) -> None:
        if not self._silent:
            self._publisher.publish(kind, content, self._parent)


def failure_fields(failure: Failure) -> dict[str, object]:
    """The three fields of an error, the same in the message and in the reply."""
    return {
        "ename": encodable(failure.ename),
        "evalue": encodable(failure.evalue),
        "traceback": [encodable(line) for line in failure.traceback],
    }
