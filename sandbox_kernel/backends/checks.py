"""What is checked before a run, and how failures of the host are told. Used by every backend and by sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sandbox_kernel.errors import BackendUnavailable, CommandNotFound, InvalidRequest
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.interpreter import is_system
from sandbox_kernel.jail.walls import CELL, TMP, WORK, Places, sizes
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecRequest
from sandbox_kernel.policy import Grant


@contextmanager
def host_trouble() -> Iterator[None]:
    """Turn an ``OSError`` into ``BackendUnavailable``."""
    try:
        yield
    except OSError as error:
        raise host_failure(error) from error


def host_failure(error: OSError) -> BackendUnavailable:
    """Return the error for the caller when the host failed."""
    return BackendUnavailable(
        f"the host could not run it: {error}; check its open files, disk space and control groups, then run it again"
    )


_PAGE = 4096


def check_request(request: object) -> None:
    """Raise ``InvalidRequest`` for anything but an ``ExecRequest``."""
    if not isinstance(request, ExecRequest):
        raise InvalidRequest(
            f"a backend runs an ExecRequest, got {quoted(request)}; "
            "for example ExecRequest(language='python', code='print(1)', timeout=5)"
        )


def check_files_fit(request: ExecRequest, runtime_mb: int = 0) -> None:
    """Raise ``InvalidRequest`` if the files do not fit; ``runtime_mb`` is what a backend adds to the limit."""
    room = sizes(request.limits, request.memory_mb + runtime_mb)[0]
    taken = 0
    for data in request.files.values():
        size = len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode())
        # Files in a memory file system take whole pages.
        taken += -(-size // _PAGE) * _PAGE
    if taken <= room:
        return
    raise InvalidRequest(
        f"{len(request.files)} files of {taken} bytes do not fit into the work folder, which takes {room} bytes here "
        f"(limits.disk_mb is {request.limits.disk_mb}, and at most half of the {request.memory_mb} MB of memory): "
        "raise these limits, leave files out, or show a host folder with policy.mount(...)"
    )


def given_files(request: ExecRequest, places: Places) -> list[JobFile]:
    """Return the files of a request, for the work folder of a jail."""
    given = {name: data.encode() if isinstance(data, str) else data for name, data in request.files.items()}
    return [JobFile(root=places.work, name=name, data=data) for name, data in given.items()]


def unless_terminal(source: int | None) -> int | None:
    """Return the descriptor; None for a terminal, because its user would not know that the end of input is needed."""
    return None if source is None or os.isatty(source) else source


#: Variables, and prefixes of variables.
VARIABLES = ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
VARIABLES_LIKE = ("SANDBOX_KERNEL_", "LD_", "PYTHON")


def selecting_variables() -> dict[str, str]:
    """Return them, as they are now."""
    return {name: value for name, value in os.environ.items() if name in VARIABLES or name.startswith(VARIABLES_LIKE)}


# Checks before a run whether the command that it names exists inside the jail.
#
# Only commands that certainly do not exist are refused. A run may make files below /box or /tmp itself; these are not
# checked.

#: A script that becomes the program; the shell does not interpret its arguments.
BECOME = 'exec "$@"'
#: Folders whose content is written at the start of a run or by it.
_RUNS_OWN = (WORK, TMP, CELL, "/proc", "/dev")
_REMEDY = "install it on this machine, or show it with policy.mount(…) and call it by its path"


def check_command(command: str, path: str, shown: Sequence[Grant] | None) -> None:
    """Raise ``CommandNotFound`` for a program that is not inside; ``shown`` is None when there are no walls."""
    if not isinstance(command, str) or not command or "\0" in command or command.startswith("-"):
        raise InvalidRequest(f"{command!r:.100} is not the name of a program; give one, and its arguments apart")
    if "/" in command:
        if command.startswith("/") and not _is_runs_own(command, shown) and not _has(_on_host(command, shown)):
            raise CommandNotFound(f"command not found: {command!r:.200} is not in this sandbox; {_REMEDY}")
        return
    folders = [folder for folder in path.split(":") if folder]
    if any(not folder.startswith("/") or _is_runs_own(folder, shown) for folder in folders):
        return
    places = [place for folder in folders if (place := _on_host(folder, shown)) is not None]
    if not any(_has(os.path.join(place, command)) for place in places):
        raise CommandNotFound(f"command not found: {command!r:.200} is in no folder of PATH inside ({path}); {_REMEDY}")


def _is_runs_own(path: str, shown: Sequence[Grant] | None) -> bool:
    """Return whether the run itself may make this path. A host path that is shown below /tmp can be checked."""
    path = os.path.normpath(path)
    return any(_is_beneath(path, place) for place in _RUNS_OWN) and _covering(path, shown or ()) is None


def _on_host(inside: str, shown: Sequence[Grant] | None) -> str | None:
    """Return the host path of a path inside; None when the jail does not show it."""
    inside = os.path.normpath(inside)
    if shown is None:
        return inside
    grant = _covering(inside, shown)
    if grant is not None:
        return grant.source + inside[len(grant.target) :]
    return inside if is_system(inside) else None


def _covering(inside: str, shown: Sequence[Grant]) -> Grant | None:
    """Return the grant that shows a path; later grants cover earlier ones."""
    return next((grant for grant in reversed(shown) if _is_beneath(inside, grant.target)), None)


def _is_beneath(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def _has(path: str | None) -> bool:
    return path is not None and os.path.isfile(path) and os.access(path, os.X_OK)
