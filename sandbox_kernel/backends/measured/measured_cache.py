"""Caches measurements until the next boot, because running the canaries takes seconds.

The name of an entry is a digest of everything that the measurement depends on (``measured_key.py``), so no entry is
outdated. Entries are files in a private folder. An entry that is damaged, or that another user could have written, is
ignored.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import secrets
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.backends.checks import selecting_variables
from sandbox_kernel.backends.measured.canaries import Measurement
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.ground.own_folder import cache_root, make_own_folder
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies, groups_at_start, shortfall
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.policy.gpu import gpu_devices

if TYPE_CHECKING:
    from sandbox_kernel.backends.process import ProcessBackend


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


# The key of a cached measurement: a digest of everything that the measurement depends on.
#
# A report says what is enforced in *this* process. The key therefore covers facts of the machine, the user, the process
# and our own code. A missing fact would show an outdated measurement, and one too many only costs a new measurement, so
# doubtful facts are included.

#: Kernel settings that walls and limits depend on; a missing setting counts as absent.
SETTINGS = (
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_unconfined",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/proc/sys/kernel/io_uring_disabled",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/seccomp/actions_avail",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/fs/pipe-user-pages-soft",
    "/proc/sys/fs/suid_dumpable",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/overcommit_ratio",
    "/proc/sys/vm/memfd_noexec",
    "/sys/kernel/security/lsm",
    "/proc/self/attr/current",
)
#: Lines of /proc/self/status: capabilities of the process, and restrictions that it already has.
STATUS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Seccomp", "Seccomp_filters", "NoNewPrivs", "Umask")
#: Mounts whose type and options a sandbox depends on.
_MOUNTS = ("/", "/proc", "/sys", "/dev", "/dev/shm", "/tmp", "/run", "/sys/fs/cgroup")


def fingerprint(backend: ProcessBackend) -> str:
    """Return a digest of the facts; empty when the system has no boot id."""
    found = facts(backend)
    if not found["boot"]:
        return ""
    return hashlib.sha256(json.dumps(found, sort_keys=True, default=str).encode()).hexdigest()


def facts(backend: ProcessBackend) -> Mapping[str, object]:
    """Return everything that a measurement depends on, by name."""
    return {
        "boot": read_fact("/proc/sys/kernel/random/boot_id"),
        "kernel": list(platform.uname()),
        "settings": {path: read_fact(path) for path in (*SETTINGS, *sorted(glob.glob("/proc/sys/user/max_*")))},
        "landlock": landlock_abi(),
        "swap": [line.split()[0] for line in read_fact("/proc/swaps").splitlines()[1:]],
        "mounts": _mounts(read_fact("/proc/self/mountinfo")),
        "user": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        "process": _status(read_fact("/proc/self/status")),
        "namespaces": {name: _link(f"/proc/self/ns/{name}") for name in _names("/proc/self/ns")},
        "rlimits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if _is_rlimit(name)},
        "variables": selecting_variables(),
        "groups": _groups(),
        "enforcer": None if backend.enforcer is None else asdict(backend.enforcer),
        "bubblewrap": _bubblewrap(),
        "policy": backend.policy.to_json(),
        "config": asdict(backend.config),
        "gpu": gpu_devices(),
        "python": [sys.executable, sys.version, _guest_python(backend.config.python_path)],
        "package": [_version(), _own_code()],
    }


def code_digest(package: Path) -> str:
    """Return a digest of all files of a package, so that a change of the code causes a new measurement."""
    found = []
    for folder, inner, names in os.walk(package):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            info = os.stat(os.path.join(folder, name))
            found.append((os.path.relpath(folder, package), name, info.st_size, info.st_mtime_ns))
    return hashlib.sha256(repr((str(package), found)).encode()).hexdigest()


@functools.lru_cache(maxsize=1)
def _own_code() -> str:
    return code_digest(Path(__file__).resolve().parents[2])


def read_fact(path: str) -> str:
    """Return the text of a kernel file; empty when it does not exist or cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _groups() -> object:
    """Return the parents of this process's control groups; the names of its own groups are new in each process."""
    where = find_hierarchies()
    if where is None:
        return [groups_at_start(), shortfall()]
    places = [
        None if folder is None else os.path.dirname(folder) for folder in (where.memory, where.pids, where.unified)
    ]
    return [groups_at_start(), where.version, places, where.notes]


def _mounts(mountinfo: str) -> list[list[str]]:
    wanted = {*_MOUNTS, os.path.realpath(tempfile.gettempdir())}
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if fields[4] in wanted:
            found.append([*fields[3:6], *after.split()])
    return found


def _status(text: str) -> dict[str, str]:
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: lines[name].strip() for name in STATUS if name in lines}


def _is_rlimit(name: str) -> bool:
    return name.startswith("RLIMIT_")


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _bubblewrap() -> object:
    try:
        return _program(bubblewrap.find_bwrap())
    except (SandboxError, OSError):
        return None


def _guest_python(name: str) -> object:
    try:
        return _program(find_python(name).executable)
    except (SandboxError, OSError):
        return None


def _program(path: str) -> list[object]:
    info = os.stat(path)
    return [path, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_mode]


def _version() -> str:
    try:
        return importlib.metadata.version("sandbox-kernel")
    except importlib.metadata.PackageNotFoundError:
        return ""
