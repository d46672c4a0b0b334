"""A cache of compiled programs: private files on the host, one for each program.

The key is a digest of everything that decides what the compiler produces (see ``compiled.py``), so no entry is ever
stale. A new entry is written to another file and renamed, so that several processes can use one folder. It begins
with a digest of its key and content, so that a damaged entry is noticed and made again. When the folder is full, the
least recently used entries are deleted. The programs come from unvetted source and run only inside a jail.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
import time

from sandbox_kernel.ground.own_folder import cache_root, make_own_folder, weakness
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.limits import MIB

MAX_BYTES = 256 * MIB
MAX_ENTRY_BYTES = 32 * MIB
_MAGIC = b"sandbox-kernel compiled 1\n"
_NAME = re.compile(r"[0-9a-f]{64}\Z")
#: An unfinished file that is older than this was left by a process that ended.
_ABANDONED_S = 3600.0


@dataclass(frozen=True)
class Compiled:
    """A program, and the messages (warnings) of the compiler that made it."""

    program: bytes
    messages: bytes


def default_folder() -> str:
    """Return the default folder, below the user's cache folder."""
    return os.path.join(cache_root(), "sandbox-kernel", "compiled")


class CompileCache:
    """One folder of compiled programs. If the folder cannot be used, every look-up is a miss, never an error."""

    def __init__(self, folder: str, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    def get(self, key: str) -> Compiled | None:
        """Return the program of this key, or None. A damaged entry is removed."""
        path = os.path.join(self.folder, key)
        try:
            # Others could store their programs under our keys in a folder that they can write.
            if weakness(self.folder) is not None:
                return None
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        kind, found = os.fstat(fd), None
        if stat.S_ISREG(kind.st_mode) and kind.st_size <= MAX_ENTRY_BYTES + MIB:
            with open(fd, "rb", closefd=False) as file:
                found = _unpack(key, file.read(MAX_ENTRY_BYTES + MIB))
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(path) if found is None else os.utime(path)
        return found

    def put(self, key: str, compiled: Compiled) -> None:
        """Store a program. A full or read-only folder is not an error."""
        if len(compiled.program) + len(compiled.messages) > MAX_ENTRY_BYTES:
            return
        aside = os.path.join(self.folder, f"aside-{os.urandom(8).hex()}")
        with contextlib.suppress(OSError):
            make_own_folder(self.folder)
            try:
                with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                    # A program has megabytes and a user waits, so it is written without another copy.
                    body = (struct.pack(">I", len(compiled.messages)), compiled.messages, compiled.program)
                    file.writelines((_MAGIC, _digest(key, *body), *body))
                os.replace(aside, os.path.join(self.folder, key))
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside)
            self._make_room()

    def _make_room(self) -> None:
        entries: list[tuple[float, int, str]] = []
        with os.scandir(self.folder) as listing:
            for item in listing:
                with contextlib.suppress(FileNotFoundError):  # another process deleted it at the same time
                    kind = item.stat(follow_symlinks=False)
                    if _NAME.match(item.name):
                        entries.append((kind.st_mtime, kind.st_size, item.path))
                    elif item.name.startswith("aside-") and time.time() - kind.st_mtime > _ABANDONED_S:
                        os.unlink(item.path)
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.max_bytes:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size


def _unpack(key: str, data: bytes) -> Compiled | None:
    start = len(_MAGIC) + 32
    body = data[start:]
    if not data.startswith(_MAGIC) or len(body) < 4 or data[len(_MAGIC) : start] != _digest(key, body):
        return None
    (size,) = struct.unpack(">I", body[:4])
    return Compiled(program=body[4 + size :], messages=body[4 : 4 + size])


def _digest(key: str, *body: bytes) -> bytes:
    import hashlib  # its library takes long to load, and most runs compile nothing

    found = hashlib.sha256(key.encode() + b"\0")
    for part in body:
        found.update(part)
    return found.digest()
