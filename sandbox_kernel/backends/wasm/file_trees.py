"""Folders of files for guests, kept in the store's folder by their content: packages that a guest reads by path.

They are data for guests and never run on the host, so they have no seal. Each process compares a folder once with the
files that it should have, and makes it again when they differ.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Mapping


class FileTrees:
    """The folders below the folder of one store. Safe for several threads and processes at the same time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        #: Folders that were compared, by path and inode.
        self._compared = set[tuple[str, int]]()

    def get(self, key: str, files: Mapping[str, bytes]) -> str:
        """Return the path of a folder with exactly these files, by their relative paths; makes it the first time."""
        path = os.path.join(self._folder, key)
        for _ in range(2):
            try:
                mark = (path, os.lstat(path).st_ino)
                if mark in self._compared or _holds(path, files):
                    self._compared.add(mark)
                    return path
            except OSError:
                pass
            self._make(path, files)
        raise OSError(f"the folder {path} does not keep what is put there")

    def _make(self, path: str, files: Mapping[str, bytes]) -> None:
        aside, old = (os.path.join(self._folder, f".{kind}-{os.getpid()}-{secrets.token_hex(8)}") for kind in "nw")
        try:
            os.mkdir(aside)
            os.chmod(aside, 0o755)  # read by jails that run as another user, in a folder that only its owner can enter
            for name, data in files.items():
                self._write(aside, name, data)
            with contextlib.suppress(OSError):
                os.rename(path, old)
            # Fails when another process made the folder; that one is compared by the caller.
            with contextlib.suppress(OSError):
                os.rename(aside, path)
        finally:
            for left in (aside, old):
                shutil.rmtree(left, ignore_errors=True)

    @staticmethod
    def _write(root: str, name: str, data: bytes) -> None:
        folder = root
        for part in name.split("/")[:-1]:
            folder = os.path.join(folder, part)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
                os.chmod(folder, 0o755)
        with open(os.path.join(root, name), "xb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)


def _holds(path: str, files: Mapping[str, bytes]) -> bool:
    found = set[str]()
    for folder, folders, names in os.walk(path):
        if any(os.path.islink(os.path.join(folder, name)) for name in folders):
            return False
        found.update(os.path.relpath(os.path.join(folder, name), path) for name in names)
    if found != set(files):
        return False
    for name, data in files.items():
        inside = os.path.join(path, name)
        status = os.lstat(inside)
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(data):
            return False
        with open(inside, "rb") as file:
            if file.read() != data:
                return False
    return True
