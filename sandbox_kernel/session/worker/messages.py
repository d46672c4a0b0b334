"""The messages between a session and its worker inside the jail: both directions, in one file.

A frame is four bytes of length and a JSON object (``util/wire.py``). The worker shares a process with the user's
code, so its messages may be hostile: size, depth, shape, types, names and numbers are declared here and checked by
``parse``. The first error raises a ``SessionError``, which ends the worker. Nothing in a message is ever executed,
unpickled or used as a path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.gate_messages import host_names
from sandbox_kernel.model import CellError
from sandbox_kernel.receipt import one_line
from sandbox_kernel.session.tree.variables import MOST_SEEN
from sandbox_kernel.util.wire import BadMessage, decode_strict, finite

#: The largest frame of a worker, in bytes.
MAX_FRAME = 16 << 20
#: Bounds within a frame.
MAX_TEXT = 64 << 10
MAX_LINES = 1000
#: The longest entry of a traceback that has many: together they are some megabytes, which are cleaned at once.
MAX_LINE = 8000
MAX_MIMES = 32
MAX_METADATA = 256 << 10
MAX_VARIABLE_TEXT = 100
#: The largest frame whose reply to a front end is read: cleaning it takes time that no limit of the cell counts.
MAX_REPLY = 4 << 20

#: The kinds of questions. ``image`` writes the state and ``load`` reads it. ``looks`` makes the worker send what
#: checkpoints saw of their variables; ``code`` has the numbers of the cells. ``source`` is ``inspect`` with the source
#: code. ``debug`` comes with a socket, on which the worker serves a debugger from then on.
What = Literal["complete", "inspect", "source", "is_complete", "image", "changes", "load", "looks", "debug"]


class CheckpointOrder(TypedDict):
    """A checkpoint to be made, as the node ``cell``. A ``sealed`` one is protected from the session's processes."""

    cell: int
    sealed: bool


class Run(TypedDict):
    """Host to worker: run a cell. ``number`` is the notebook's execution count, for tracebacks and ``Out``.

    With ``checkpoint``, the worker makes one right after the message ``done``, without another order.
    With ``comm``, a message of the page to a widget is handled in place of the code.
    ``expressions``: a front end runs the cell and wants these evaluated after it.
    """

    op: Literal["run"]
    id: int
    code: str
    number: NotRequired[int]
    checkpoint: NotRequired[CheckpointOrder]
    comm: NotRequired[Mapping[str, object]]
    expressions: NotRequired[dict[str, str]]


class Freeze(CheckpointOrder):
    """Host to worker: fork a checkpoint."""

    op: Literal["freeze"]


class Ask(TypedDict):
    """Host to worker: a question about code."""

    op: Literal["ask"]
    id: int
    what: What
    code: str
    pos: int


class Answered(TypedDict):
    """Host to worker: what the user typed, None without a user; or a display was read, in order with the output."""

    op: Literal["input", "seen"]
    question: int
    value: NotRequired[str | None]


ToWorker = Run | Freeze | Ask | Answered


_Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
_Text = Annotated[str, Meta(max_length=MAX_TEXT)]
_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_Mime = Annotated[str, Meta(pattern=rf"\A{_NAME}/{_NAME}\Z")]


class _FromWorker(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    """A message of the worker; other fields than the declared ones are ignored. ``size`` is that of the frame."""

    size: int = 0


class Ready(_FromWorker, frozen=True, tag="ready"):
    """The worker is ready for its first cell. ``names`` counts the user's variables."""

    names: _Count


class Began(_FromWorker, frozen=True, tag="began"):
    """The cell has begun and can be interrupted from now on."""

    id: _Count


class DisplayShown(_FromWorker, frozen=True, tag="display"):
    """A display. If ``question`` is not 0, the worker waits for its answer."""

    id: _Count
    question: _Count
    kind: Literal["display", "result", "update"]
    data: Annotated[dict[_Mime, Any], Meta(max_length=MAX_MIMES)]
    metadata: dict[str, Any]
    display_id: Annotated[str, Meta(pattern=r"\A[^\x00-\x1f]{1,200}\Z")] | None = None


class OutputCleared(_FromWorker, frozen=True, tag="clear"):
    """The cell's output so far is to be cleared."""

    id: _Count
    question: _Count
    wait: bool


class LateText(_FromWorker, frozen=True, tag="late"):
    """Text of a cell that has ended, written by a thread or task that it started."""

    id: _Count
    name: Literal["stdout", "stderr"]
    text: _Text


class Question(_FromWorker, frozen=True, tag="input"):
    """The cell asks the user for a line of input."""

    id: _Count
    question: _Count
    prompt: _Text
    password: bool


class _Error(msgspec.Struct, frozen=True):
    ename: _Text
    evalue: _Text
    traceback: Annotated[tuple[str, ...], Meta(max_length=MAX_LINES)]


class CellDone(_FromWorker, frozen=True, tag="done"):
    """The cell has ended by itself.

    ``unsaved``: a shell ended without saving its variables. ``reply``: for the front end, checked by ``front_end.py``.
    ``accelerator``: the worker has a context on a GPU, so it makes no checkpoints any more. ``tried``: host names that
    the cell looked up in vain, with an unusual port; a hint, because a program may send what it likes.
    """

    id: _Count
    status: Literal["ok", "error", "interrupted"]
    exit_code: Annotated[int, Meta(ge=0, le=255)] | None = None
    raised: _Error | None = msgspec.field(default=None, name="error")
    limit: Literal["memory", "processes", "disk", "open_files"] | None = None
    unsaved: bool = False
    accelerator: bool = False
    tried: Annotated[tuple[Any, ...], Meta(max_length=MAX_LINES)] = ()
    reply: dict[str, Any] = {}

    @property
    def error(self) -> CellError | None:
        """The exception of the user's code."""
        if self.raised is None:
            return None
        lines = self.raised.traceback
        most = MAX_TEXT if len(lines) <= 32 else MAX_LINE
        return CellError(
            ename=self.raised.ename[:200], evalue=self.raised.evalue, traceback=tuple(line[:most] for line in lines)
        )


class Outside(msgspec.Struct, frozen=True):
    """What a checkpoint cannot hold, counted when it was made: the same in every state, or going on by itself."""

    sockets: _Count = 0
    databases: _Count = 0
    children: _Count = 0


class Frozen(_FromWorker, frozen=True, tag="frozen"):
    """A checkpoint was made (``pid`` inside the jail), or could not be made (``pid`` 0, with the reason)."""

    cell: _Count
    pid: _Count
    threads: _Count
    reason: _Text
    outside: Outside = Outside()


class Restored(_FromWorker, frozen=True, tag="restored"):
    """A checkpoint has become the worker. ``threads`` counts the user's threads that a fork does not copy."""

    cell: _Count
    names: _Count
    threads: _Count


class Answer(_FromWorker, frozen=True, tag="answer"):
    """The answer to a question about code."""

    id: _Count
    answer: dict[str, Any]


class Looked(_FromWorker, frozen=True, tag="look"):
    """What the variables were after a cell: by name their type, a mark that changes with the value, and a few words."""

    cell: _Count
    found: Annotated[dict[str, tuple[str, str, str]], Meta(max_length=MOST_SEEN)]


FromWorker = (
    Looked | Ready | Began | DisplayShown | LateText | OutputCleared | Question | CellDone | Frozen | Restored | Answer
)


_DECODER: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker, float_hook=finite)


def parse(raw: bytes) -> FromWorker:
    """Parse and check one message of the worker."""
    try:
        found = decode_strict(raw, _DECODER)
    except BadMessage as error:
        raise SessionError(f"the worker sent a message that cannot be taken: {one_line(str(error), 200)}") from None
    new: dict[str, Any] = {"size": len(raw)}
    match found:
        case DisplayShown() if len(raw) > MAX_METADATA and len(json.dumps(found.metadata)) > MAX_METADATA:
            new["metadata"] = {}
        case CellDone():
            new |= {"tried": host_names(found.tried), "reply": found.reply if len(raw) <= MAX_REPLY else {}}
        case Looked():
            new["found"] = {
                name: tuple("".join(c for c in part[:MAX_VARIABLE_TEXT] if c.isprintable()) for part in parts)
                for name, parts in found.found.items()
                if len(name) <= MAX_VARIABLE_TEXT and name.isidentifier()
            }
    return msgspec.structs.replace(found, **new)
