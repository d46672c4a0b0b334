"""Keeps measurements until the next boot: running the canaries takes seconds. An unreadable entry counts as none."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import platform
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.backends.checks import selecting_variables
from sandbox_kernel.backends.probes.canaries import Measurement
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies, groups_at_start, shortfall
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.proof_record import file_facts, read_fact, read_link
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.policy.gpu import gpu_devices
from sandbox_kernel.util.own_folder import OwnFiles, cache_root
from sandbox_kernel.util.wire import BadMessage, decode

if TYPE_CHECKING:
    from sandbox_kernel.backends.process import ProcessBackend

#: Most entries; the oldest are removed.
MAX_ENTRIES = 50
_MOST_BYTES = 1 << 20
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
#: Beginnings of lines of /proc/self/status: capabilities of the process, and restrictions that it already has.
STATUS = ("Cap", "Seccomp", "NoNewPrivs", "Umask")
#: Mounts whose type and options a sandbox depends on.
_MOUNTS = ("/", "/proc", "/sys", "/dev", "/dev/shm", "/tmp", "/run", "/sys/fs/cgroup")


@dataclass(frozen=True)
class Measured:
    """The measurements, and their time."""

    lines: tuple[Measurement, ...]
    at: float


def cache_folder() -> str:
    """Return the folder of entries, below the user's cache folder."""
    return os.path.join(cache_root(), "sandbox-kernel", "measured")


def _files() -> OwnFiles:
    return OwnFiles(cache_folder(), most_files=MAX_ENTRIES)


def recall(key: str) -> Measured | None:
    """Return the measurements with this fingerprint; None when there are none."""
    found = _files().read(key, _MOST_BYTES) if key else None
    try:
        return None if found is None else decode(found, Measured)
    except BadMessage:
        return None


def remember(key: str, measured: Measured) -> None:
    """Store measurements. A folder that cannot be used is ignored; the next report then measures again."""
    if key:
        _files().write(key, json.dumps(asdict(measured)).encode())


def fingerprint(backend: ProcessBackend) -> str:
    """Return a digest of all that a measurement depends on: machine, user, process, code; empty without a boot."""
    boot = read_fact("/proc/sys/kernel/random/boot_id")
    if not boot:
        return ""
    # Doubtful facts are included: one too many costs a new measurement, a missing one would show an outdated one.
    status = read_fact("/proc/self/status").splitlines()
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    facts = {
        "boot": boot,
        "kernel": list(platform.uname()),
        "settings": {path: read_fact(path) for path in (*SETTINGS, *sorted(glob.glob("/proc/sys/user/max_*")))},
        "landlock": landlock_abi(),
        "swap": [line.split()[0] for line in read_fact("/proc/swaps").splitlines()[1:]],
        "mounts": _mounts(read_fact("/proc/self/mountinfo")),
        "user": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        "process": [line for line in status if line.startswith(STATUS)],
        "namespaces": {path: read_link(path) for path in sorted(glob.glob("/proc/self/ns/*"))},
        "rlimits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "variables": selecting_variables(),
        "groups": _groups(),
        "enforcer": None if backend.enforcer is None else asdict(backend.enforcer),
        "bubblewrap": _program(bubblewrap.find_bwrap),
        "policy": backend.policy.to_json(),
        "config": asdict(backend.config),
        "gpu": gpu_devices(),
        "python": [
            sys.executable, sys.version, _program(lambda: find_python(backend.config.python_path).executable)
        ],
        "package": code_digest(Path(__file__).resolve().parents[2]),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


@functools.lru_cache(maxsize=1)
def code_digest(package: Path) -> str:
    """Return a digest of all files of a package, so that a change of the code causes a new measurement."""
    found = []
    for folder, inner, names in os.walk(package):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            info = os.stat(os.path.join(folder, name))
            found.append((os.path.relpath(folder, package), name, info.st_size, info.st_mtime_ns))
    return hashlib.sha256(repr((str(package), found)).encode()).hexdigest()


def _groups() -> object:
    """Return the parents of this process's control groups; the names of its own groups are new in each process."""
    where = find_hierarchies()
    if where is None:
        return [groups_at_start(), shortfall()]
    places = [folder and os.path.dirname(folder) for folder in (where.memory, where.pids, where.unified)]
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


def _program(find: Callable[[], str]) -> object:
    try:
        return file_facts(find())
    except SandboxError:
        return None
