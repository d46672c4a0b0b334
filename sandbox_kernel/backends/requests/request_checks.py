"""Checks of a request before anything starts."""

from __future__ import annotations

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.walls import sizes
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecRequest

#: Files in a memory file system take whole pages.
_PAGE = 4096


def check_request(request: object) -> None:
    """Raise ``InvalidRequest`` for anything but an ``ExecRequest``."""
    if not isinstance(request, ExecRequest):
        raise InvalidRequest(
            f"a backend runs an ExecRequest, got {quoted(request)}; "
            "for example ExecRequest(language='python', code='print(1)', timeout=5)"
        )


def check_files_fit(request: ExecRequest, runtime_mb: int = 0) -> None:
    """Raise ``InvalidRequest`` when the files of a request do not fit into its work folder.

    ``runtime_mb`` is the memory that a backend adds to the limit for its own use.
    """
    room = sizes(request.limits, request.memory_mb + runtime_mb)[0]
    taken = sum(-(-_length(data) // _PAGE) * _PAGE for data in request.files.values())
    if taken <= room:
        return
    raise InvalidRequest(
        f"{len(request.files)} files of {taken} bytes do not fit into the work folder, which takes {room} bytes here "
        f"(limits.disk_mb is {request.limits.disk_mb}, and at most half of the {request.memory_mb} MB of memory): "
        "raise these limits, leave files out, or show a host folder with policy.mount(...)"
    )


def _length(data: str | bytes) -> int:
    if isinstance(data, bytes):
        return len(data)
    return len(data) if data.isascii() else len(data.encode())
