"""What was measured on this host, kept until the next boot: attacking ourselves takes seconds, and little changes.

The name of an entry is a digest of everything that the answer depends on: the boot, the kernel, who we are, the walls
and their program, the control groups, the policy, the interpreter, and our own code. So no entry is stale; what does
change without a trace (a setting of the kernel) is why a report can be measured again. Entries are files of ours in a
folder that is ours alone. One that is damaged, or that anybody else could have written, counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import secrets
import stat
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.backends.measured.canaries import Measurement
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.meter.cgroup import find_hierarchies
from sandbox_kernel.jail.rules import bubblewrap

if TYPE_CHECKING:
    from sandbox_kernel.backends.process import ProcessBackend

MAX_BYTES = 1 << 20
#: More kinds of walls than this are not remembered; the oldest go.
MAX_ENTRIES = 50
_FORM = {field.name for field in fields(Measurement)}


@dataclass(frozen=True)
class Measured:
    """The lines, and when they were measured."""

    lines: tuple[Measurement, ...]
    at: float


def cache_folder() -> str:
    """Below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "sandbox-kernel", "measured")


def fingerprint(backend: ProcessBackend) -> str:
    """A digest of what the canaries' answers depend on; empty where no boot can be told from another."""
    boot = _boot()
    if not boot:
        return ""
    groups = find_hierarchies()
    facts: Mapping[str, object] = {
        "boot": boot,
        "kernel": list(platform.uname()),
        "user": [os.geteuid(), os.getegid(), *sorted(os.getgroups())],
        "capabilities": _capabilities(),
        "enforcer": None if backend.enforcer is None else [backend.enforcer.name, backend.enforcer.version],
        "bubblewrap": _bubblewrap(),
        "groups": None
        if groups is None
        else [groups.version, *map(bool, (groups.memory, groups.pids, groups.unified))],
        "policy": backend.policy.to_json(),
        "config": asdict(backend.config),
        "python": [sys.executable, sys.version],
        "package": [_version(), _own_code()],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def recall(key: str) -> Measured | None:
    """What was measured under this fingerprint, if it is known and surely ours."""
    if not key:
        return None
    try:
        fd = os.open(os.path.join(_folder(), key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        kind = os.fstat(fd)
        ours = stat.S_ISREG(kind.st_mode) and kind.st_uid == os.geteuid() and not kind.st_mode & 0o077
        if not ours or kind.st_size > MAX_BYTES:
            return None
        content = file.read(MAX_BYTES)
    return _unpacked(key, content)


def remember(key: str, measured: Measured) -> None:
    """Keep it; a folder that cannot be used is no error, it only makes the next report slower."""
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
    """The folder, made if need be; OSError when it is not ours alone."""
    folder = cache_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    kind = os.lstat(folder)
    if not stat.S_ISDIR(kind.st_mode) or kind.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a folder of ours")
    if kind.st_mode & 0o077:
        os.chmod(folder, 0o700)
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


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _bubblewrap() -> object:
    try:
        path = bubblewrap.find_bwrap()
        info = os.stat(path)
    except (SandboxError, OSError):
        return None
    return [path, info.st_ino, info.st_size, info.st_mtime_ns, info.st_mode]


def _capabilities() -> str:
    """What the host's process may do beyond its uid, and whether a filter stands around it already."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return " ".join(line for line in lines if line.startswith(("CapEff", "CapBnd", "Seccomp:", "NoNewPrivs")))


def _version() -> str:
    try:
        return importlib.metadata.version("sandbox-kernel")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _own_code() -> str:
    """Changes with our own files, so that whoever works on them measures what they wrote."""
    package = Path(__file__).resolve().parents[1]
    found = sorted(
        path for room in ("jail", "guest", "backends", "languages") for path in (package / room).rglob("*.py")
    )
    stats = [(path.name, info.st_size, info.st_mtime_ns) for path in found for info in (path.stat(),)]
    return hashlib.sha256(repr((str(package), stats)).encode()).hexdigest()
