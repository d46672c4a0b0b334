"""``KeptWork``: the place on the host where the files of one notebook stay when its kernel ends or is killed.

The work folder, files of sessions that are too large to be shared, and changes to the user's folder that were not
applied. One folder for each notebook, private to the user, by the notebook's path. One kernel at a time uses it; a
second kernel of the same notebook has a work folder of its own. The oldest ones are removed. Nothing in it is imported
or executed, and no link in it is followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.ground.own_folder import make_own_folder, state_root
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE, WalkLimits

#: Notebooks whose files are kept, and the bytes of all together; the longest unused go first.
MOST_NOTEBOOKS = 20
MOST_BYTES = 1024 * MIB
#: The file whose lock says that a process has the folder.
LOCK = "lock"
_FILES, _COPIES, _NAME = "files", "copies", "notebook"
_LARGE, _HERE = "large", "here"
#: Ends the name of the file, beside a place of changes, with the options under which they are there again.
_OPTIONS = ".options"
_MOST_LIST = 1 << 20
_LIMITS = WalkLimits(seconds=2.0)


class KeptWork:
    """The kept folder of one notebook. Make it with ``claim``; it stays claimed until this process ends."""

    def __init__(self, folder: str, lock_fd: int) -> None:
        self._folder = folder
        self._lock_fd = lock_fd
        #: The work folder itself.
        self.path = os.path.join(folder, _FILES)
        #: How many files were there when this kernel began.
        self.found = 0
        self._given: set[str] = set()

    @classmethod
    def claim(cls, notebook: str) -> KeptWork | None:
        """Return the kept folder of a notebook; None where there cannot be a private one, or another kernel has it.

        Args:
            notebook: The path of the notebook, or another text that names it for good.

        """
        folder = _folder_of(notebook)
        root = os.path.dirname(folder)
        try:
            make_own_folder(folder)
            lock_fd = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.utime(folder)
            make_own_folder(os.path.join(folder, _FILES))
        except OSError:
            os.close(lock_fd)
            return None
        claimed = cls(folder, lock_fd)
        with contextlib.suppress(OSError, SandboxError):
            claimed._begin(notebook)
        with contextlib.suppress(OSError, SandboxError):
            remove_oldest(root, keep=folder)
        return claimed

    @staticmethod
    def exists(notebook: str) -> bool:
        """Whether something is kept under this name."""
        return os.path.isdir(_folder_of(notebook))

    def _begin(self, notebook: str) -> None:
        with Rooted.at(self._folder) as own:
            own.write(_NAME, os.fsencode(notebook)[:4096], 0o600)
            copies: list[str] = []
            with contextlib.suppress(SandboxError, ValueError):
                copies = [path for path in json.loads(own.read(_COPIES, _MOST_LIST)) if isinstance(path, str)]
        with Rooted.at(self.path) as files:
            for path in copies:
                # Copies that the user allowed the last kernel: the right ended with it.
                with contextlib.suppress(SandboxError):
                    files.remove(path)
            self.found = sum(entry.type == FILE for entry in files.walk(_LIMITS))
        with contextlib.suppress(SandboxError, OSError), Rooted.at(os.path.join(self._folder, _LARGE)) as large:
            self.found += sum(entry.type == FILE for entry in large.walk(_LIMITS))
        self.note_copies(())

    def note_copies(self, paths: Iterable[str]) -> None:
        """Note which files are copies that the user allowed: they go when the kernel ends."""
        with Rooted.at(self._folder) as own:
            own.write(_COPIES, json.dumps(list(paths)).encode(), 0o600)

    def place_of_changes(self, folder: str, policy: str, options: str) -> str | None:
        """Return where changes to a folder of the user stay; None when another sandbox of this kernel has the place.

        Args:
            folder: The real path of the user's folder.
            policy: What programs may see beside it: changes made under other rights have another place.
            options: What the user writes to have them again.

        """
        place = self._place(_HERE, f"{folder}\0{policy}")
        if place is not None:
            with contextlib.suppress(OSError, SandboxError), Rooted.at(self._folder) as own:
                own.write(f"{_HERE}/{os.path.basename(place)}{_OPTIONS}", options.encode()[:4096], 0o600)
        return place

    def waiting(self) -> tuple[tuple[str, int], ...]:
        """Return what an earlier kernel changed in folders of the user that no sandbox of this one works on yet.

        The options under which the changes are there again, and how many they are.
        """
        from sandbox_kernel.workspace.here.change_log import ChangeLog  # for notebooks with such changes

        found: list[tuple[str, int]] = []
        with contextlib.suppress(OSError, SandboxError), Rooted.at(self._folder) as own:
            for entry in own.list_dir(_HERE):
                place = os.path.join(self._folder, _HERE, entry.name.removesuffix(_OPTIONS))
                if not entry.name.endswith(_OPTIONS) or place in self._given or not os.path.isdir(place):
                    continue
                with contextlib.closing(ChangeLog(place)) as log:
                    count = len(log.read())
                if count:
                    found.append((own.read(f"{_HERE}/{entry.name}", 4096).decode("utf-8", "replace"), count))
        return tuple(found)

    def place_of_large_files(self, session: str) -> str:
        """Return where files stay that a session has for itself because they are too large to be shared.

        Args:
            session: The language and the name of the session.

        """
        return os.path.join(self._folder, _LARGE, _hashed(session))

    def _place(self, kind: str, name: str) -> str | None:
        place = os.path.join(self._folder, kind, _hashed(name))
        if place in self._given:
            return None
        self._given.add(place)
        return place

    def remove(self) -> None:
        """Remove the folder with everything in it; nothing is kept after this."""
        with contextlib.suppress(OSError, SandboxError):
            _remove(self._folder)
        self.close()

    def close(self) -> None:
        """Let another kernel of the notebook have the folder; may be called twice."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _folder_of(notebook: str) -> str:
    return os.path.join(state_root(), "sandbox-kernel", "work", _hashed(os.path.abspath(notebook)))


def _hashed(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def remove_oldest(root: str, keep: str) -> None:
    """Remove what is beyond the limits and in no use, the longest unused first."""
    with os.scandir(root) as scan:
        known = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in scan if entry.is_dir()]
    held = 0
    for number, (_, folder) in enumerate(sorted(known, reverse=True), 1):
        with Rooted.at(folder) as own:
            held += sum(entry.size for entry in own.walk(_LIMITS) if entry.type == FILE)
        if folder != keep and (number > MOST_NOTEBOOKS or held > MOST_BYTES) and not _in_use(folder):
            _remove(folder)


def _in_use(folder: str) -> bool:
    try:
        fd = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _remove(folder: str) -> None:
    with Rooted.at(folder) as own:
        own.clear()
    os.rmdir(folder)
