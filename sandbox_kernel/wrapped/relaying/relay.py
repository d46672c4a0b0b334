"""Carries messages between front ends and a kernel in a jail: verifies and signs them, cleans what comes out.

From outside: a message whose signature is wrong is dropped; a good one is signed with the inside key and sent on. What
comes from inside is the work of ``from_kernel.py``. One thread, one loop; it never blocks on the kernel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import zmq

from sandbox_kernel.notebook.frames.frame_libraries import cells_gone
from sandbox_kernel.wrapped import kernel_words
from sandbox_kernel.wrapped.inner_kernel import CHANNELS, InnerKernel, WayOut
from sandbox_kernel.wrapped.relaying.cleaning import COMMS, CompletionRequest, Table
from sandbox_kernel.wrapped.relaying.from_kernel import FromKernel, Requests, SentCell
from sandbox_kernel.wrapped.relaying.inside import InnerConnection, ZmtpError
from sandbox_kernel.wrapped.relaying.kernel_widgets import KernelWidgets
from sandbox_kernel.wrapped.relaying.outside import Outside
from sandbox_kernel.wrapped.relaying.wire import Signer, from_json, joined, split, to_json

#: The longest heartbeat, in bytes, with its routing prefix.
_MAX_BEAT = 4096
#: The longest wait between two checks that the front end still lives, in seconds.
_CHECK_S = 1.0
#: How long to wait before the next look whether front ends have read.
_PAUSE_S = 0.05
#: Plain numbers: libzmq's Python names are enumerations, which are slow to combine.
_IN, _OUT = int(zmq.POLLIN), int(zmq.POLLOUT)
#: The channels without which a kernel is of no use, and how long it may take to end when it has closed one of them.
_NEEDED = frozenset(("shell", "iopub", "control"))
_END_S = 5.0


class Relay:
    """The relay of one kernel. ``run`` returns when the kernel has ended."""

    def __init__(self, outside: Outside, kernel: InnerKernel, way_out: WayOut) -> None:
        self._outside = outside
        self._sockets = outside.by_channel
        self._theirs = outside.signer
        self._ours = Signer(kernel.key.encode())
        self._kernel = kernel
        self._way_out = way_out
        self._inner: dict[str, InnerConnection] = {}
        self._poller = zmq.Poller()
        #: The state of each channel for which the poller waits.
        self._watched: dict[str, tuple[bool, ...]] = {}
        self._requests = Requests(kernel.options.timeout_s)
        self._widgets = KernelWidgets(outside, self._send_comm)
        self._from_kernel = FromKernel(
            outside, self._widgets, self._requests, kernel.folder, self._hear_control, kernel.lacks()
        )
        #: What the kernel did, for the record, and its dropped messages by reason.
        self.recorder, self.dropped = self._from_kernel.recorder, self._from_kernel.dropped
        self._shutting_down = False
        #: Since when a channel of the kernel is closed; it may be about to end.
        self._broken_at: float | None = None
        self._is_broken = False
        self._timed_out, self._heard_at = False, 0.0
        #: Why the kernel ended, if no front end had asked for it.
        self.why_ended = ""

    def run(self, still_wanted: Callable[[], bool]) -> None:
        """Carry messages until the kernel has ended; end it when ``still_wanted`` returns False."""
        poller = self._poller
        poller.register(self._kernel.done, zmq.POLLIN)
        poller.register(self._way_out, zmq.POLLIN)
        poller.register(self._sockets["iopub"], zmq.POLLIN)
        while True:
            full = _PAUSE_S if self._outside.waiting.is_full or self._from_kernel.paced.waiting else None
            waits = [each for each in (self._requests.left_s(), self._widgets.left_s(), full) if each is not None]
            ready = dict(poller.poll(int(1000 * max(0.0, min((_CHECK_S, *waits)))) + 1))
            if self._kernel.done in ready:
                self._take_last()
                return
            if not still_wanted():
                self._shutting_down = True
                self._kernel.stop()
            if self._way_out.fileno() in ready:
                self._connect()
            self._look_at_clock()
            if self._sockets["iopub"] in ready:
                self._outside.welcome()
            for channel, inner in self._inner.items():
                events = ready.get(inner.fileno(), 0)
                if events & _OUT:
                    inner.flush()
                if events & ~_OUT:
                    self._from_inside(inner)
                if self._sockets[channel] in ready and channel != "iopub" and self._takes(inner):
                    self._from_outside(channel, inner)
            for inner in self._inner.values():
                self._watch(inner)

    @property
    def came_up(self) -> bool:
        """Whether the kernel could be reached once, or a front end wanted it to end before that."""
        return bool(self._inner) or self._shutting_down

    def _connect(self) -> None:
        """Take connections to the kernel's ports. From the first message on a channel's front ends are served."""
        try:
            taken = self._way_out.take()
        except EOFError:
            self._poller.unregister(self._way_out)
            return
        if taken is None:
            return
        channel, sock = taken
        if channel in self._inner:
            sock.close()
            return
        inner = self._inner[channel] = InnerConnection(channel, sock)
        self._watch(inner)

    def _watch(self, inner: InnerConnection) -> None:
        pauses = inner.channel == "iopub" and self._outside.waiting.is_full
        state = (pauses, "iopub" in self._inner, inner.closed, inner.is_full, bool(inner.waiting))
        if self._watched.get(inner.channel) == state:
            return
        self._watched[inner.channel] = state
        outside = self._sockets[inner.channel]
        if inner.closed:
            if inner.fileno() >= 0:
                self._poller.modify(inner.fileno(), 0)
                inner.close()
            if inner.channel in _NEEDED and self._broken_at is None:
                self._broken_at = time.monotonic()
            return
        self._poller.modify(inner.fileno(), (0 if pauses else _IN) | (_OUT if inner.waiting else 0))
        # Without iopub, the outputs of a first cell would be lost.
        if inner.channel == "iopub" or "iopub" not in self._inner:
            return
        if not self._takes(inner):
            if outside in self._poller:
                self._poller.unregister(outside)
        elif outside not in self._poller:
            self._poller.register(outside, zmq.POLLIN)

    # From outside

    @staticmethod
    def _takes(inner: InnerConnection) -> bool:
        """Whether front ends are heard: on control always, because a kernel that does not read there is stopped too."""
        return inner.channel == "control" or not inner.is_full

    def _from_outside(self, channel: str, inner: InnerConnection) -> None:
        try:
            frames = self._sockets[channel].recv_multipart(zmq.DONTWAIT)
        except zmq.Again:  # ``_hear_control`` has taken it since the socket was looked at
            return
        if channel == "hb":
            if sum(map(len, frames)) <= _MAX_BEAT:
                inner.send(frames)
            return
        packet = split(frames)
        if packet is None:
            return
        if self._theirs.key:
            if packet.signature in self._requests.seen or not self._theirs.verifies(packet.signature, packet.parts):
                return
            self._requests.seen[packet.signature] = None
        header = from_json(packet.parts[0]) or {}
        kind = header.get("msg_type")
        message_id, content = str(header.get("msg_id")), from_json(packet.parts[3]) or {}
        self._requests.routes[message_id] = packet.routing
        if kind == "execute_request":
            metadata = from_json(packet.parts[2]) or {}
            name, may_ask = metadata.get("cellId"), content.get("allow_stdin", True) is not False
            cell = SentCell(header, packet.routing, name if isinstance(name, str) else "", may_ask)
            self._requests.sent(message_id, cell)
            self._widgets.libraries.gone(cells_gone(metadata))
            if not self._from_kernel.begin(header):
                self._kernel.stop()
                return
        elif kind == "complete_request":
            code, place = content.get("code"), content.get("cursor_pos")
            if isinstance(code, str):
                place = place if isinstance(place, int) and 0 <= place <= len(code) else len(code)
                self._requests.completions[message_id] = CompletionRequest(code, place)
        elif kind == "input_reply":
            self._requests.answered()
        elif kind == "shutdown_request":
            self._shutting_down = True
        elif kind == "interrupt_request" and self._kernel.options.interrupt == "signal":
            self._kernel.interrupt()
            self._outside.send(channel, packet.routing, "interrupt_reply", header, {"status": "ok"})
            return
        elif kind in COMMS:
            try:
                self._widgets.from_page(str(kind), header, content, packet.buffers)
            except (ValueError, RecursionError):  # what a frame sends is hostile too
                self.dropped["comm messages"] += 1
            self._tell_idle(header)
            return
        elif kind == "comm_info_request":
            comms = self._widgets.open_comms(content.get("target_name"))
            self._outside.send(channel, packet.routing, "comm_info_reply", header, {"status": "ok", "comms": comms})
            self._tell_idle(header)
            return
        elif kind == "connect_request":
            ports = {f"{name}_port": self._outside.address.port(name) for name in CHANNELS}
            self._outside.send(channel, packet.routing, "connect_reply", header, {"status": "ok", **ports})
            return
        inner.send(joined(self._ours, (), packet.parts, packet.buffers))

    def _hear_control(self) -> None:
        """Take what front ends have sent on the control channel: Stop does not wait for the outputs that came first."""
        if (now := time.monotonic()) < self._heard_at + _PAUSE_S:  # to ask a socket takes longer than a small message
            return
        inner, self._heard_at = self._inner.get("control"), now
        if inner is not None and self._sockets["control"].poll(0):
            self._from_outside("control", inner)
        self._look_at_clock()

    # From inside

    def _from_inside(self, inner: InnerConnection) -> None:
        before = inner.reader.dropped
        try:
            messages = inner.receive()
        except ZmtpError:
            self.dropped["protocol"] += 1
            inner.closed = True
            return
        self._from_kernel.too_large(inner.reader.dropped - before)
        if inner.channel == "iopub" and "shell" in self._inner:
            # A cell's reply, which was sent before its idle status: what the cell changed is told before that.
            self._from_inside(self._inner["shell"])
        for frames in messages:
            if inner.channel != "hb":
                self._from_kernel.carry(inner.channel, frames)
            elif len(frames) <= 3 and sum(map(len, frames)) <= _MAX_BEAT:
                self._sockets["hb"].send_multipart(frames)
            self._hear_control()

    def _send_comm(self, message_id: str, content: Table, buffers: Sequence[bytes]) -> None:
        header = {**self._outside.header("comm_msg"), "msg_id": message_id}
        parts = [to_json(part) for part in (header, {}, {}, content)]
        if "shell" in self._inner:
            self._inner["shell"].send(joined(self._ours, (), parts, buffers))

    # Our own messages

    def _tell_idle(self, header: Table) -> None:
        """Say that a request that the kernel does not get was handled, and that a cell runs, if one does."""
        self._outside.publish("status", header, {"execution_state": "idle"})
        for cell in self._requests.cells()[:1]:
            self._outside.publish("status", cell.header, {"execution_state": "busy"})

    def _look_at_clock(self) -> None:
        self._from_kernel.paced.look()
        if self._broken_at is not None and time.monotonic() - self._broken_at > _END_S:
            self._is_broken = True
            self._kernel.stop()
        of_widget = self._widgets.left_s()
        if of_widget is not None and of_widget <= 0:
            self._widgets.interrupted()
            self._interrupt()
        left, limit = self._requests.left_s(), self._kernel.options.timeout_s
        if left is None or left > 0 or limit is None:
            return
        if self._requests.interrupted:
            self._timed_out = True
            self._kernel.stop(at_limit=True)
            return
        self._requests.interrupted = True
        running = self._requests.cells()[0]
        self.recorder.interrupted(str(running.header.get("msg_id")))
        words = f"the cell ran longer than its limit of {limit:g} s and was interrupted"
        self._outside.print_words(running.header, words)
        self._interrupt()

    def _interrupt(self) -> None:
        if self._kernel.options.interrupt == "signal":
            self._kernel.interrupt()
        elif "control" in self._inner:
            parts = [to_json(part) for part in (self._outside.header("interrupt_request"), {}, {}, {})]
            self._inner["control"].send(joined(self._ours, (), parts))

    def _take_last(self) -> None:
        """The kernel has ended: send what it sent last, then say how it ended unless a front end asked for it."""
        for inner in self._inner.values():
            while not inner.closed:
                self._from_inside(inner)
                if inner.closed or not zmq.select([inner.fileno()], [], [], 0)[0]:
                    break
        os.eventfd_read(self._kernel.done)
        self._widgets.close()
        if not self._shutting_down:
            name, words = kernel_words.ending(
                self._kernel.end, self._kernel.options, timed_out=self._timed_out, broken=self._is_broken
            )
            self.why_ended = words
            self.recorder.record.ended, self.recorder.record.words = name, words
            # Show it in the notebook, and finish every cell that the kernel had.
            outside, error, cells = self._outside, kernel_words.error(name, words), self._requests.cells()
            first = cells[0].header if cells else {}
            if end := outside.closing():
                outside.publish("stream", first, {"name": "stderr", "text": end})
            outside.publish("error", first, error)
            for cell in cells:
                outside.send("shell", cell.routing, "execute_reply", cell.header, {"status": "error", **error})
                outside.publish("status", cell.header, {"execution_state": "idle"})
