"""Carries messages between the widgets of sessions and the frames of pages, over one comm of the kernel to each page.

The comm (target ``sandbox-kernel.frames``) is opened by our extension, and speaks with it only; frames never see it.
What a page sends to a widget runs in its session as a small cell: under the same limits, one after the other.
"""

# mypy: disallow-untyped-calls=False
# comm has no types.

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.notebook.page.frames.comm_gate import CommGate
from sandbox_kernel.notebook.page.frames.uploads import Upload
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.session.session import Session
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.ansi import plain
from sandbox_kernel.untrusted.frames.comm_message import COMM, CommMessage, comm_of_page, comm_of_session
from sandbox_kernel.untrusted.frames.frame_output import FRAME, saved_widget

TARGET = "sandbox-kernel.frames"
MAX_PAGES = 32
#: How long the callbacks of one message may run, in seconds.
CALLBACK_S = 30.0
MAX_PRINTED = 10_000


class FrameComms:
    """The gates of a notebook's sessions, and the pages that are connected. Thread-safe."""

    def __init__(self, sessions: Callable[[], list[Session]]) -> None:
        self._sessions = sessions
        self._lock = threading.RLock()
        self._gates: dict[str, CommGate] = {}
        self._pages: list[Any] = []
        self._uploads: dict[Any, Upload] = {}
        self._work: ThreadPoolExecutor | None = None

    def register(self, manager: Any) -> None:
        """Let pages connect; ``manager`` is the comm manager of the kernel."""
        manager.register_target(TARGET, self._connected)

    def _connected(self, comm: Any, _message: object) -> None:
        with self._lock:
            self._pages = [*self._pages[-MAX_PAGES + 1 :], comm]
            self._uploads = {page: self._uploads.get(page, Upload()) for page in self._pages}
        comm.on_msg(lambda message: self._received(comm, message))
        comm.on_close(lambda _: self._disconnected(comm))

    def _disconnected(self, comm: Any) -> None:
        with self._lock:
            self._pages = [page for page in self._pages if page is not comm]
            self._uploads.pop(comm, None)

    # -- from sessions -----------------------------------------------------------------------------------------------

    def take(self, display: SessionDisplay) -> bool:
        """Take a message of a session's widget; False when this display is none."""
        value = display.data.get(COMM)
        if value is None:
            return False
        try:
            message = comm_of_session(value)
        except ContentRefused:
            return True
        with self._lock:
            gate = self._gates.setdefault(display.worker_id, CommGate())
            if gate.from_session(message):
                self._tell(display.worker_id, gate, [message])
        return True

    @property
    def in_use(self) -> bool:
        """Whether any session has had a widget."""
        return bool(self._gates)

    def with_state(self, display: SessionDisplay) -> SessionDisplay:
        """Return the display of a widget with its state in its HTML, so that a saved notebook can draw it."""
        data = display.data.get(FRAME)
        widget = data.get("widget") if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or not isinstance(widget, Mapping):
            return display
        with self._lock:
            gate = self._gates.get(display.worker_id)
            found = gate.replay(str(widget.get("model_id"))) if gate is not None else []
        made = saved_widget(data, found)
        return display if made is None else replace(display, data={**display.data, "text/html": made})

    def settled(self, session: Session, *, went_back: bool) -> None:
        """The session has run something, or has gone back: pages follow it."""
        worker_id, state = session.present_state
        with self._lock:
            gate = self._gates.get(worker_id)
            if gate is not None and (news := gate.settled(state, went_back=went_back)):
                self._tell(worker_id, gate, news)

    def settle_all(self) -> None:
        """Look at every session: line commands may have moved or ended any of them."""
        alive = {}
        for session in self._sessions():
            worker_id, _ = session.present_state
            alive[worker_id] = session
            self.settled(session, went_back=False)
        with self._lock:
            for worker_id in [worker_id for worker_id in self._gates if worker_id not in alive]:
                gate = self._gates.pop(worker_id)
                self._tell(worker_id, gate, gate.close_all())

    def _tell(self, worker_id: str, gate: CommGate, messages: list[CommMessage]) -> None:
        data = {"type": "comms", "gate": worker_id, "epoch": gate.epoch, **_packed(messages)}
        for page in self._pages:
            page.send(data, buffers=[part for message in messages for part in message.buffers])

    # -- from pages --------------------------------------------------------------------------------------------------

    def _received(self, page: Any, message: Mapping[str, Any]) -> None:
        data = message.get("content", {}).get("data", {})
        if not isinstance(data, Mapping) or not isinstance(worker_id := data.get("gate"), str):
            return
        if data.get("type") == "attach":
            self._attach(page, worker_id, str(data.get("model")))
        elif data.get("type") == "piece" and page in self._uploads:
            self._uploads[page].add(data.get("upload"), list(message.get("buffers") or []))
        elif data.get("type") == "comm":
            try:
                parts = list(message.get("buffers") or [])
                if "upload" in data and page in self._uploads:
                    parts = self._uploads[page].buffers(data["upload"], data.get("sizes"))
                checked = comm_of_page(data.get("msg"), parts)
            except ContentRefused as reason:
                told = f"[a message of this widget was not delivered: {reason}]\n"
                page.send({"type": "done", "gate": worker_id, "id": "", "printed": told})
                return
            with self._lock:
                gate = self._gates.get(worker_id)
                if gate is None or not gate.from_page(checked, data.get("epoch")):
                    return
                self._work = self._work or ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-widgets")
                self._work.submit(self._deliver, page, worker_id, gate.epoch, checked)

    def _attach(self, page: Any, worker_id: str, model: str) -> None:
        with self._lock:
            gate = self._gates.get(worker_id)
            found = gate.replay(model) if gate is not None else []
            epoch = gate.epoch if gate is not None else 0
            data = {"type": "state", "gate": worker_id, "model": model, "epoch": epoch, **_packed(found)}
            page.send(data, buffers=[part for message in found for part in message.buffers])

    def _deliver(self, page: Any, worker_id: str, epoch: int, message: CommMessage) -> None:
        """Run the callbacks of one message in its session; on the thread for widgets."""
        session = next((one for one in self._sessions() if one.present_state[0] == worker_id), None)
        printed: list[str] = []
        with self._lock:
            gate = self._gates.get(worker_id)
            if session is None or gate is None or gate.epoch != epoch:
                return
        try:
            result = session.deliver(
                message.for_session(),
                CALLBACK_S,
                on_output=lambda _stream, text: printed.append(text),
                on_display=lambda display: self._shown(display, printed),
            )
            self.settled(session, went_back=result.rolled_back)
            if not result.ok:
                printed.append(f"[the widget's callback was ended: {result.status}]\n")
        except SandboxError as error:
            printed.append(f"[{error}]\n")
        text = plain("".join(printed))[-MAX_PRINTED:]
        page.send({"type": "done", "gate": worker_id, "id": message.message_id, "printed": text})

    def _shown(self, display: SessionDisplay, printed: list[str]) -> None:
        if not self.take(display) and isinstance(text := display.data.get("text/plain"), str):
            printed.append(f"{text}\n")

    def close(self) -> None:
        """Stop delivering; called when the kernel shuts down."""
        if self._work is not None:
            self._work.shutdown(wait=False, cancel_futures=True)


def _packed(messages: list[CommMessage]) -> dict[str, object]:
    return {"messages": [message.for_page() for message in messages], "parts": [len(m.buffers) for m in messages]}
