"""``KeptWork``: where the files of one notebook stay when its kernel ends or is killed.

The work folder, files of sessions that are too large to be shared, and changes to the user's folder that were not
applied. One folder for each notebook, by the notebook's path. One kernel at a time uses it; a second kernel of the same
notebook has a work folder of its own. Nothing in it is imported or executed, and no link in it is followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.policy.sandbox_policy import PACKAGES
from sandbox_kernel.util.own_folder import LockedFolder, make_own_folder, remove_oldest
from sandbox_kernel.util.wire import decode
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import WalkLimits

_FILES, _COPIES, _NAME = "files", "copies", "notebook"
_LARGE, _HERE = "large", "here"
#: Ends the name of the file, beside a place of changes, with the options under which they are there again.
_OPTIONS = ".options"
_MOST_LIST = 1 << 20
_LIMITS = WalkLimits(seconds=2.0)


class KeptWork(LockedFolder):
    """The kept folder of one notebook. Make it with ``of``; it stays claimed until this process ends."""

    def __init__(self, path: str, lock_fd: int) -> None:
        super().__init__(path, lock_fd)
        #: The work folder itself.
        self.files = os.path.join(path, _FILES)
        #: How many files were there when this kernel began.
        self.found = 0
        self._given: set[str] = set()

    @classmethod
    def of(cls, notebook: str) -> KeptWork | None:
        """Return the kept folder of a notebook, by its path; None if no private one is free for this kernel."""
        path = _folder_of(notebook)
        try:
            claimed = cls.claim(path)
            if claimed is None:
                return None
            os.utime(path)
            make_own_folder(claimed.files)
        except OSError:
            return None
        with contextlib.suppress(OSError, SandboxError):
            claimed._begin(notebook)
        remove_oldest(os.path.dirname(path), keep=path, apart=PACKAGES)
        return claimed

    @staticmethod
    def exists(notebook: str) -> bool:
        """Whether something is kept under this name."""
        return os.path.isdir(_folder_of(notebook))

    def _begin(self, notebook: str) -> None:
        with Rooted.at(self.path) as own:
            own.write(_NAME, os.fsencode(notebook)[:4096], 0o600)
            copies: list[str] = []
            with contextlib.suppress(SandboxError, ValueError):
                copies = decode(own.read(_COPIES, _MOST_LIST), list[str])
        with Rooted.at(self.files) as files:
            for path in copies:
                # Copies that the user allowed the last kernel: the right ended with it.
                with contextlib.suppress(SandboxError):
                    files.remove(path)
            self.found = sum(entry.is_file for entry in files.walk(_LIMITS))
        with contextlib.suppress(SandboxError, OSError), Rooted.at(os.path.join(self.path, _LARGE)) as large:
            self.found += sum(entry.is_file for entry in large.walk(_LIMITS))
        self.note_copies(())

    def note_copies(self, paths: Iterable[str]) -> None:
        """Note which files are copies that the user allowed: they go when the kernel ends."""
        with Rooted.at(self.path) as own:
            own.write(_COPIES, json.dumps(list(paths)).encode(), 0o600)

    def place_of_changes(self, folder: str, policy: str, options: str) -> str | None:
        """Return where changes to a folder of the user stay; None when another sandbox of this kernel has the place.

        ``policy`` is what programs may see beside it: changes made under other rights have another place. ``options``
        are what the user writes to have them again.
        """
        place = os.path.join(self.path, _HERE, _hashed(f"{folder}\0{policy}"))
        if place in self._given:
            return None
        self._given.add(place)
        with contextlib.suppress(OSError, SandboxError), Rooted.at(self.path) as own:
            own.write(f"{_HERE}/{os.path.basename(place)}{_OPTIONS}", options.encode()[:4096], 0o600)
        return place

    def other_places(self) -> Iterable[tuple[str, str]]:
        """Yield the options and the place of changes that no sandbox of this kernel has."""
        with contextlib.suppress(OSError, SandboxError), Rooted.at(self.path) as own:
            for entry in own.list_dir(_HERE):
                place = os.path.join(self.path, entry.path.removesuffix(_OPTIONS))
                if entry.path.endswith(_OPTIONS) and place not in self._given and os.path.isdir(place):
                    yield own.read(entry.path, 4096).decode("utf-8", "replace"), place

    def place_of_large_files(self, session: str) -> str:
        """Return where files stay that a session, by its language and name, has because they are too large to share."""
        return os.path.join(self.path, _LARGE, _hashed(session))


def _folder_of(notebook: str) -> str:
    return os.path.join(LockedFolder.root("work"), _hashed(os.path.abspath(notebook)))


def _hashed(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
