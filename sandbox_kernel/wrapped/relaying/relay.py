"""Carries messages between front ends and a kernel in a jail: verifies and signs them, cleans what comes out.

From outside: a message whose signature is wrong is dropped; a good one is signed with the inside key and sent on. From
inside: every message is decoded, cleaned, encoded anew and signed with the outside key. What is malformed is dropped
and counted. One thread, one loop; it never blocks on the kernel.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import zmq

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.core.json_parts import has_too_many_parts
from sandbox_kernel.wrapped import kernel_words
from sandbox_kernel.wrapped.cleaning import clean_parts
from sandbox_kernel.wrapped.cleaning.clean_outputs import OutputCleaner
from sandbox_kernel.wrapped.cleaning.clean_parts import MalformedMessage, Table
from sandbox_kernel.wrapped.cleaning.clean_replies import clean_reply
from sandbox_kernel.wrapped.inner_kernel import InnerKernel
from sandbox_kernel.wrapped.record import KernelRecorder
from sandbox_kernel.wrapped.relaying.cell_clock import CellClock, SentCell
from sandbox_kernel.wrapped.relaying.inner_connection import InnerConnection
from sandbox_kernel.wrapped.relaying.outside import OutsideSockets
from sandbox_kernel.wrapped.relaying.own_messages import MAX_PRINTED, OwnMessages
from sandbox_kernel.wrapped.relaying.remembered import Remembered
from sandbox_kernel.wrapped.relaying.wire import Packet, Signer, from_json, joined, split, to_json
from sandbox_kernel.wrapped.relaying.zmtp import ZmtpError
from sandbox_kernel.wrapped.way_out import WayOut

#: The longest heartbeat, in bytes, with its routing prefix.
_MAX_BEAT = 4096
#: The longest wait between two checks that the front end still lives, in seconds.
_CHECK_S = 1.0


class Relay:
    """The relay of one kernel. ``run`` returns when the kernel has ended."""

    def __init__(self, outside: OutsideSockets, kernel: InnerKernel, way_out: WayOut) -> None:
        self._outside = outside.by_channel
        self._ports = outside.address.ports
        self._theirs = outside.address.signer
        self._ours = Signer(kernel.key.encode())
        self._kernel = kernel
        self._way_out = way_out
        self._inner: dict[str, InnerConnection] = {}
        self._poller = zmq.Poller()
        self._outputs = OutputCleaner()
        self._clock = CellClock(kernel.options.timeout_s)
        self._remembered = Remembered()
        self._own = OwnMessages(outside)
        self._shutting_down = False
        self._timed_out = False
        self.recorder = KernelRecorder()
        #: Why the kernel ended, if no front end had asked for it.
        self.why_ended = ""
        #: Dropped messages of the kernel by reason.
        self.dropped: Counter[str] = Counter()

    def run(self, still_wanted: Callable[[], bool]) -> None:
        """Carry messages until the kernel has ended; end it when ``still_wanted`` returns False."""
        poller = self._poller
        poller.register(self._kernel.done, zmq.POLLIN)
        poller.register(self._way_out, zmq.POLLIN)
        poller.register(self._outside["iopub"], zmq.POLLIN)
        while True:
            ready = dict(poller.poll(int(1000 * self._wait_s()) + 1))
            if self._kernel.done in ready:
                self._take_last()
                return
            if not still_wanted():
                self._shutting_down = True
                self._kernel.stop()
            if self._way_out.fileno() in ready:
                self._connect()
            self._look_at_clock()
            if self._outside["iopub"] in ready:
                self._own.welcome(self._outside["iopub"].recv())
            for channel, inner in tuple(self._inner.items()):
                events = ready.get(inner.fileno(), 0)
                if events & zmq.POLLOUT:
                    inner.flush()
                if events & ~zmq.POLLOUT:
                    self._from_inside(inner)
                if channel != "iopub" and self._outside[channel] in ready and not inner.is_full:
                    self._from_outside(channel, inner)
                self._watch(inner)

    @property
    def came_up(self) -> bool:
        """Whether the kernel could be reached once, or a front end wanted it to end before that."""
        return bool(self._inner) or self._shutting_down

    def _wait_s(self) -> float:
        left = self._clock.left_s()
        return _CHECK_S if left is None else min(_CHECK_S, max(0.0, left))

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
        self._poller.register(inner.fileno(), zmq.POLLIN)
        self._watch(inner)

    def _watch(self, inner: InnerConnection) -> None:
        """Wait for what can happen next on a channel."""
        outside = self._outside[inner.channel]
        if inner.closed:
            if inner.fileno() >= 0:
                self._poller.unregister(inner.fileno())
                inner.close()
            return
        self._poller.modify(inner.fileno(), zmq.POLLIN | (zmq.POLLOUT if inner.wants_to_write else 0))
        if inner.channel == "iopub" or self._shut("iopub"):
            return
        if inner.is_full:
            if outside in self._poller:
                self._poller.unregister(outside)
        elif outside not in self._poller:
            self._poller.register(outside, zmq.POLLIN)

    def _shut(self, channel: str) -> bool:
        """Whether a channel is not connected: without iopub, the outputs of a first cell would be lost."""
        return channel not in self._inner

    # From outside

    def _from_outside(self, channel: str, inner: InnerConnection) -> None:
        frames = self._outside[channel].recv_multipart()
        if channel == "hb":
            if sum(map(len, frames)) <= _MAX_BEAT:
                inner.send(frames)
            return
        packet = split(frames)
        if packet is None or not self._is_genuine(packet):
            return
        header = from_json(packet.parts[0]) or {}
        kind = header.get("msg_type")
        self._remembered.note_route(str(header.get("msg_id")), packet.routing)
        if kind == "execute_request":
            self._clock.sent(str(header.get("msg_id")), SentCell(header, tuple(packet.routing)))
            self.recorder.sent(str(header.get("msg_id")))
            self._outputs.begin()
            self._bring_files(header)
        elif kind == "complete_request":
            self._remembered.note_completion(str(header.get("msg_id")), packet)
        elif kind == "input_reply":
            self._clock.answered()
        elif kind == "shutdown_request":
            self._shutting_down = True
        elif kind == "interrupt_request" and self._kernel.options.interrupt == "signal":
            self._kernel.interrupt()
            self._own.send(channel, packet.routing, "interrupt_reply", header, {"status": "ok"})
            return
        elif kind == "connect_request":
            ports = {f"{name}_port": port for name, port in self._ports.items()}
            self._own.send(channel, packet.routing, "connect_reply", header, {"status": "ok", **ports})
            return
        inner.send(joined(self._ours, (), packet.parts, packet.buffers))

    def _is_genuine(self, packet: Packet) -> bool:
        """Whether a message is signed with the outside key and was not seen before."""
        if not self._theirs.key:
            return True
        return self._theirs.verifies(packet.signature, packet.parts) and self._remembered.is_new(packet.signature)

    # From inside

    def _from_inside(self, inner: InnerConnection) -> None:
        before = inner.dropped
        try:
            messages = inner.receive()
        except ZmtpError:
            self.dropped["protocol"] += 1
            inner.closed = True
            return
        self.dropped["too large"] += inner.dropped - before
        for frames in messages:
            if inner.channel == "hb":
                if len(frames) <= 3 and sum(map(len, frames)) <= _MAX_BEAT:
                    self._outside["hb"].send_multipart(frames)
                continue
            try:
                self._carry_out(inner.channel, frames)
            except (MalformedMessage, ValueError, RecursionError):
                self.dropped["malformed"] += 1

    def _carry_out(self, channel: str, frames: Sequence[bytes]) -> None:
        """Clean one message of the kernel and send it. Raises ``MalformedMessage``."""
        packet = split(frames)
        if packet is None or any(map(has_too_many_parts, packet.parts)):
            raise MalformedMessage
        decoded = [from_json(part) for part in packet.parts]
        raw_header, raw_parent, raw_metadata, content = (clean_parts.table(part) for part in decoded)
        header, parent = clean_parts.header(raw_header), clean_parts.header(raw_parent)
        kind, parent_id = header.get("msg_type"), str(parent.get("msg_id"))
        if not isinstance(kind, str) or not isinstance(header.get("msg_id"), str):
            raise MalformedMessage
        if channel == "iopub":
            clean = self._outputs.clean(kind, content)
            if kind == "status" and content.get("execution_state") == "idle":
                self._finish(parent_id, parent)
            elif kind == "error" and clean is not None:
                self.recorder.failed(parent_id, clean)
            routing: Sequence[bytes] = [kind.encode()]
        else:
            clean = clean_reply(kind, content, self._remembered.take_completion(parent_id))
            if kind == "input_request":
                self._clock.asked()
            known = self._remembered.route(parent_id)
            if known is None:
                raise MalformedMessage
            routing = known
        if kind == "stream" and clean is not None and len(str(clean["text"])) > MAX_PRINTED:
            self._own.print_in_pieces(parent, clean)
        elif clean is not None:
            parts = [to_json(header), to_json(parent), to_json(clean_parts.metadata(raw_metadata)), to_json(clean)]
            self._outside[channel].send_multipart(joined(self._theirs, routing, parts))
        if channel == "iopub":
            for words in self._outputs.take_removed():
                self.recorder.removed += 1
                self._own.print_words(parent, kernel_words.remark(words))

    def _finish(self, message_id: str, parent: Table) -> None:
        """A cell is over: send the text that was held back."""
        for content in self._outputs.take_rest():
            self._own.publish("stream", parent, content)
        if message_id in self._clock:
            self._tell_changes(parent)
        self._clock.finished(message_id)

    # Our own messages

    def _look_at_clock(self) -> None:
        left, limit = self._clock.left_s(), self._kernel.options.timeout_s
        running = self._clock.running()
        if left is None or left > 0 or limit is None or running is None:
            return
        if self._clock.interrupted:
            self._timed_out = True
            self._kernel.stop(at_limit=True)
            return
        self._clock.interrupted = True
        self.recorder.interrupted(str(running.header.get("msg_id")))
        self._own.print_words(running.header, kernel_words.interrupted(limit))
        if self._kernel.options.interrupt == "signal":
            self._kernel.interrupt()
        elif "control" in self._inner:
            parts = [to_json(part) for part in (self._own.header("interrupt_request"), {}, {}, {})]
            self._inner["control"].send(joined(self._ours, (), parts))

    def _take_last(self) -> None:
        """The kernel has ended: send what it sent last, then say how it ended unless a front end asked for it."""
        for inner in self._inner.values():
            while not inner.closed:
                self._from_inside(inner)
                if not _is_readable(inner):
                    break
        os.eventfd_read(self._kernel.done)
        if not self._shutting_down:
            name, words = kernel_words.ending(self._kernel.end, self._kernel.options, timed_out=self._timed_out)
            self.why_ended = words
            self.recorder.ended(name, words)
            self._own.say_end(kernel_words.error(name, words), self._clock.all())

    def _bring_files(self, parent: Mapping[str, object]) -> None:
        """Show the kernel the user's folder as it is now, where changes were applied or dropped."""
        if self._kernel.folder is not None:
            try:
                for note in self._kernel.folder.before_cell():
                    self._own.print_words(parent, kernel_words.remark(note))
            except (SandboxError, OSError) as error:
                self._own.print_words(parent, kernel_words.not_brought_in(error))

    def _tell_changes(self, parent: Table) -> None:
        """Keep what a cell changed in the user's folder, and say so in the cell."""
        folder = self._kernel.folder
        if folder is None:
            return
        try:
            done = folder.after_cell()
        except (SandboxError, OSError) as error:
            self._own.print_words(parent, kernel_words.not_kept(error))
            return
        for words in kernel_words.changed(done.changes, done.missing):
            self._own.print_words(parent, words)


def _is_readable(inner: InnerConnection) -> bool:
    return bool(zmq.select([inner.fileno()], [], [], 0)[0]) if not inner.closed else False
