"""Keeps what the last cells have shown, for a page that was closed or loaded anew while a cell ran.

JupyterLab gives output only to the page that has run the cell. Our extension asks here for it, over a comm.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from sandbox_kernel.untrusted.json_value import size_of
from sandbox_kernel.util.values import dataclass

TARGET = "sandbox-kernel.output"
#: How many cells are kept, and how much output of one, in characters.
MAX_CELLS, MAX_CHARACTERS = 8, 4 << 20
#: What a message counts besides.
_MESSAGE = 100
_KINDS = frozenset(["stream", "display_data", "update_display_data", "execute_result", "error", "clear_output"])


@dataclass
class _Shown:
    """What one cell has shown: the messages of its request. Of a stream, the texts of several are one."""

    cell: str
    code: str
    client: str
    count: int
    running: bool = True
    cut: bool = False
    size: int = 0
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def add(self, kind: str, content: Mapping[str, object]) -> None:
        """Add a message; text is added to that of the message before it, and what was cleared is forgotten."""
        if kind == "clear_output" and not content.get("wait"):
            self.messages, self.size = [], 0
            return
        self.size += _MESSAGE + size_of(content)
        if self.size > MAX_CHARACTERS:
            self.cut = True
            return
        if kind != "stream":
            self.messages.append((kind, dict(content)))
            return
        last = self.messages[-1] if self.messages else None
        if last is None or last[0] != kind or last[1]["name"] != content["name"]:
            last = (kind, {"name": content["name"], "text": []})
            self.messages.append(last)
        last[1]["text"].append(str(content["text"]))


class KeptOutput:
    """The output of the last cells by their requests. Thread-safe; messages are kept in the order they are sent in."""

    def __init__(self, publish: Callable[[str, Mapping[str, object], Mapping[str, Any]], object]) -> None:
        self._publish = publish
        self._lock = threading.Lock()
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def begin(self, parent: Mapping[str, Any], cell: str, code: str, count: int) -> None:
        """A cell begins. ``code`` is told too: in a notebook without ids of cells, each page makes up its own."""
        header = parent.get("header", {})
        with self._lock:
            self._shown[str(header.get("msg_id"))] = _Shown(cell, code, str(header.get("session")), count)
            while len(self._shown) > MAX_CELLS:
                self._shown.popitem(last=False)

    def end(self, parent: Mapping[str, Any]) -> None:
        """A cell has ended."""
        with self._lock:
            if (shown := self._shown.get(str(parent["header"]["msg_id"]))) is not None:
                shown.running = False

    def send(self, kind: str, content: Mapping[str, object], parent: Mapping[str, Any]) -> None:
        """Keep a message for a parent and send it; some have no parent."""
        with self._lock:
            shown = self._shown.get(str((parent.get("header") or {}).get("msg_id")))
            if shown is not None and kind in _KINDS and not shown.cut:
                shown.add(kind, content)
            self._publish(kind, content, parent)

    def asked(self, comm: Any, _message: object) -> None:
        """Tell a page what cells have shown. What comes later reaches it after this message."""
        told: list[dict[str, object]] = []
        with self._lock:
            for request, shown in self._shown.items():
                messages = [
                    {"kind": kind, "content": {**said, "text": "".join(said["text"])} if kind == "stream" else said}
                    for kind, said in shown.messages
                ]
                own = {name: getattr(shown, name) for name in ("cell", "code", "client", "count", "running", "cut")}
                told.append({"request": request, **own, "messages": messages})
            comm.send({"shown": told})
