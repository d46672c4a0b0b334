"""Cleans the messages of a kernel in a jail, one by one, and sends them to front ends: the hostile half of a relay.

Every message is decoded, cleaned, encoded anew and signed with the outside key; others are dropped and counted. A cell
is over when the kernel has sent both its reply and its idle status: one of them alone, which any code can send, stops
no clock. An idle status waits for the reply, or for the next request.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import msgspec

from sandbox_kernel.errors import PolicyViolation, SandboxError
from sandbox_kernel.limits import GRACE_S
from sandbox_kernel.notebook.render import ShowOutput
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.json_value import check_json, size_of
from sandbox_kernel.util.wire import BadMessage
from sandbox_kernel.wrapped import kernel_words
from sandbox_kernel.wrapped.lacks import Lacks
from sandbox_kernel.wrapped.record import KernelRecorder
from sandbox_kernel.wrapped.relaying import cleaning
from sandbox_kernel.wrapped.relaying.inside import MAX_MESSAGE
from sandbox_kernel.wrapped.relaying.kernel_widgets import KernelWidgets
from sandbox_kernel.wrapped.relaying.outside import Outside, Paced
from sandbox_kernel.wrapped.relaying.wire import Packet, from_json, split, to_json

if TYPE_CHECKING:
    from sandbox_kernel.wrapped.folder_changes import KernelFolder

#: The most cells that are remembered; a front end that queues more gets them run all the same.
_MOST = 10_000
#: How many signatures and routes, and how many completion requests, are remembered.
_MOST_ROUTES, _MOST_COMPLETIONS = 65_536, 100
#: How many questions of a cell a front end is asked while it answers none: it shows a field for each.
MOST_QUESTIONS = 100
#: How often front ends are heard while the host works, in seconds.
_HEARD_S = 0.05


@dataclass(frozen=True)
class SentCell:
    """A cell: the header of its request, where its reply goes, its name in the notebook, and whether it may ask."""

    header: Mapping[str, object]
    routing: Sequence[bytes]
    name: str = ""
    may_ask: bool = True


_K = TypeVar("_K")
_V = TypeVar("_V")


class _Newest(OrderedDict[_K, _V]):
    """The newest entries, at most so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)


class Requests:
    """What front ends asked for. Measures the time of cells: a kernel runs them in order, so the first one's counts."""

    def __init__(self, timeout_s: float | None) -> None:
        #: Good signatures that were seen: no message is taken twice.
        self.seen: _Newest[bytes, None] = _Newest(_MOST_ROUTES)
        #: Where replies go, by the id of the request. Kernels need not return a routing prefix of several parts.
        self.routes: _Newest[str, Sequence[bytes]] = _Newest(_MOST_ROUTES)
        #: What front ends want to be completed, by the id of the request.
        self.completions: _Newest[str, cleaning.CompletionRequest] = _Newest(_MOST_COMPLETIONS)
        self._timeout_s = timeout_s
        self._cells: OrderedDict[str, SentCell] = OrderedDict()
        #: Which of the two messages that end a cell came first.
        self.ending: dict[str, str] = {}
        self._since = 0.0
        #: Since when a prompt is open; the time until its answer does not count.
        self._asked_at: float | None = None
        self._questions = 0
        #: Whether the first cell was interrupted for its time.
        self.interrupted = False

    def sent(self, message_id: str, cell: SentCell) -> None:
        """Note a cell that a front end has sent."""
        if not self._cells:
            self._begin()
        if len(self._cells) < _MOST:
            self._cells[message_id] = cell

    def get(self, message_id: str) -> SentCell | None:
        """Return a cell that was sent and is not finished."""
        return self._cells.get(message_id)

    def may_end(self, message_id: str, kind: str) -> bool:
        """Whether a cell has not ended, and this is the first of its reply and its idle status, or the other one."""
        return message_id in self._cells and self.ending.get(message_id) != kind

    def ends(self, message_id: str, kind: str) -> bool:
        """Return whether a cell is over: the kernel has sent its reply and an idle status, of which this is one."""
        return self.may_end(message_id, kind) and self.ending.setdefault(message_id, kind) != kind

    def finished(self, message_id: str) -> None:
        """Forget a cell that is over."""
        first = next(iter(self._cells), None)
        self._cells.pop(message_id, None)
        self.ending.pop(message_id, None)
        if first == message_id:
            self._begin()

    def asked(self, message_id: str) -> bool:
        """A cell asks for input: the clock stands until the answer. False when it may not ask."""
        cell = self._cells.get(message_id)
        self._questions += 1
        if cell is None or not cell.may_ask or self._questions > MOST_QUESTIONS:
            return False
        if next(iter(self._cells)) == message_id:
            self._asked_at = self._asked_at or time.monotonic()
        return True

    def answered(self) -> None:
        """Let the clock go on: the front end has answered."""
        self._questions = 0
        if self._asked_at is not None:
            self._since += time.monotonic() - self._asked_at
            self._asked_at = None

    def left_s(self) -> float | None:
        """Return how long the first cell may still run, with its grace once it was interrupted; None: no limit."""
        if self._timeout_s is None or not self._cells or self._asked_at is not None:
            return None
        limit = self._timeout_s + (GRACE_S["wrapped"] if self.interrupted else 0.0)
        return self._since + limit - time.monotonic()

    def cells(self) -> list[SentCell]:
        """Return every cell that is not finished, the first one first: that one runs."""
        return list(self._cells.values())

    def _begin(self) -> None:
        self._since, self._questions = time.monotonic(), 0
        self.interrupted = False
        self._asked_at = None


#: Messages whose check can take long: outputs, and replies, of which only the status is sent when it took too long.
_CHECKED = frozenset((*cleaning.DISPLAYS, *cleaning.COMMS, "stream", "error", "execute_input"))
_CHECKED_REPLIES = frozenset(("execute_reply", "complete_reply", "inspect_reply", "history_reply"))
#: Messages that draw little by themselves: texts are bounded as text, and of the others the newest counts.
_PACED = frozenset(("stream", "clear_output", "update_display_data", "status", "execute_input"))
#: Bytes of usual output that are checked in a second, and the CPU seconds that the outputs of a cell may take besides.
USUAL_PACE = 4 << 20
MAX_SLOW_S = 5.0
_TOO_SLOW = f"more outputs of this cell are not shown: checking them took more than {MAX_SLOW_S:g} s"
#: What each message may take besides.
_FREE_S = 0.002
#: Printed text is cleaned in pieces of so many characters: front ends are heard in between.
_PIECE = 1 << 20

#: The largest message but for printed text, in bytes without its buffers: to decode it takes a fraction of a second.
MAX_JSON = 32 << 20
_TOO_LARGE = (
    f"a part of the output is not shown: what a kernel sends at once may have {MAX_JSON >> 20} MB, "
    f"printed text {MAX_MESSAGE >> 20} MB"
)


class TooLarge(BadMessage):
    """A message that is well formed, as far as anybody looked, and longer than ``MAX_JSON``."""


@dataclass(frozen=True)
class KernelMessage:
    """A message of the kernel: its headers are clean, its metadata and content are not."""

    channel: str
    kind: str
    header: cleaning.Table
    parent: cleaning.Table
    metadata: cleaning.Table
    content: cleaning.Table
    buffers: Sequence[bytes]

    @property
    def parent_id(self) -> str:
        """The id of the request that it belongs to."""
        return str(self.parent.get("msg_id"))

    @property
    def is_idle(self) -> bool:
        """Whether it says that the kernel has finished a request."""
        return self.kind == "status" and self.content.get("execution_state") == "idle"


def read_message(channel: str, packet: Packet | None) -> KernelMessage:
    """Return a message with clean headers. Raises ``BadMessage``, of which ``TooLarge`` is one."""
    header = from_json(packet.parts[0]) if packet is not None else None
    if packet is None or header is None or not isinstance(header.get("msg_id"), str):
        raise BadMessage
    kind = header.get("msg_type")
    if kind != "stream" and sum(map(len, packet.parts)) > MAX_JSON:
        raise TooLarge
    parent, metadata = map(from_json, packet.parts[1:3])
    content = (cleaning.printed if kind == "stream" else from_json)(packet.parts[3])
    if parent is None or metadata is None or content is None or not isinstance(kind, str):
        raise BadMessage
    own, of = cleaning.header(header), cleaning.header(parent)
    return KernelMessage(channel, kind, own, of, metadata, content, packet.buffers)


@dataclass
class FromKernel:
    """Carries messages out. ``between`` is called between long pieces of work: it hears what front ends have sent."""

    outside: Outside
    widgets: KernelWidgets
    requests: Requests
    folder: KernelFolder | None
    between: Callable[[], None] = lambda: None
    lacks: Lacks = field(default_factory=lambda: Lacks(None, ""))

    def __post_init__(self) -> None:
        self.outputs = cleaning.OutputCleaner(self.widgets.gate)
        self.outside.closing = self._closing
        self.paced, self._numbers = Paced(), count()
        self.recorder = KernelRecorder()
        #: Dropped messages of the kernel by reason.
        self.dropped: Counter[str] = Counter()
        #: For how long outputs of this cell were checked, beyond what outputs of their size usually take.
        self._slow_s = 0.0
        self._told_too_large = False
        #: The idle status of cells whose reply has not come.
        self._held: dict[str, KernelMessage] = {}

    def carry(self, channel: str, frames: Sequence[bytes]) -> None:
        """Clean one message and send it; drop it when that is not possible."""
        try:
            message = read_message(channel, split(frames))
            if channel == "iopub":
                self._let_go(unless=message.parent_id)
                waits = self.requests.get(message.parent_id) and message.parent_id not in self.requests.ending
                if message.is_idle and waits:
                    self._held[message.parent_id] = message
                    return
            self._carry(message)
        except TooLarge:
            self.too_large(1)
        except Exception:  # code that reads hostile values is never without faults, and one message is no loss
            self.dropped["malformed"] += 1

    def too_large(self, count: int) -> None:
        """Count messages that were left out for their size; the cell that runs says so, once."""
        cells = self.requests.cells()
        if count and cells and not self._told_too_large:
            self._told_too_large = True
            self.outside.print_words(cells[0].header, _TOO_LARGE)
        self.dropped["too large"] += count

    def _let_go(self, unless: str) -> None:
        """Send each idle status that waits, but that of this request: the order of outputs stays as it is."""
        for message_id in [message_id for message_id in self._held if message_id != unless]:
            self._output(self._held.pop(message_id))

    def _carry(self, message: KernelMessage) -> None:
        if message.channel != "iopub":
            self._reply(message)
            return
        for piece in _pieces(message):
            if piece.kind in _CHECKED and self._slow_s > MAX_SLOW_S:
                self.dropped["too slow to check"] += 1
                return
            begin = time.thread_time()
            try:
                if piece.kind in cleaning.COMMS:
                    taken = self.widgets.from_kernel(
                        piece.kind, piece.parent_id, piece.content, piece.metadata, piece.buffers
                    )
                    self.dropped["comm messages"] += not taken
                else:
                    self._output(piece)
            finally:
                if piece.kind in _CHECKED:
                    self._count(piece, time.thread_time() - begin)
            self.between()

    def _count(self, message: KernelMessage, took_s: float) -> None:
        """Count what the host has worked on a message, beyond what messages of its size usually take."""
        if took_s > _FREE_S:
            size = size_of(message.content) + sum(map(len, message.buffers))
            self._slow_s += max(0.0, took_s - _FREE_S - size / USUAL_PACE)
            if self._slow_s > MAX_SLOW_S:
                self.outside.print_words(message.parent, _TOO_SLOW)

    def _reply(self, message: KernelMessage) -> None:
        known = self.requests.routes.get(message.parent_id)
        if known is None or (message.kind == "input_request") != (message.channel == "stdin"):
            raise BadMessage
        content, begin = message.content, time.thread_time()

        def more() -> bool:
            self.between()
            return self._slow_s + time.thread_time() - begin <= MAX_SLOW_S

        if message.kind in _CHECKED_REPLIES and self._slow_s > MAX_SLOW_S:
            content = {name: content[name] for name in ("status", "execution_count") if name in content}
        try:
            asked = self.requests.completions.pop(message.parent_id, None)
            clean = cleaning.clean_reply(message.kind, content, asked, more)
        finally:
            self._count(message, time.thread_time() - begin)
        if message.kind != "input_request":
            self.requests.routes.pop(message.parent_id, None)  # a request has one reply
        elif not self.requests.asked(message.parent_id):
            raise BadMessage
        if message.kind == "execute_reply" and message.channel == "shell":
            self.lacks.hear(message.kind, clean)
            self._end_of_cell(message)
            if message.parent_id in self._held:
                self._output(self._held.pop(message.parent_id))
        self._send(message, known, clean)

    def _closing(self) -> str:
        self.paced.let_go()
        return self.outputs.closing()

    def _output(self, message: KernelMessage) -> None:
        kind, parent = message.kind, message.parent
        paced = kind in _PACED and not (message.is_idle and self.requests.may_end(message.parent_id, kind))
        if not paced:
            self.paced.let_go()
        clean = self.outputs.clean(kind, message.content)
        if clean is not None and not self._is_shown(message, clean):
            return
        if message.is_idle:
            for content in self.outputs.take_rest():
                self.outside.publish("stream", parent, content)
            self._show_libraries(message, self.widgets.libraries.after(self._cell_of(message)))
            self._tell_lacks(message, is_over=True)
            self._end_of_cell(message)
        if clean is not None:
            self.lacks.hear(kind, clean)
            if kind == "error":  # the words stand above a traceback, which may be long
                self.recorder.failed(message.parent_id, clean)
                self._tell_lacks(message, is_over=False)
            send = partial(self._send, message, [kind.encode()])
            self.paced.add(kind, message.parent_id, clean, send) if paced else send(clean)
        for words in self.outputs.take_removed():
            self.recorder.record.removed += 1
            self.outside.print_words(parent, words)

    def _tell_lacks(self, message: KernelMessage, *, is_over: bool) -> None:
        if self.requests.get(message.parent_id) is not None:
            for words in self.lacks.take(is_over=is_over):
                self.outside.print_words(message.parent, words)

    def begin(self, header: cleaning.Table) -> bool:
        """A front end sent a cell: what one cell may do counts from here. Returns whether the kernel may run it."""
        self.recorder.sent(str(header.get("msg_id")))
        self.outputs.begin()
        self.widgets.begin()
        self._slow_s, self._told_too_large = 0.0, False
        # The kernel is shown the user's folder as it is now, where changes were applied or dropped.
        try:
            for note in self._meanwhile(self.folder.before_cell) if self.folder is not None else ():
                self.outside.print_words(header, note)
        except (SandboxError, OSError) as error:
            self.outside.print_words(header, f"the kernel could not be shown what changed in the folder: {error}")
            return not isinstance(error, PolicyViolation)
        return True

    def _meanwhile(self, work: Callable[[], _V]) -> _V:
        """Do work with the folder, which may have many files, in a thread; front ends are heard until it is done."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(work)
            while not wait([done], _HEARD_S).done:
                self.between()
            return done.result()

    def _send(self, message: KernelMessage, routing: Sequence[bytes], clean: cleaning.Table) -> None:
        metadata: object = {}
        if message.metadata:
            with contextlib.suppress(ContentRefused):
                metadata = check_json(message.metadata)
        # Printed text is long, and has texts alone: no number of another form. msgspec takes a tenth of the time.
        content = msgspec.json.encode(clean) if message.kind == "stream" else to_json(clean)
        # Each with an id of its own, also what a kernel sends twice: front ends refuse a signature that they have seen.
        header = {**message.header, "msg_id": f"{str(message.header['msg_id'])[:180]}-{next(self._numbers)}"}
        parts = [*map(to_json, (header, message.parent, metadata)), content]
        self.outside.send_parts(message.channel, routing, parts)

    def _is_shown(self, message: KernelMessage, clean: cleaning.Table) -> bool:
        """Whether an output is for a cell. Libraries and what widgets print go elsewhere; frames get what they need."""
        libraries, cell, data = self.widgets.libraries, self._cell_of(message), clean.get("data")
        if message.kind in cleaning.DISPLAYS and isinstance(data, dict):
            if libraries.take(data):
                return False
            self._show_libraries(message, libraries.before(data, cell))
            if self.requests.get(message.parent_id) is None:  # no end to come, at which a cell shows these
                self._show_libraries(message, libraries.after(cell))
            clean["data"], apart = self.widgets.with_state(data)
            known = clean.get("metadata")
            clean["metadata"] = {**(known if isinstance(known, dict) else {}), **apart}
        elif message.kind == "clear_output":
            libraries.cleared(cell)
        return not self.widgets.takes(message.kind, message.parent_id, clean)

    def _cell_of(self, message: KernelMessage) -> str:
        """Return what tells this run of a cell from others."""
        cell = self.requests.get(message.parent_id)
        return f"{cell.name if cell is not None else ''} {message.parent_id}"

    def _show_libraries(self, message: KernelMessage, libraries: Iterable[ShowOutput]) -> None:
        for library in libraries:
            content = {"data": library.data, "metadata": {}, "transient": {}}
            self.outside.publish("display_data", message.parent, content)

    def _end_of_cell(self, message: KernelMessage) -> None:
        """One of the two messages that end a cell came: with the second one it is over."""
        if self.requests.ends(message.parent_id, message.kind):
            try:
                kept = self._meanwhile(self.folder.after_cell) if self.folder is not None else ((), [])
                told = list(kernel_words.changed(*kept))
            except (SandboxError, OSError) as error:
                told = [f"what this cell changed in the folder could not be kept: {error}"]
            for words in told:
                self.outside.print_words(message.parent, words)
            self.outputs.end()
            self.requests.finished(message.parent_id)


def _pieces(message: KernelMessage) -> Iterable[KernelMessage]:
    """Return a message, much printed text as several."""
    text = message.content.get("text")
    if message.kind != "stream" or not isinstance(text, str) or len(text) <= _PIECE:
        return (message,)
    return (
        replace(message, content={**message.content, "text": text[begin : begin + _PIECE]})
        for begin in range(0, len(text), _PIECE)
    )
