"""Whether a program that is asked for by its name is there, as a jail will see it; looked at before anything starts.

Only what is certain is refused. Files that a run brings or makes (below /box, /tmp and the like) are left to the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from sandbox_kernel.errors import CommandNotFound, InvalidRequest
from sandbox_kernel.jail.core.interpreter import is_system
from sandbox_kernel.jail.core.walls import CELL, TMP, WORK
from sandbox_kernel.policy import Grant

#: The script that becomes the program: its arguments are never read as shell.
BECOME = 'exec "$@"'
#: Places that are filled when a run begins, or by it.
_RUNS_OWN = (WORK, TMP, CELL, "/proc", "/dev")
_REMEDY = "install it on this machine, or show it with policy.mount(…) and call it by its path"


def check_command(command: str, path: str, shown: Sequence[Grant] | None) -> None:
    """``CommandNotFound`` when no folder of ``path`` inside has this program, or a whole path leads to none.

    ``shown`` is what the jail shows of the host beside the system; None where there are no walls.
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
        import difflib  # every start of a program would pay for it

        near = difflib.get_close_matches(command, _programs(places), n=1, cutoff=0.8)
        hint = f"did you mean {near[0]!r}?" if near else _REMEDY
        raise CommandNotFound(f"command not found: {command!r:.200} is in no folder of PATH inside ({path}); {hint}")


def _is_runs_own(path: str, shown: Sequence[Grant] | None) -> bool:
    """Whether only the run can tell. An interpreter below the host's /tmp is shown there, and can be looked at."""
    path = os.path.normpath(path)
    return any(_is_beneath(path, place) for place in _RUNS_OWN) and _covering(path, shown or ()) is None


def _on_host(inside: str, shown: Sequence[Grant] | None) -> str | None:
    """Where something inside is on the host; None for what is shown nowhere."""
    inside = os.path.normpath(inside)
    if shown is None:
        return inside
    grant = _covering(inside, shown)
    if grant is not None:
        return grant.source + inside[len(grant.target) :]
    return inside if is_system(inside) else None


def _covering(inside: str, shown: Sequence[Grant]) -> Grant | None:
    """The grant that shows a path; the last one covers earlier ones."""
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
