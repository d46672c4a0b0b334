"""The messages between a session and its worker inside the jail: both directions, in one file.

A frame is four bytes of length and a JSON object. What comes from the worker has passed ``message_reader.py``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from sandbox_kernel.model import CellError

HEADER = struct.Struct(">I")

#: ``image`` is for guests whose state can be written to a file; the code is the file's name then.
What = Literal["complete", "inspect", "is_complete", "image"]


class Run(TypedDict):
    """Host to worker: run a cell. ``number`` is the notebook's, for tracebacks and ``Out``."""

    op: Literal["run"]
    id: int
    code: str
    number: NotRequired[int]


class Freeze(TypedDict):
    """Host to worker: make a checkpoint of yourself; it belongs to the state after this many cells.

    ``sealed``: no other process of the session shall be able to look into it.
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
    """Host to worker: what the user typed; None means that there is nobody to ask."""

    op: Literal["input"]
    question: int
    value: str | None


class MessageRead(TypedDict):
    """Host to worker: what was shown has been taken, in its place among what was printed."""

    op: Literal["seen"]
    question: int


ToWorker = Run | Freeze | Ask | InputAnswer | MessageRead


@dataclass(frozen=True)
class Ready:
    """The worker waits for its first cell."""

    pid: int
    names: int


@dataclass(frozen=True)
class Began:
    """The cell runs, and may be interrupted from now on."""

    id: int


@dataclass(frozen=True)
class DisplayShown:
    """Something to display; ``kind`` is display, result or update. The worker waits if ``question`` is not 0."""

    id: int
    question: int
    kind: str
    data: Mapping[str, object]
    metadata: Mapping[str, object]
    display_id: str | None
    size: int


@dataclass(frozen=True)
class OutputCleared:
    """What the cell has shown so far is to go."""

    id: int
    question: int
    wait: bool


@dataclass(frozen=True)
class Question:
    """The cell asks the user for a line."""

    id: int
    question: int
    prompt: str
    password: bool


@dataclass(frozen=True)
class CellDone:
    """The cell has ended by itself; ``status`` is ok, error or interrupted.

    ``unsaved`` is a shell that ended without leaving its variables.
    """

    id: int
    status: str
    names: int
    exit_code: int | None = None
    error: CellError | None = None
    limit: str | None = None
    unsaved: bool = False


@dataclass(frozen=True)
class Frozen:
    """A checkpoint was made (``pid``), or could not be (0, with the reason)."""

    cell: int
    pid: int
    threads: int
    reason: str


@dataclass(frozen=True)
class Restored:
    """A checkpoint has taken over; ``threads`` of the user's it could not bring along."""

    cell: int
    pid: int
    names: int
    threads: int


@dataclass(frozen=True)
class Answer:
    """The answer to a question about code."""

    id: int
    answer: Mapping[str, object]


FromWorker = Ready | Began | DisplayShown | OutputCleared | Question | CellDone | Frozen | Restored | Answer


def encode(message: ToWorker) -> bytes:
    """One frame to the worker."""
    data = json.dumps(message, ensure_ascii=False).encode()
    return HEADER.pack(len(data)) + data
