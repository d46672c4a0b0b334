"""A private folder of verified files: downloaded guests and compiled modules.

A compiled module is native code, so only entries that this program made are used. Each entry has a seal: a keyed hash
over the hashes of its files, with a key that stays in the folder. An entry that is damaged, has no valid seal, belongs
to another user or has a second hard link is removed and counts as missing; the caller makes it again.

An entry is made under a temporary name and renamed; of two processes that make the same, both use the first one's.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.util.own_folder import LockedFolder, NotPrivate, OwnFiles, cache_root, make_own_folder

SEAL = "seal.json"
_KEY, _KEY_BYTES = "key", 32
#: The name of an entry. Other files of the folder are called otherwise: the key, its lock, what is being made.
_NAME = re.compile(r"[A-Za-z0-9]+-[A-Za-z0-9._+-]{1,180}\Z")
_MOST_SEAL_BYTES = 1 << 20


def default_folder() -> str:
    """Return the folder of the store: ``SANDBOX_KERNEL_CACHE``, or one below the user's cache folder."""
    chosen = os.environ.get("SANDBOX_KERNEL_CACHE")
    if chosen:
        return os.path.join(os.path.abspath(os.path.expanduser(chosen)), "wasm")
    return os.path.join(cache_root(), "sandbox-kernel", "wasm")


@dataclass(frozen=True)
class StoreEntry:
    """A verified entry: its path, and the SHA-256 of each of its files."""

    path: str
    files: Mapping[str, str]

    def file(self, name: str) -> str:
        """Return the path of one file, for a mount into a jail."""
        if name not in self.files:
            raise KeyError(f"{self.path} holds no file {name!r}")
        return os.path.join(self.path, name)


class WasmStore:
    """The store in one folder. Safe for several threads and processes at the same time."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or default_folder()
        self._verified: dict[str, tuple[tuple[object, ...], StoreEntry]] = {}
        another = "name another one in the environment variable SANDBOX_KERNEL_CACHE"
        try:
            make_own_folder(self.folder)
            self._secret = self._load_secret()
        except NotPrivate as error:
            raise BackendUnavailable(
                f"{self.folder} must be your own folder that no other user can enter or replace, because native code "
                f"is kept there: {error}; or {another}"
            ) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise BackendUnavailable(
                f"the folder for WebAssembly guests, {self.folder}, cannot be used: {reason}; {another}"
            ) from None

    def find(self, key: str) -> StoreEntry | None:
        """Return the entry of this name if its seal is valid; removes a damaged entry and returns None."""
        path = self._path(key)
        try:
            mark = self._mark(path)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used now, for ``prune``
        known = self._verified.get(key)
        if known is not None and known[0] == mark:
            return known[1]
        entry = self._verify(key, path)
        if entry is None:
            self.remove(key)
            return None
        self._verified[key] = (mark, entry)
        return entry

    def add(self, key: str, files: Mapping[str, bytes]) -> StoreEntry:
        """Add an entry. If another process added it first, returns that one."""
        path = self._path(key)
        aside = os.path.join(self.folder, f".new-{os.getpid()}-{secrets.token_hex(8)}")
        os.mkdir(aside)
        try:
            hashes = {}
            for name, data in files.items():
                file = os.path.join(aside, self._checked_file(name))
                os.makedirs(os.path.dirname(file), exist_ok=True)
                self._write(file, data)
                hashes[name] = hashlib.sha256(data).hexdigest()
            seal = json.dumps({"files": hashes, "seal": self._seal(key, hashes)}, sort_keys=True)
            self._write(os.path.join(aside, SEAL), seal.encode())
            # Readable by all users, in a folder that only its owner can enter: jails that run as another user
            # read entries through a mount.
            for folder, _, _ in os.walk(aside):
                os.chmod(folder, 0o755)
            # Renaming fails when another process made the entry; that one is verified below.
            with contextlib.suppress(OSError):
                os.rename(aside, path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        entry = self.find(key)
        if entry is None:
            raise BackendUnavailable(f"the store in {self.folder} does not keep what is put there; is the disk full?")
        return entry

    def remove(self, key: str) -> None:
        """Remove an entry. Jails that have mounted it can use it until they end."""
        self._verified.pop(key, None)
        aside = os.path.join(self.folder, f".old-{os.getpid()}-{secrets.token_hex(8)}")
        with contextlib.suppress(OSError):
            os.rename(self._path(key), aside)
        if os.path.islink(aside) or os.path.isfile(aside):
            os.unlink(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def names(self) -> list[str]:
        """Return the names of all entries without verifying them."""
        return sorted(name for name in os.listdir(self.folder) if _NAME.match(name))

    def prune(self, prefix: str, most_bytes: int) -> None:
        """Remove the least recently used entries with this prefix above so many bytes, which ``prepare.py`` names."""
        seen: list[tuple[float, int, str]] = []
        for key in self.names():
            if key.startswith(prefix):
                with contextlib.suppress(OSError):
                    folder = self._path(key)
                    size = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))
                    seen.append((os.stat(folder).st_mtime, size, key))
        total = sum(size for _, size, _ in seen)
        for _, size, key in sorted(seen):
            if total <= most_bytes:
                return
            self.remove(key)
            total -= size

    def _path(self, key: str) -> str:
        if not _NAME.match(key):
            raise ValueError(f"{key!r} is no name for the store")
        return os.path.join(self.folder, key)

    @staticmethod
    def _checked_file(name: str) -> str:
        if name == SEAL or "\0" in name or {"", ".", ".."} & {*name.split("/")}:
            raise ValueError(f"{name!r} is no name for a file of the store")
        return name

    def _load_secret(self) -> bytes:
        """Return the key of this folder; makes one where there is none, which makes every older seal invalid."""
        secret = self._secret_there()
        if secret is None:
            with LockedFolder.alone(self.folder):
                secret = self._secret_there()
                if secret is None:
                    OwnFiles(self.folder).write(_KEY, secrets.token_bytes(_KEY_BYTES))
                    secret = self._secret_there()
        if secret is None:
            raise OSError("its key cannot be kept; is the disk full?")
        return secret

    def _secret_there(self) -> bytes | None:
        secret = OwnFiles(self.folder).read(_KEY, _KEY_BYTES)
        return secret if secret is not None and len(secret) == _KEY_BYTES else None

    def _seal(self, key: str, hashes: Mapping[str, str]) -> str:
        text = json.dumps([key, sorted(hashes.items())])
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    @staticmethod
    def _mark(path: str) -> tuple[object, ...]:
        """Return a value that changes when a file of the entry is replaced or rewritten."""
        marks: list[object] = [os.lstat(path).st_ino]
        for name in _files_below(path):
            status = os.lstat(os.path.join(path, name))
            marks.append((name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        return tuple(marks)

    def _verify(self, key: str, path: str) -> StoreEntry | None:
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                return None
            with open(self._own(os.path.join(path, SEAL)), "rb") as file:
                document = json.loads(file.read(_MOST_SEAL_BYTES))
            hashes = document["files"]
            if not hmac.compare_digest(str(document["seal"]), self._seal(key, hashes)):
                return None
            if set(_files_below(path)) != {SEAL, *hashes}:
                return None
            for name, wanted in hashes.items():
                with open(self._own(os.path.join(path, self._checked_file(name))), "rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
                        return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return StoreEntry(path, MappingProxyType(dict(hashes)))

    @staticmethod
    def _own(path: str) -> int:
        """Open a plain file of this user; refuses a link and a file with a second name."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
            os.close(descriptor)
            raise OSError(f"{path} is not a plain file of this user")
        return descriptor

    @staticmethod
    def _write(path: str, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(data)


def _files_below(path: str, below: str = "") -> list[str]:
    """Return the paths of all files below a folder; a link counts as a file."""
    found = []
    for entry in sorted(os.scandir(os.path.join(path, below)), key=lambda e: e.name):
        name = os.path.join(below, entry.name)
        found += _files_below(path, name) if entry.is_dir(follow_symlinks=False) else [name]
    return found
