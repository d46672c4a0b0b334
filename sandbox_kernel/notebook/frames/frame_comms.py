"""Carries messages between widgets of our kernel and frames. What a page sends runs in its session as a small cell."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.notebook.frames.gated_pages import CALLBACK_S, TARGET, GatedPages, ToWidget
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.session.session import Session
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.frames.comm_message import COMM, comm_of_session
from sandbox_kernel.untrusted.frames.frame_output import FRAME, ids_apart

#: The most messages of pages that wait for their session, and the most bytes that they take.
MAX_WAITING, MAX_WAITING_BYTES = 200, 256 << 20
#: The most messages of pages that were not looked at yet; further ones are dropped.
MAX_UNHEARD = 1000
_BUSY = "[messages of this widget were not delivered: its session has not yet answered those before]\n"


class FrameComms:
    """The widgets of a notebook's sessions; a gate for each session. Thread-safe."""

    def __init__(self, sessions: Callable[[], list[Session]], keep: Callable[[Mapping[str, object]], bool]) -> None:
        """``keep`` keeps the library that a display is; False when it is none."""
        self._sessions, self._keep = sessions, keep
        self._pages = GatedPages()
        self._lock = threading.Lock()
        self._unheard = threading.BoundedSemaphore(MAX_UNHEARD)
        self._heard = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-pages")
        self._work: ThreadPoolExecutor | None = None
        #: How many messages wait, and what they take.
        self._waiting, self._bytes = 0, 0
        self._has_refused = False
        #: The sign that ends the callbacks which run or wait.
        self._stop = Stop()

    def register(self, manager: Any) -> None:
        """Let pages connect; ``manager`` is the comm manager of the kernel."""
        manager.register_target(TARGET, self._connected)

    def _connected(self, comm: Any, _message: object) -> None:
        self._take_in(self._pages.connect, comm)
        comm.on_msg(lambda message: self._take_in(self._received, comm, message))
        comm.on_close(lambda _: self._take_in(self._pages.disconnect, comm))

    def _take_in(self, take: Callable[..., None], *given: object) -> None:
        """Do this on the thread that hears pages, in order: the state of a widget may be large, and gates be busy."""

        def work() -> None:
            try:
                take(*given)
            except Exception:
                logging.getLogger("sandbox-kernel").exception("a message of a page could not be handled")
            finally:
                self._unheard.release()

        if self._unheard.acquire(blocking=False):
            self._heard.submit(contextvars.copy_context().run, work)

    # -- from sessions -----------------------------------------------------------------------------------------------

    def take(self, display: SessionDisplay) -> bool:
        """Take a message of a session's widget; False when this display is none."""
        value = display.data.get(COMM)
        if value is None:
            return False
        with contextlib.suppress(ContentRefused):
            self._pages.take(display.worker_id, comm_of_session(value))
        return True

    @property
    def in_use(self) -> bool:
        """Whether any session has had a widget."""
        return self._pages.in_use

    def with_state(self, display: SessionDisplay, *, save: bool = True) -> SessionDisplay:
        """Return the display of a widget; with ``save`` its HTML has its state, for a saved notebook."""
        made = self._pages.saved(display.worker_id, display.data) if save else None
        data, apart = ids_apart(display.data)
        shown = data if made is None else {**data, "text/html": made}
        return replace(display, data=shown, metadata={**display.metadata, **apart}) if apart else display

    def settled(self, session: Session, *, went_back: bool) -> None:
        """The session has run something, or has gone back: pages follow it."""
        worker_id, state = session.present_state
        self._pages.settled(worker_id, state, went_back=went_back)

    def follow_all(self, *, went_back: bool) -> None:
        """A cell has run: the pages' widgets follow their sessions."""
        for session in self._sessions():
            self.settled(session, went_back=went_back)

    def settle_all(self) -> None:
        """Look at every session: line commands may have moved or ended any of them."""
        self.follow_all(went_back=False)
        self._pages.keep_only({session.present_state[0] for session in self._sessions()})

    # -- from pages --------------------------------------------------------------------------------------------------

    def _received(self, page: Any, message: Mapping[str, Any]) -> None:
        data = message.get("content", {}).get("data", {})
        with self._lock:  # messages are delivered in the order in which they came
            sent = self._pages.received(page, data, list(message.get("buffers") or []))
            if sent is None:
                return
            size = sent.message.kept_size
            if self._waiting >= MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
                self._pages.done(page, sent.gate, sent.message.message_id, "" if self._has_refused else _BUSY)
                self._has_refused = True
                return
            self._waiting, self._bytes, self._has_refused = self._waiting + 1, self._bytes + size, False
            self._work = self._work or ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-widgets")
            self._work.submit(self._take_turn, page, sent, size, self._stop)

    def interrupt(self) -> None:
        """End the callback that runs and those that wait: the user has pressed Stop. Waits for nothing."""
        self._stop.set()
        self._stop = Stop()

    def _take_turn(self, page: Any, sent: ToWidget, size: int, stop: Stop) -> None:
        """Deliver one message; on the thread for widgets."""
        try:
            self._deliver(page, sent, stop)
        finally:
            with self._lock:
                self._waiting, self._bytes = self._waiting - 1, self._bytes - size

    def _deliver(self, page: Any, sent: ToWidget, stop: Stop) -> None:
        session = next((one for one in self._sessions() if one.present_state[0] == sent.gate), None)
        printed: list[str] = []
        if session is None or not self._pages.is_current(sent):
            return
        try:
            result = session.deliver(
                sent.message.for_session(),
                CALLBACK_S,
                stop,
                on_output=lambda _stream, text: printed.append(text),
                on_display=lambda display: self._shown(display, printed),
            )
            self.settled(session, went_back=result.rolled_back)
            if not result.ok:
                printed.append(f"[the widget's callback was ended: {result.status}]\n")
            printed += [f"[{note}]\n" for note in result.notes]
        except SandboxError as error:
            printed.append(f"[{error}]\n")
        self._pages.done(page, sent.gate, sent.message.message_id, "".join(printed))
        session.keep_state()

    def _shown(self, display: SessionDisplay, printed: list[str]) -> None:
        if self.take(display) or self._keep(display.data):
            return
        frame = display.data.get(FRAME)
        only_brings_code = isinstance(frame, Mapping) and not frame.get("html")
        if isinstance(text := display.data.get("text/plain"), str) and not only_brings_code:
            printed.append(f"{text}\n")
