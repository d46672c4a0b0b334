"""The audit log: one JSON line for everything that was let out, refused, failed or finished.

Lines name method, host, port, address and sizes. They never hold bodies, headers or query strings, which may be
secrets. A log that was asked for and cannot be written stops the request: ``FetchError`` with rule ``audit_failed``.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from sandbox_kernel.errors import FetchError, PolicyViolation

_MAX_TEXT = 500
#: A program that is refused in a loop must not fill the host's disk; a full log stops what it should have recorded.
MAX_FILE_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One event. ``event`` is allowed, refused, failed or finished; ``via`` is fetch or proxy."""

    event: str
    via: str
    method: str
    host: str
    port: int
    path: str = ""
    address: str = ""
    rule: str = ""
    reason: str = ""
    status: int | None = None
    bytes_out: int = 0
    bytes_in: int = 0
    time: float = field(default_factory=time.time)

    def to_json_line(self) -> str:
        """The record as one ASCII line; texts from the guest are cut and escaped, so they cannot forge a line."""
        values = {
            name: value[:_MAX_TEXT] if isinstance(value, str) else value
            for name, value in asdict(self).items()
            if value not in ("", None)
        }
        return json.dumps(values, sort_keys=True) + "\n"


#: Where records go. Called from any thread.
AuditSink = Callable[[AuditRecord], None]


class AuditFile:
    """Appends records to a file that only the owner can read. Closed with the last reference, or by hand."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise PolicyViolation(
                f"audit log {self.path!r} cannot be opened: {error.strerror}; name a file in a folder you can write"
            ) from None
        self._lock = threading.Lock()
        self._fd = fd
        self._room = MAX_FILE_BYTES - os.fstat(fd).st_size
        self._close = weakref.finalize(self, os.close, fd)

    def __call__(self, record: AuditRecord) -> None:
        """Append one line, whole."""
        line = record.to_json_line().encode("ascii")
        with self._lock:
            try:
                if not self._close.alive:
                    raise OSError("it was closed")
                self._room -= len(line)
                if self._room < 0:
                    raise OSError(f"it is full at {MAX_FILE_BYTES} bytes; move it away")
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError as error:
                raise FetchError(
                    f"the audit log {self.path!r} cannot be written ({error}); nothing is sent without it",
                    rule="audit_failed",
                ) from None

    def close(self) -> None:
        """Give the file back; may be called twice."""
        with self._lock:
            self._close()


def audit_sink(audit: AuditSink | str | os.PathLike[str] | None) -> AuditSink:
    """What a caller gave as ``audit=``: nothing, a path to append to, or a function of its own."""
    if audit is None:
        return _forget
    if callable(audit):
        return audit
    return AuditFile(audit)


def _forget(record: AuditRecord) -> None:
    """No log was asked for."""
