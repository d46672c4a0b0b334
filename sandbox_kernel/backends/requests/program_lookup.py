"""Checks before a run whether the command that it names exists inside the jail.

Only commands that certainly do not exist are refused. A run may make files below /box or /tmp itself; these are not
checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from sandbox_kernel.errors import CommandNotFound, InvalidRequest
from sandbox_kernel.jail.interpreter import is_system
from sandbox_kernel.jail.walls import CELL, TMP, WORK
from sandbox_kernel.policy import Grant

#: A script that becomes the program; the shell does not interpret its arguments.
BECOME = 'exec "$@"'
#: Folders whose content is written at the start of a run or by it.
_RUNS_OWN = (WORK, TMP, CELL, "/proc", "/dev")
_REMEDY = "install it on this machine, or show it with policy.mount(…) and call it by its path"


def check_command(command: str, path: str, shown: Sequence[Grant] | None) -> None:
    """Raise ``CommandNotFound`` when no folder of ``path`` has this program, or its full path does not exist.

    ``shown`` are the host paths that the jail shows in addition to the system; None when there are no walls.
    """
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
        import difflib  # importing it at every start would cost time

        near = difflib.get_close_matches(command, _programs(places), n=1, cutoff=0.8)
        hint = f"did you mean {near[0]!r}?" if near else _REMEDY
        raise CommandNotFound(f"command not found: {command!r:.200} is in no folder of PATH inside ({path}); {hint}")


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


def _programs(folders: Iterable[str]) -> list[str]:
    found: set[str] = set()
    for folder in folders:
        try:
            found |= set(os.listdir(folder))
        except OSError:
            continue
    return sorted(found)
