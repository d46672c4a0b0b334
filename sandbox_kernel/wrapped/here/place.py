"""``ChangesPlace``: where the changes of a wrapped kernel to the user's folder stay until they are applied or dropped.

One private folder of the host for each folder of the user, notebook and set of rights. One process at a time has it:
the launcher of a kernel, or ``sandbox-kernel changes`` when the kernel has ended. A second kernel of the same
notebook gets a place of its own. Places with nothing in them are removed when they are closed, and the oldest ones
beyond a limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.workspace.kept_work import LockedFolder, remove_oldest

#: Kernels of one notebook that can have changes at the same time.
MOST_AT_ONCE = 16
_ABOUT, _CHANGES, _SOCKET, _SHOWN = "about.json", "changes", "asked", "shown"
_MOST_ABOUT = 64 << 10


@dataclass(frozen=True)
class PlaceFacts:
    """What the changes belong to: the real path of the user's folder, the notebook if it is known, the program."""

    folder: str
    notebook: str
    program: str


class ChangesPlace:
    """One place that this process has; made by ``claim`` or ``FoundPlace.take``."""

    def __init__(self, folder: LockedFolder, facts: PlaceFacts) -> None:
        self._folder = folder
        self.path = folder.path
        self.facts = facts

    @property
    def changes(self) -> str:
        """The folder of the ``ChangeLog``."""
        return os.path.join(self.path, _CHANGES)

    def close(self, *, empty: bool) -> None:
        """Let another process have the place; an empty one is removed. May be called twice."""
        if empty and self._folder.is_held:
            self._folder.remove()
        self._folder.close()


@dataclass(frozen=True)
class FoundPlace:
    """A place on disk, whoever has it."""

    path: str
    facts: PlaceFacts

    @property
    def name(self) -> str:
        """A short name of the place, the same for good."""
        return os.path.basename(self.path)

    @property
    def socket(self) -> str:
        """Where the launcher that has the place can be asked."""
        return os.path.join(self.path, _SOCKET)

    @property
    def shown(self) -> str:
        """The digest of the changes of which the user was shown the diff; empty for none."""
        with contextlib.suppress(OSError), open(os.path.join(self.path, _SHOWN), encoding="utf-8") as file:
            return file.read(_MOST_ABOUT)
        return ""

    def note_shown(self, digest: str) -> None:
        """Write down what the user knows, for the command that applies it."""
        place = os.path.join(self.path, _SHOWN)
        with contextlib.suppress(FileNotFoundError), open(place, "w", encoding="utf-8", opener=_private) as file:
            file.write(digest)

    def take(self) -> ChangesPlace | None:
        """Take the place for this process; None while another one has it, or when it is gone."""
        folder = LockedFolder.take(self.path)
        return None if folder is None else ChangesPlace(folder, self.facts)


def claim(facts: PlaceFacts, rights: Sequence[str]) -> ChangesPlace:
    """Return the place of a kernel; the changes of an earlier one with the same facts and rights are in it.

    Args:
        facts: The folder, the notebook, the program.
        rights: What the kernel may touch beside the folder: changes made under other rights have another place.

    Raises:
        BackendUnavailable: there can be no folder that only this user can change.

    """
    words = "\0".join((facts.folder, facts.notebook, *rights))
    name = hashlib.sha256(os.fsencode(words)).hexdigest()[:10]
    try:
        for number in range(1, MOST_AT_ONCE + 1):
            path = os.path.join(_root(), name if number == 1 else f"{name}-{number}")
            folder = LockedFolder.claim(path)
            if folder is None:
                continue
            with open(os.path.join(path, _ABOUT), "w", encoding="utf-8", opener=_private) as file:
                json.dump(asdict(facts), file)
            os.utime(path)
            remove_oldest(_root(), keep=path)
            return ChangesPlace(folder, facts)
    except OSError as error:
        raise BackendUnavailable(
            f"changes to {facts.folder!r} cannot be kept below {_root()!r}: {error}; see to that folder, or wrap the "
            "kernel without --here"
        ) from None
    raise BackendUnavailable(
        f"{MOST_AT_ONCE} kernels work on {facts.folder!r} already; end one of them, or wrap the kernel without --here"
    )


def found_places() -> Iterator[FoundPlace]:
    """Yield every place of this user, the newest first."""
    try:
        with os.scandir(_root()) as scan:
            known = sorted(scan, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns, reverse=True)
    except OSError:
        return
    for entry in known:
        with contextlib.suppress(OSError, ValueError, TypeError), open(os.path.join(entry.path, _ABOUT), "rb") as file:
            yield FoundPlace(entry.path, PlaceFacts(**json.loads(file.read(_MOST_ABOUT))))


def _root() -> str:
    return LockedFolder.root("wrapped")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
