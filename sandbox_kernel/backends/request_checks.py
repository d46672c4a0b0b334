"""Whether a request can be run at all: said before anything starts, not by a full disk inside."""

from __future__ import annotations

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.core.walls import sizes
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecRequest

#: A file of a memory file system takes whole pages.
_PAGE = 4096


def check_request(request: object) -> None:
    """Say what a backend runs to whoever gives it something else."""
    if not isinstance(request, ExecRequest):
        raise InvalidRequest(
            f"a backend runs an ExecRequest, got {quoted(request)}; "
            "for example ExecRequest(language='python', code='print(1)', timeout=5)"
        )


def check_files_fit(request: ExecRequest, runtime_mb: int = 0) -> None:
    """Refuse files that are larger, all together, than the work folder of the run may be.

    ``runtime_mb`` is what a backend adds to the memory limit for itself.
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
