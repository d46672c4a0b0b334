"""Caches measurements until the next boot, because running the canaries takes seconds.

The name of an entry is a digest of everything that the measurement depends on (``measured_key.py``), so no entry is
outdated. Entries are files in a private folder. An entry that is damaged, or that another user could have written, is
ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from dataclasses import asdict, dataclass, fields

from sandbox_kernel.backends.measured.canaries import Measurement
from sandbox_kernel.workspace.own_folder import cache_root, make_own_folder

MAX_BYTES = 1 << 20
#: Most entries; the oldest are removed.
MAX_ENTRIES = 50
_FORM = {field.name for field in fields(Measurement)}


@dataclass(frozen=True)
class Measured:
    """The measurements, and their time."""

    lines: tuple[Measurement, ...]
    at: float


def cache_folder() -> str:
    """Return the folder of entries, below the user's cache folder."""
    return os.path.join(cache_root(), "sandbox-kernel", "measured")


def recall(key: str) -> Measured | None:
    """Return the measurements with this fingerprint; None when there are none that can be trusted."""
    if not key:
        return None
    try:
        fd = os.open(os.path.join(_folder(), key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        kind = os.fstat(fd)
        ours = stat.S_ISREG(kind.st_mode) and kind.st_uid == os.geteuid() and not kind.st_mode & 0o077
        if not ours or kind.st_size > MAX_BYTES:
            return None
        with open(fd, "rb", closefd=False) as file:
            content = file.read(MAX_BYTES)
    finally:
        os.close(fd)
    return _unpacked(key, content)


def remember(key: str, measured: Measured) -> None:
    """Store measurements. A folder that cannot be used is ignored; the next report then measures again."""
    if not key:
        return
    body = json.dumps({"at": measured.at, "lines": [asdict(line) for line in measured.lines]}).encode()
    with contextlib.suppress(OSError):
        folder = _folder()
        aside = os.path.join(folder, f"aside-{secrets.token_hex(8)}")
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(_seal(key, body) + body)
            os.rename(aside, os.path.join(folder, key))
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            raise
        by_age = sorted(os.scandir(folder), key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
        for old in by_age[:-MAX_ENTRIES]:
            os.unlink(old.path)


def _folder() -> str:
    """Return the folder, made if needed. Raises OSError when other users could change it."""
    folder = cache_folder()
    with contextlib.suppress(FileNotFoundError):
        kind = os.lstat(folder)
        if stat.S_ISDIR(kind.st_mode) and kind.st_uid == os.geteuid() and kind.st_mode & 0o077:
            os.chmod(folder, 0o700)
    make_own_folder(folder)
    return folder


def _seal(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + body).hexdigest().encode() + b"\n"


def _unpacked(key: str, content: bytes) -> Measured | None:
    seal, _, body = content.partition(b"\n")
    if seal + b"\n" != _seal(key, body):
        return None
    try:
        found = json.loads(body)
        lines = tuple(Measurement(**line) for line in found["lines"] if set(line) == _FORM)
        return Measured(lines, float(found["at"])) if lines and len(lines) == len(found["lines"]) else None
    except (ValueError, TypeError, KeyError):
        return None
