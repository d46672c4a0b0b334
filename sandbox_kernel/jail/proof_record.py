"""Remembers until the next boot that an enforcer built walls here, so that new processes need not build some to know.

An entry holds everything that the outcome depends on, and counts only where all of it is the same. It decides nothing
but which enforcer is tried: walls that do not come up are an error, and then the entry is removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

from sandbox_kernel.ground.own_folder import cache_root, make_own_folder

_MAX_BYTES = 1 << 16
#: Kernel settings that decide whether walls can be built.
_SETTINGS = (
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/user/max_net_namespaces",
    "/proc/sys/user/max_pid_namespaces",
    "/proc/self/attr/current",
)
_STATUS = ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs")


def proof_facts(programs: Iterable[str]) -> str | None:
    """Return what the outcome of building walls depends on, as text; None where that cannot be known.

    A process behind a system call filter cannot see what the filter refuses. ``programs`` are the files that take part:
    the enforcer's program, the interpreter inside, the modules that make its arguments.
    """
    status = dict(line.split(":\t", 1) for line in read_fact("/proc/self/status").splitlines() if ":\t" in line)
    boot = read_fact("/proc/sys/kernel/random/boot_id")
    if not boot or status.get("Seccomp") != "0":
        return None
    facts = [boot, *map(read_fact, _SETTINGS), *(status.get(name) for name in _STATUS)]
    facts += [read_link(f"/proc/self/ns/{name}") for name in ("user", "mnt", "pid", "net", "ipc", "uts")]
    return repr([*facts, *map(file_facts, programs)])


def recall_proof(enforcer: str, facts: str | None) -> str | None:
    """Return the version of an enforcer that built walls under these facts; None if that is not known."""
    try:
        fd = os.open(_entry(enforcer), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with open(fd, errors="replace") as file:
        kind = os.fstat(fd)
        if not stat.S_ISREG(kind.st_mode) or kind.st_uid != os.geteuid() or kind.st_mode & 0o077:
            return None
        version, _, known = file.read(_MAX_BYTES).partition("\n")
    return version if facts is not None and known == facts else None


def remember_proof(enforcer: str, facts: str | None, version: str) -> None:
    """Keep that an enforcer built walls. A folder that cannot be used is ignored; the next process then tries again."""
    if facts is None:
        return
    aside = f"{_entry(enforcer)}-{os.urandom(8).hex()}"
    with contextlib.suppress(OSError):
        make_own_folder(os.path.dirname(aside))
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "w", errors="replace") as file:
                file.write(f"{version.splitlines()[0]}\n{facts}")
            os.rename(aside, _entry(enforcer))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(aside)


def forget_proof(enforcer: str) -> None:
    """Let the next process try this enforcer anew."""
    with contextlib.suppress(OSError):
        os.unlink(_entry(enforcer))


def _entry(enforcer: str) -> str:
    return os.path.join(cache_root(), "sandbox-kernel", "proven", enforcer)


def read_fact(path: str) -> str:
    """Return the text of a kernel file; empty when it does not exist or cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_link(path: str) -> str:
    """Return where a link of the kernel leads; empty when there is none, as for a namespace of no child yet."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def file_facts(path: str) -> list[object]:
    """Return what tells one version of a file from another."""
    try:
        found = os.stat(path)
    except OSError:
        return [path]
    return [path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]
