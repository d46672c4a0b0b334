"""The messages between a session and its worker inside the jail: both directions, in one file.

A frame is four bytes of length and a JSON object. Messages of the worker are checked by ``message_reader.py``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, NotRequired, TypedDict

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.model import CellError

HEADER = struct.Struct(">I")

#: The kinds of questions. ``image`` writes the state to a file and ``load`` reads it; ``code`` is the file's name then.
#: ``looks`` makes the worker send what checkpoints saw of their variables; ``code`` has the numbers of the cells.
#: ``source`` is ``inspect`` with the source code.
#: ``debug`` comes with a socket, on which the worker serves a debugger from then on.
What = Literal["complete", "inspect", "source", "is_complete", "image", "changes", "load", "looks", "debug"]


class Run(TypedDict):
    """Host to worker: run a cell. ``number`` is the notebook's execution count, for tracebacks and ``Out``.

    With ``comm``, a message of the page to a widget is handled in place of the code.
    ``expressions``: a front end runs the cell and wants these evaluated after it.
    """

    op: Literal["run"]
    id: int
    code: str
    number: NotRequired[int]
    comm: NotRequired[Mapping[str, object]]
    expressions: NotRequired[dict[str, str]]


class Freeze(TypedDict):
    """Host to worker: fork a checkpoint. ``cell`` is the number of cells in the state.

    ``sealed``: protect it from being read or changed by other processes of the session.
    """

    op: Literal["freeze"]
    cell: int
    sealed: bool


class Ask(TypedDict):
    """Host to worker: a question about code."""

    op: Literal["ask"]
    id: int
    what: What
    code: str
    pos: int


class InputAnswer(TypedDict):
    """Host to worker: what the user typed; None when there is no user to ask."""

    op: Literal["input"]
    question: int
    value: str | None


class MessageRead(TypedDict):
    """Host to worker: the display has been read, in order with the printed output."""

    op: Literal["seen"]
    question: int


ToWorker = Run | Freeze | Ask | InputAnswer | MessageRead


@dataclass(frozen=True)
class Ready:
    """The worker is ready for its first cell. ``names`` counts the user's variables."""

    pid: int
    names: int


@dataclass(frozen=True)
class Began:
    """The cell has begun and can be interrupted from now on."""

    id: int


@dataclass(frozen=True)
class DisplayShown:
    """A display; ``kind`` is display, result or update. If ``question`` is not 0, the worker waits for its answer."""

    id: int
    question: int
    kind: str
    data: Mapping[str, object]
    metadata: Mapping[str, object]
    display_id: str | None
    size: int


@dataclass(frozen=True)
class OutputCleared:
    """The cell's output so far is to be cleared."""

    id: int
    question: int
    wait: bool


@dataclass(frozen=True)
class LateText:
    """Text of a cell that has ended, written by a thread or task that it started; ``name`` is stdout or stderr."""

    id: int
    name: str
    text: str


@dataclass(frozen=True)
class Question:
    """The cell asks the user for a line of input."""

    id: int
    question: int
    prompt: str
    password: bool


@dataclass(frozen=True)
class CellDone:
    """The cell has ended by itself; ``status`` is ok, error or interrupted.

    ``unsaved``: a shell ended without saving its variables. ``reply``: for the front end, checked by ``front_end.py``.
    ``accelerator``: the worker has a context on a GPU, so it makes no checkpoints any more. ``on_card``: names of
    variables that are there. ``tried``: host names that the cell looked up in vain, with an unusual port; a hint,
    because a program may send what it likes.
    """

    id: int
    status: str
    exit_code: int | None = None
    error: CellError | None = None
    limit: str | None = None
    unsaved: bool = False
    accelerator: bool = False
    tried: tuple[str, ...] = ()
    on_card: tuple[str, ...] = ()
    reply: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """What a checkpoint cannot hold, counted when it was made: the same in every state, or going on by itself."""

    sockets: int = 0
    databases: int = 0
    children: int = 0


@dataclass(frozen=True)
class Frozen:
    """A checkpoint was made (``pid`` inside the jail), or could not be made (``pid`` 0, with the reason)."""

    cell: int
    pid: int
    threads: int
    reason: str
    #: What else the state shares with all others, counted.
    beside: Beside = field(default_factory=lambda: Beside())


@dataclass(frozen=True)
class Restored:
    """A checkpoint has become the worker. ``threads`` counts the user's threads that a fork does not copy."""

    cell: int
    names: int
    threads: int


@dataclass(frozen=True)
class Answer:
    """The answer to a question about code."""

    id: int
    answer: Mapping[str, object]


@dataclass(frozen=True)
class Looked:
    """What the variables were after a cell: by name their type, a mark that changes with the value, and a few words."""

    cell: int
    found: Mapping[str, tuple[str, str, str]]


FromWorker = (
    Looked | Ready | Began | DisplayShown | LateText | OutputCleared | Question | CellDone | Frozen | Restored | Answer
)


def encode(message: ToWorker) -> bytes:
    """Return a message as a frame for the worker."""
    data = json.dumps(message, ensure_ascii=False).encode()
    return HEADER.pack(len(data)) + data
