"""The record of wrapped kernels: one JSON line for each kernel that ended, with what failed in it and what stopped it.

Errors are what a program says of itself, cleaned and cut. How a kernel ended and which limit it met is measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.policy.written_folders import open_host_file
from sandbox_kernel.util.wire import BadMessage, decode
from sandbox_kernel.wrapped.relaying.cleaning import line

#: The most failures that are kept of one kernel, and the longest text of one.
MOST_FAILURES = 50
_MOST_WORDS = 300
#: The most cells whose number is remembered.
_MOST_CELLS = 10_000
#: Largest record, so that kernels cannot fill the disk of the host.
MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class CellFailure:
    """A cell, by its number from 1: that it ran out of time, or the error that it sent."""

    cell: int
    name: str = ""
    words: str = ""
    out_of_time: bool = False


@dataclass(kw_only=True)
class KernelRecord:
    """What one wrapped kernel did."""

    #: The folder in which a front end started it: that of its notebook.
    folder: str
    #: How many cells it was sent, and the first ones that failed.
    cells: int
    failures: list[CellFailure] = field(default_factory=list)
    #: Why it ended, as the name of an error and a sentence; empty when a front end asked for it.
    ended: str = ""
    words: str = ""
    #: The limit that it met, whether that ended it or not; empty for none.
    limit: str = ""
    #: How many outputs lost a part that a page must not get, and how many messages the protocol does not allow.
    removed: int = 0
    dropped: int = 0


class KernelRecorder:
    """Fills the record of one kernel while it lives. Its size is bounded."""

    def __init__(self) -> None:
        self.record = KernelRecord(folder="", cells=0)
        self._numbers: dict[str, int] = {}

    def sent(self, message_id: str) -> None:
        """A front end sent a cell."""
        self.record.cells += 1
        if len(self._numbers) < _MOST_CELLS:
            self._numbers[message_id] = self.record.cells

    def interrupted(self, message_id: str) -> None:
        """A cell was interrupted because its time was over; it may catch that, and is listed all the same."""
        self._add(CellFailure(cell=self._numbers.get(message_id, 0), out_of_time=True))

    def failed(self, message_id: str, error: Mapping[str, object]) -> None:
        """A cell failed with an error that was cleaned already."""
        if number := self._numbers.get(message_id):
            name, words = line(error.get("ename")), line(error.get("evalue"), _MOST_WORDS)
            bare = CellFailure(cell=number, out_of_time=True)
            if late := bare in self.record.failures:
                self.record.failures.remove(bare)
            self._add(CellFailure(cell=number, name=name, words=words, out_of_time=late))

    def _add(self, failure: CellFailure) -> None:
        if len(self.record.failures) < MOST_FAILURES:
            self.record.failures.append(failure)


def append(path: str, record: KernelRecord) -> None:
    """Add one line to a record that only its owner can read. Raises ``InvalidRequest`` when that is not possible."""
    data = (json.dumps(asdict(record)) + "\n").encode()
    try:
        with open(open_host_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0) as file:
            if os.fstat(file.fileno()).st_size + len(data) > MAX_FILE_BYTES:
                raise InvalidRequest(f"the record {path!r} is full ({MAX_FILE_BYTES >> 20} MB); move it away")
            file.write(data)
    except OSError as error:
        raise InvalidRequest(f"the record {path!r} cannot be written: {error.strerror}") from None


def check_path(path: str) -> str:
    """Return the absolute path of a record. Raises ``InvalidRequest`` when its folder is not there."""
    whole = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(os.path.dirname(whole)) or os.path.isdir(whole):
        raise InvalidRequest(f"--record {path!r} must be a file in a folder that exists")
    return whole


def read(path: str) -> list[KernelRecord]:
    """Return the records of a file. Raises ``InvalidRequest`` when it is not one."""
    try:
        with open(path, "rb") as file:
            return [decode(text, KernelRecord) for text in file]
    except OSError as error:
        raise InvalidRequest(f"the record {path!r} cannot be read: {error.strerror}") from None
    except BadMessage as error:
        raise InvalidRequest(f"{path!r} is not a record of wrapped kernels: {error}") from None


def describe(record: KernelRecord) -> Iterable[str]:
    """Return what stopped a kernel or its cells, one line each; none when all went well."""
    for failure in record.failures:
        said = f"{failure.name}: {failure.words}" if failure.words else failure.name
        yield f"cell {failure.cell}: {'out of time' if failure.out_of_time else said}"
    if record.ended:
        yield f"ended: {record.ended}: {record.words}"
    if record.limit:
        yield f"met its limit of {record.limit}"
    if record.removed:
        yield f"outputs that lost a part: {record.removed}"
    if record.dropped:
        yield f"messages that the protocol does not allow: {record.dropped}"
