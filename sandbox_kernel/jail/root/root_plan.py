"""When host root needs a stage before bubblewrap, and the plan for it. ``root_stage.py`` carries it out."""

from __future__ import annotations

import marshal
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass

#: Where the stage shows the sources.
PLACE = "/run"

#: Unprivileged ids that no account uses; each sandbox of root gets its own, so that none can signal another.
_FIRST_UID, _UID_COUNT = 0x77000000, 1 << 20


@dataclass(frozen=True)
class Stage:
    """The plan of one stage, and where each source will be found after it."""

    plan: bytes
    sources: dict[str, str]


def fresh_uid() -> int:
    """An id for one sandbox of root."""
    return _FIRST_UID + secrets.randbelow(_UID_COUNT)


def is_closed(path: str) -> bool:
    """Whether a path itself is closed to strangers, as all is that root makes with a umask of 077 or 027."""
    mode = os.stat(path).st_mode
    wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
    return mode & wanted != wanted


def reachable_by_all(path: str) -> bool:
    """Whether an unprivileged stranger can walk to this path and read it."""
    try:
        if is_closed(path):
            return False
        while path != "/":
            path = os.path.dirname(path)
            if not os.stat(path).st_mode & 0o001:
                return False
    except OSError:
        return False
    return True


def package_of(bwrap: str) -> str | None:
    """The folder that holds a bwrap from a registry package and, beside it, its library; None for any other."""
    if os.path.basename(os.path.dirname(bwrap)) != "_bin":
        return None
    return os.path.dirname(os.path.dirname(os.path.dirname(bwrap)))


def plan_stage(
    uid: int,
    shared: Sequence[str],
    granted: Sequence[str],
    bwrap: str,
    args_fd: int,
    *,
    closed: frozenset[str] = frozenset(),
) -> Stage:
    """Plan a stage: ``shared`` sources are shown as they are, ``granted`` ones with root's ids mapped to ``uid``.

    Those of ``closed``, which strangers cannot read (``is_closed``), are mapped too. The program that is executed at
    the end is bwrap with its arguments from ``args_fd``.
    """
    sources: dict[str, str] = {}
    binds: list[tuple[str, str, bool]] = []
    for mapped, paths in ((True, granted), (False, shared)):
        for path in paths:
            if path not in sources:
                sources[path] = f"{PLACE}/{len(sources)}"
                binds.append((path, sources[path], mapped or path in closed))
    program = bwrap
    package = package_of(bwrap)
    if package is not None:
        binds.append((package, f"{PLACE}/bwrap", package in closed))
        program = f"{PLACE}/bwrap{bwrap.removeprefix(package)}"
    plan = {"uid": uid, "binds": binds, "argv": [program, "--args", str(args_fd)]}
    return Stage(marshal.dumps(plan, 2), sources)
