"""Keeps wheels of pure Python where programs inside WebAssembly import them.

A wheel is hostile input. Nothing of it is read here but its name: the Python inside imports from the archive.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted

#: Most wheels, and bytes of all of them.
MOST_WHEELS, MOST_BYTES = 100, 256 << 20
#: Most bytes of wheels in the store; the least recently used go first.
_MOST_KEPT_BYTES = 1 << 30
_FILE_NAME = re.compile(
    r"[A-Za-z0-9._]+-[A-Za-z0-9._+!]+(-\d[^-]*)?"
    r"-(?P<python>[A-Za-z0-9._]+)-(?P<abi>[A-Za-z0-9._]+)-(?P<platform>[A-Za-z0-9._]+)\.whl\Z"
)


@dataclass(frozen=True)
class Wheels:
    """Wheels by their file names."""

    files: Mapping[str, bytes]

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of all wheels."""
        listed = [(name, hashlib.sha256(data).hexdigest()) for name, data in sorted(self.files.items())]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def read_wheels(paths: Iterable[str | os.PathLike[str]]) -> Wheels | None:
    """Read wheels, and all of a folder; None when there are none. Raises ``InvalidRequest`` for what cannot be used."""
    if isinstance(paths, str | bytes | os.PathLike):
        raise InvalidRequest(f"wheels takes a list of files and folders, got {quoted(paths)}; write [{paths!r}]")
    found: list[str] = []
    for given in paths:
        if not isinstance(given, str | os.PathLike) or not os.fspath(given) or "\0" in str(given):
            raise InvalidRequest(f"a wheel is the path of a file or folder, got {quoted(given)}")
        path = os.path.expanduser(os.fspath(given))
        inside = sorted(name for name in os.listdir(path) if name.endswith(".whl")) if os.path.isdir(path) else [""]
        if not inside:
            raise InvalidRequest(f"the folder {quoted(path)} has no wheels; a wheel's name ends with .whl")
        found += [os.path.join(path, name).rstrip("/") for name in inside]
    if len(found) > MOST_WHEELS:
        raise InvalidRequest(f"{len(found)} wheels were given; at most {MOST_WHEELS} are taken")
    files: dict[str, bytes] = {}
    for path in dict.fromkeys(found):
        name = os.path.basename(path)
        _check_name(name)
        data = _content(path, MOST_BYTES - sum(map(len, files.values())))
        if files.setdefault(name, data) != data:
            raise InvalidRequest(f"two different wheels are called {name}; leave one of them out")
    return Wheels(files) if files else None


def _check_name(name: str) -> None:
    parts = _FILE_NAME.match(name)
    if parts is None:
        raise InvalidRequest(f"{quoted(name)} is no wheel; a wheel is called NAME-VERSION-py3-none-any.whl")
    pure = parts["abi"] == "none" and parts["platform"] == "any"
    if not pure or not any(re.match(r"py3(\d+)?\Z", tag) for tag in parts["python"].split(".")):
        raise InvalidRequest(
            f"{name} is built for {parts['python']}-{parts['abi']}-{parts['platform']}, and WebAssembly runs only pure "
            "Python (py3-none-any); numpy and pandas are in the large Python: sandbox-kernel prepare science"
        )


def _content(path: str, most: int) -> bytes:
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            data = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError as error:
        raise InvalidRequest(f"the wheel {quoted(path)} cannot be read: {error.strerror}") from None
    if not data.startswith(b"PK") or len(data) > most:
        raise InvalidRequest(f"{quoted(path)} is no archive, or all wheels have more than {MOST_BYTES >> 20} MB")
    return data


def kept_wheels(store: WasmStore, wheels: Wheels) -> StoreEntry:
    """Return the folder of the store with these wheels; it is kept by its content."""
    name = f"wheels-{wheels.digest[:40]}"
    found = store.find(name)
    if found is None:
        store.prune("wheels-", _MOST_KEPT_BYTES)
        found = store.add(name, wheels.files)
    return found


def wheels_mark(wheels: Wheels | None) -> str:
    """Return the part of a saved session's digest that names its wheels."""
    return f" wheels {wheels.digest}" if wheels is not None else ""
