"""A cache of compiled programs: private files on the host, one for each program.

The key is a digest of everything that decides what the compiler produces, so no entry is stale; a damaged one is
noticed by its own digest. The programs come from unvetted source and run only inside a jail.
"""

from __future__ import annotations

import os
import struct

from sandbox_kernel.limits import MIB
from sandbox_kernel.util.own_folder import OwnFiles, cache_root
from sandbox_kernel.util.values import dataclass

MAX_BYTES = 256 * MIB
MAX_ENTRY_BYTES = 64 * MIB
_MAGIC = b"sandbox-kernel compiled 1\n"


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
        self._files = OwnFiles(folder, most_bytes=max_bytes)

    def get(self, key: str) -> Compiled | None:
        """Return the program of this key, or None. A damaged entry is removed."""
        data = self._files.read(key, MAX_ENTRY_BYTES + MIB)
        found = None if data is None else _unpack(key, data)
        if data is not None and found is None:
            self._files.remove(key)
        return found

    def put(self, key: str, compiled: Compiled) -> None:
        """Store a program. A full or read-only folder is not an error."""
        if len(compiled.program) + len(compiled.messages) <= MAX_ENTRY_BYTES:
            # A program has megabytes and a user waits, so it is written without another copy.
            body = (struct.pack(">I", len(compiled.messages)), compiled.messages, compiled.program)
            self._files.write(key, _MAGIC, _digest(key, *body), *body)


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
