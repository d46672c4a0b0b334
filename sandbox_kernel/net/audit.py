"""The audit log: one JSON line for each request that was allowed, refused, failed or finished.

Lines name method, host, port, address and sizes. They never hold bodies, headers or query strings, which may hold
secrets. When the log cannot be written, the request fails: ``FetchError`` with rule ``audit_failed``.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from sandbox_kernel.errors import FetchError, PolicyViolation
from sandbox_kernel.net.fetch_policy import FetchRefused
from sandbox_kernel.policy.written_folders import open_host_file

_MAX_TEXT = 500
#: Largest log file, so that a program cannot fill the disk of the host. When the log is full, requests fail.
MAX_FILE_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One event. ``event`` is allowed, refused, failed or finished; ``via`` is fetch or proxy.

    What a user answered to a question over MCP is an event too: granted_once, granted or declined, ``via`` mcp.
    """

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

    def ended(self, error: FetchError) -> AuditRecord:
        """Return the record of a request that an error ended. Without the URL: it may hold a password or a query."""
        refused = isinstance(error, FetchRefused)
        reason = error.violation.reason if isinstance(error, FetchRefused) else str(error)
        # A URL that cannot be parsed has no host, and the reason quotes it.
        return replace(
            self, event="refused" if refused else "failed", rule=error.rule, reason=reason if self.host else ""
        )

    def to_json_line(self) -> str:
        """Return the record as one ASCII line. Guest texts are cut and escaped, so they cannot forge a line."""
        values = {
            name: value[:_MAX_TEXT] if isinstance(value, str) else value
            for name, value in asdict(self).items()
            if value not in ("", None)
        }
        return json.dumps(values, sort_keys=True) + "\n"


#: A function that receives the records; called from any thread.
AuditSink = Callable[[AuditRecord], None]


class AuditFile:
    """Appends records to a file that only its owner can read. Closes it in ``close`` or with the last reference."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            fd = open_host_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise PolicyViolation(
                f"audit log {self.path!r} cannot be opened: {error.strerror}; name a file in a folder you can write"
            ) from None
        self._lock = threading.Lock()
        self._fd = fd
        self._room = MAX_FILE_BYTES - os.fstat(fd).st_size
        self._close = weakref.finalize(self, os.close, fd)

    def __call__(self, record: AuditRecord) -> None:
        """Append one record as a whole line."""
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
        """Close the file; may be called twice."""
        with self._lock:
            self._close()


def audit_sink(audit: AuditSink | str | os.PathLike[str] | None) -> AuditSink:
    """Return the sink for an ``audit=`` argument: None, a path to append to, or a function."""
    if audit is None:
        return lambda _: None
    return audit if callable(audit) else AuditFile(audit)
