"""The pages that are connected, and the gates of the widgets that they show: what passes between the two.

Each page has a comm to us (target ``sandbox-kernel.frames``), which our extension speaks with; frames never see it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from sandbox_kernel.notebook.frames.comm_gate import CommGate
from sandbox_kernel.receipt import unmarked
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.ansi import plain
from sandbox_kernel.untrusted.frames.comm_message import CommMessage, comm_of_page
from sandbox_kernel.untrusted.frames.frame_output import FRAME, MAX_SAVED, saved_widget
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import BadMessage, check


class Attach(msgspec.Struct, tag_field="type", tag="attach"):
    """A page asks for what it needs to draw a model."""

    gate: str
    model: str


class ForWidget(msgspec.Struct, tag_field="type", tag="comm"):
    """A message for a widget."""

    gate: str
    msg: Any
    epoch: int


TARGET = "sandbox-kernel.frames"
MAX_PAGES = 32
#: How long the callbacks of one message may run, in seconds.
CALLBACK_S = 30.0
MAX_PRINTED = 10_000
_BEHIND = "[this session sends more to its widgets than pages can take: what is shown may not be the newest]\n"


class FramePage(Protocol):
    """Our end of the comm to one page."""

    def send(self, data: dict[str, object], *, buffers: list[bytes]) -> None:
        """Send a message to the page."""


@dataclass(frozen=True, kw_only=True)
class ToWidget:
    """A message of a page that passed its gate: it is for the widgets behind that gate, in this epoch."""

    gate: str
    epoch: int
    message: CommMessage


class GatedPages:
    """The pages of one notebook and the gates of its widgets, by name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._gates: dict[str, CommGate] = {}
        self._pages: list[FramePage] = []

    @property
    def in_use(self) -> bool:
        """Whether there has been a widget."""
        return bool(self._gates)

    def connect(self, page: FramePage) -> None:
        """A page was opened; the oldest one of too many is forgotten."""
        with self._lock:
            self._pages = [*self._pages[-MAX_PAGES + 1 :], page]

    def disconnect(self, page: FramePage) -> None:
        """A page was closed."""
        with self._lock:
            self._pages = [known for known in self._pages if known is not page]

    def take(self, name: str, message: CommMessage) -> bool:
        """Take a message of widgets behind a gate; whether it passes."""
        with self._lock:
            gate = self._gates.setdefault(name, CommGate())
            was_behind, passes = gate.is_behind, gate.from_session(message)
            if gate.is_behind and not was_behind:
                for page in self._pages:
                    self.done(page, name, "", _BEHIND)
            if passes:
                self._tell(name, gate, [message])
        return passes

    def saved(self, name: str, data: Mapping[str, object]) -> str | None:
        """Return HTML of a widget's frame that has its state, for a notebook that is saved; None for other displays."""
        frame = data.get(FRAME)
        widget = frame.get("widget") if isinstance(frame, Mapping) else None
        if not isinstance(frame, Mapping) or not isinstance(widget, Mapping):
            return None
        with self._lock:
            gate = self._gates.get(name) or CommGate()
            found = gate.replay(str(widget.get("model_id")), MAX_SAVED)
        return saved_widget(frame, found)

    def settled(self, name: str, state: int, *, went_back: bool) -> None:
        """What is behind a gate is in this state now, and may have gone back to it: pages follow."""
        with self._lock:
            gate = self._gates.get(name)
            if gate is None:
                return
            epoch, news = gate.epoch, gate.settled(state, went_back=went_back)
            # Also without news: the gate refuses messages of another epoch.
            if gate.epoch != epoch or gate.is_outdated:
                self._tell(name, gate, news)

    def catch_up(self, name: str) -> None:
        """Let pages draw the widgets behind a gate anew if they have missed something."""
        with self._lock:
            gate = self._gates.get(name)
            if gate is not None and gate.is_behind:
                gate.is_outdated, gate.is_behind = True, False
                self._tell(name, gate, [])

    def keep_only(self, names: set[str]) -> None:
        """Close the gates of all others, and their widgets on the pages."""
        with self._lock:
            for name in [name for name in self._gates if name not in names]:
                gate = self._gates.pop(name)
                self._tell(name, gate, gate.rewind({}))

    def is_current(self, sent: ToWidget) -> bool:
        """Whether the widgets behind the gate have not gone back since."""
        with self._lock:
            gate = self._gates.get(sent.gate)
            return gate is not None and gate.epoch == sent.epoch

    def received(self, page: FramePage, data: object, parts: Sequence[object]) -> ToWidget | None:
        """Take a message of a page; returns what is for a widget, and None for all else. It may be hostile."""
        try:
            said = check(data, Attach | ForWidget)
        except BadMessage:
            return None
        if isinstance(said, Attach):
            self._attach(page, said.gate, said.model)
            return None
        try:
            checked = comm_of_page(said.msg, parts)
        except ContentRefused as reason:
            self.done(page, said.gate, "", f"[a message of this widget was not delivered: {reason}]\n")
            return None
        with self._lock:
            gate = self._gates.get(said.gate)
            if gate is not None and gate.from_page(checked, said.epoch):
                return ToWidget(gate=said.gate, epoch=gate.epoch, message=checked)
        return None

    def done(self, page: FramePage, name: str, message_id: str, printed: str) -> None:
        """Tell a page that the callbacks of its message have run, and what they printed."""
        text = unmarked(plain(printed))[-MAX_PRINTED:]
        page.send({"type": "done", "gate": name, "id": message_id, "printed": text}, buffers=[])

    def _attach(self, page: FramePage, name: str, model: str) -> None:
        with self._lock:
            gate = self._gates.get(name) or CommGate()
            found, about = gate.drawn(model), {"epoch": gate.epoch, "closed": gate.has_closed(model)}
            data = {"type": "state", "gate": name, "model": model, **about, **_packed(found)}
            page.send(data, buffers=[part for message in found for part in message.buffers])

    def _tell(self, name: str, gate: CommGate, messages: list[CommMessage]) -> None:
        data = {"type": "comms", "gate": name, "epoch": gate.epoch, **_packed(messages)}
        for page in self._pages:
            page.send(data, buffers=[part for message in messages for part in message.buffers])
            if gate.is_outdated:
                page.send({"type": "again", "gate": name}, buffers=[])
        gate.is_outdated = False


def _packed(messages: list[CommMessage]) -> dict[str, object]:
    return {"messages": [message.for_page() for message in messages], "parts": [len(m.buffers) for m in messages]}
