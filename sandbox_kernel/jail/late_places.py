"""Where a folder or file of the host can be shown to a running jail, and where not. Pure.

The root of a jail is read-only and, in forks of a template, shared with other jails: nothing can be made there later.
So every jail has some empty folders from its start (``LATE_PLACES``), in which places for late mounts are made on a
small file system of their own; ``/tmp`` takes them too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.jail.core.walls import TMP, WORK, Walls

#: Empty folders of every jail: names that people mount their data at, here, in containers and in hosted notebooks.
LATE_PLACES = (
    *("/data", "/mnt", "/home", "/media", "/srv", "/work", "/workspace", "/content", "/kaggle"),
    *("/project", "/projects", "/workspaces", "/datasets", "/input", "/inputs", "/output", "/outputs", "/results"),
    *("/models", "/storage", "/scratch", "/shared", "/volumes", "/notebooks", "/app", "/src", "/code", "/repo", "/opt"),
)


def shelf_of(target: str) -> str | None:
    """Return the empty folder in which a place must be made; None when the target is one itself, or in ``/tmp``."""
    top = "/" + target.split("/")[1]
    return top if top in LATE_PLACES and target != top else None


def covered_places(walls: Walls, shelf: str) -> tuple[str, ...]:
    """Return what a jail has in an empty folder from its start: a file system that is put over it must have it too.

    Places below others are left out: they come along.
    """
    own = {grant.target for grant in (*walls.runtime, *walls.grants) if grant.target.startswith(f"{shelf}/")}
    return tuple(sorted(place for place in own if not any(place.startswith(f"{other}/") for other in own)))


def check_place(walls: Walls, target: str, late: Iterable[str]) -> None:
    """Raise ``PolicyViolation``, which says what works, when nothing can be mounted at a place of a running jail.

    Args:
        walls: The walls of the jail.
        target: The place inside, an absolute and normal path.
        late: The places of folders that the session was shown since it began.

    """
    top = "/" + target.split("/")[1]
    instead = (
        f"begin a session that has it from its start: %sandbox restart --keep --mount HOST:{target}, "
        f"policy.mount(HOST, {target!r})"
    )
    spare = f"{LATE_PLACES[1]}/{os.path.basename(target) or 'data'}"
    free = f"mount it at {spare if spare != target else f'{LATE_PLACES[0]}/{os.path.basename(target)}'}"
    if top == WORK:
        raise PolicyViolation(
            f"nothing can be mounted at {target} while the session runs: it is in the work folder, which a rollback "
            f"restores; {free}, or work on the folder copy-on-write: %sandbox restart --keep --here"
        )
    if top not in LATE_PLACES and top != TMP:
        raise PolicyViolation(
            f"a running session can be shown folders and files at or below the empty folders that it began with "
            f"({', '.join(LATE_PLACES)}) and below {TMP}, not at {target}: its root is fixed when it begins; "
            f"{free}, or {instead}"
        )
    own = [grant.target for grant in (*walls.runtime, *walls.grants)]
    for taken in (*own, *late):
        if target == taken or target.startswith(f"{taken}/") or taken.startswith(f"{target}/"):
            raise PolicyViolation(
                f"{target} and {taken}, which the session has already, would cover each other; {free}, or take the "
                f"other one back first: %sandbox reset, session.revoke(mount='HOST:{taken}')"
            )


def check_file_place(source: str, target: str) -> None:
    """Raise ``PolicyViolation`` when a single file cannot be shown to a running jail at a place."""
    if not os.path.isfile(source):
        raise PolicyViolation(
            f"{source!r} is neither a folder nor a regular file, and through others a sandbox could reach programs of "
            "the host; nothing can be mounted from there"
        )
    if target in (*LATE_PLACES, TMP):
        inside = f"{target}/{os.path.basename(source)}"
        raise PolicyViolation(
            f"{source!r} is a file and {target} a folder; name the file inside as well: --mount {source}:{inside}"
        )
