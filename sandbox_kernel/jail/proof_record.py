"""Remembers until the next boot that an enforcer built walls here, so that new processes need not build some to know.

An entry holds everything that the outcome depends on, and counts only where all of it is the same. It decides nothing
but which enforcer is tried: walls that do not come up are an error, and then the entry is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sandbox_kernel.util.own_folder import OwnFiles, cache_root

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
    version, _, known = (_files().read(enforcer, _MAX_BYTES) or b"").decode(errors="replace").partition("\n")
    return version if facts is not None and known == facts else None


def remember_proof(enforcer: str, facts: str | None, version: str) -> None:
    """Keep that an enforcer built walls. A folder that cannot be used is ignored; the next process then tries again."""
    if facts is not None:
        _files().write(enforcer, f"{version.splitlines()[0]}\n{facts}".encode(errors="replace"))


def forget_proof(enforcer: str) -> None:
    """Let the next process try this enforcer anew."""
    _files().remove(enforcer)


def _files() -> OwnFiles:
    return OwnFiles(os.path.join(cache_root(), "sandbox-kernel", "proven"))


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
