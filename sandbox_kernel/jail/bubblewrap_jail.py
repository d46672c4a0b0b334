"""A jail behind bubblewrap: it has namespaces, and the gate is their init. When the init ends, every process ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from sandbox_kernel.errors import EnforcerUnavailable, PolicyViolation
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.accounting.meter import MAX_INODES, Disk
from sandbox_kernel.jail.accounting.processes import read_once, tree
from sandbox_kernel.jail.guest_programs import guest_folder, memory_file, start_of
from sandbox_kernel.jail.jail import DEATH_TIMEOUT_S, Jail
from sandbox_kernel.jail.root_user import is_closed, package_of, plan_stage, reachable_by_all
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.rules.bubblewrap import NAME, bubblewrap_args, find_bwrap
from sandbox_kernel.jail.spawner import SpawnOrder, viewed_places
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.jail.walls import CELL, GUEST, HERE, TMP, WORK, Places, Walls
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import own_places, written_place
from sandbox_kernel.util.linux_calls import closed_after, memfd_create
from sandbox_kernel.workspace.given_grants import exchanged
from sandbox_kernel.workspace.tree.beneath import mount_of

#: TCP connections of one jail. Each that its program has not accepted may hold 128 KB, which no control group counts
#: and which the machine has only so much of (``net.ipv4.tcp_mem``).
MAX_SOCKETS = 2000
_SOCKETS_S = 0.2

_OTHER_PLACE = (
    "programs may write there and may have put it in the way; remove it, or choose a place outside of what they may "
    "write to"
)


class NamespaceJail(Jail):
    """A jail with its own root: the work folder is a file system, and every process ends with the init."""

    places = Places()
    forks_ahead = True
    _next_look = 0.0

    def _open_box(self) -> int:
        """See ``Jail``. The descriptor stays valid after the namespace is gone."""
        for place in () if self.meter.exact else (TMP, "/dev/shm", CELL):
            self.more_fds.append(self._opened(place))
        return self._opened(WORK)

    def _opened(self, place: str) -> int:
        return os.open(f"/proc/{self.init_pid}/root{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def kill(self) -> None:
        """See ``Jail``. A child that bubblewrap has not set up yet does not die with it, so it is killed too."""
        if self.init_fd < 0 and self.starter is not None and self.starter.poll() is None:
            self.starter.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.starter.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            for pid in tree(self.starter.pid)[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        super().kill()

    def abandon(self) -> Callable[[], None] | None:
        """See ``Jail``. The kernel ends every process with the init, so nothing has to be waited for."""
        if self._dead or self.init_fd < 0:
            return None
        self.kill()
        init, self.init_fd = self.init_fd, -1
        self.forget()

        def rest() -> None:
            readable(init, DEATH_TIMEOUT_S)
            os.close(init)
            self.wait_dead()
            self._clear_away()

        return rest

    def disk(self, *, last: bool = False) -> Disk:
        """See ``Jail``. The work folder is a file system: the kernel limits its size, not the number of files."""
        box, *more = [os.fstatvfs(fd) for fd in (self.box_fd, *self.more_fds)]
        too_many = sum(each.f_files - each.f_ffree for each in (box, *more)) > MAX_INODES
        return Disk(full=too_many or box.f_bavail == 0, over=too_many)

    def has_too_many_sockets(self) -> bool:
        """See ``Jail``. The network is the jail's own. To ask costs as much as all other limits do."""
        found, now = 0, time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _SOCKETS_S
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ends just now
            for name in ("sockstat", "sockstat6"):
                found += int(read_once(f"/proc/{self.init_pid}/net/{name}").partition(b": inuse")[2].split(None, 1)[0])
        return found > MAX_SOCKETS


class BubblewrapJail(NamespaceJail):
    """A jail that bubblewrap builds: walls, then an interpreter inside."""

    #: The guest program that becomes the init.
    program = "gate.gate"

    def __init__(self, walls: Walls) -> None:
        super().__init__(walls)
        self._info_fd = -1
        #: The walls with everything that bubblewrap mounts.
        self._shown = walls
        self._launch()

    def _command(self, control: int, channel: int) -> SpawnOrder:
        walls = self._shown = _with_runtime_kept(self.walls)
        _check_places((*walls.runtime, *walls.grants))
        self._info_fd, info_fd = os.pipe2(os.O_CLOEXEC)
        self._child_fds.append(info_fd)
        filter_fd, passed = self._filter()
        own = [fd for fd in (filter_fd, *passed) if fd is not None]
        self._child_fds.extend(own)
        inner = [
            walls.interpreter, "-I", "-S", "-u", "-B", "-c", start_of(self.program), GUEST,
            str(control), str(channel), *map(str, passed), *walls.preload,
        ]  # fmt: skip
        command = _bubblewrap_command(walls, self.uid, filter_fd, info_fd, inner, self._child_fds)
        return replace(command, pass_fds=(info_fd, *own, *command.pass_fds))

    def _filter(self) -> tuple[int | None, tuple[int, ...]]:
        """Return the filter for bubblewrap to load, and descriptors to pass to the init."""
        program = seccomp.build_namespace_filter(bool(self.walls.grants), self.walls.serves)
        return memory_file("filter", program), ()

    def _find_init(self, deadline: float) -> int:
        text = b""
        while not text.rstrip().endswith(b"}"):
            self._wait_readable(self._info_fd, deadline)
            part = os.read(self._info_fd, 4096)
            if not part:
                raise EOFError("bubblewrap ended before it made the sandbox")
            text += part
        os.close(self._info_fd)
        self._info_fd = -1
        return int(json.loads(text)["child-pid"])

    def _read_ready(self, deadline: float) -> None:
        """See ``Jail``. Bubblewrap resolves paths once more, so what it mounted is compared with what was granted.

        Each grant is a mount of its own: a program of another sandbox may have put the granted folder beside its mount.
        """
        super()._read_ready(deadline)
        grants = sorted(self._shown.grants, key=lambda grant: grant.target.count("/"))
        shown = {grant.target: (grant.source, grant.identity) for grant in grants}
        if self._shown.here is not None:
            shown[HERE] = self._shown.here, self._shown.here_id
        if not shown:
            return
        inside = f"/proc/{self.init_pid}"
        with open(f"{inside}/mountinfo") as file:
            mounts = {line.split()[0] for line in file}
        for target, (source, identity) in shown.items():
            try:
                fd = os.open(f"{inside}/root{target}", os.O_PATH | os.O_CLOEXEC)
            except OSError:
                raise PolicyViolation(f"{source!r} cannot be shown at {target!r}: {_OTHER_PLACE}") from None
            with closed_after(fd):
                found, mount = os.fstat(fd), mount_of(fd)[1].split()[1]
            if identity is not None and (identity != (found.st_dev, found.st_ino) or mount not in mounts):
                raise exchanged(source)
            mounts.discard(mount)

    def forget(self) -> None:
        """See ``Jail``."""
        super().forget()
        if self._info_fd >= 0:
            os.close(self._info_fd)
            self._info_fd = -1


def _check_places(mounts: Iterable[Grant]) -> None:
    """Raise ``PolicyViolation`` for a link in a mount on the way to a place: it would be made where that leads."""
    by_target = {mount.target: mount for mount in mounts}
    for target in by_target:
        parts = target.split("/")
        above = ("/".join(parts[:depth]) for depth in range(len(parts) - 1, 1, -1))
        around = next((by_target[each] for each in above if each in by_target), None)
        if around is None:
            continue
        path = around.source
        for name in target.removeprefix(f"{around.target}/").split("/"):
            path = f"{path}/{name}"
            # In what was never writable only the user puts links.
            if os.path.islink(path) and (around.writable or written_place(path)):
                raise PolicyViolation(f"nothing can be shown at {target!r}: {path!r} is a link there; {_OTHER_PLACE}")


def _with_runtime_kept(walls: Walls) -> Walls:
    """Return the walls with mounts that keep programs from exchanging what the host runs through a writable grant.

    What lies inside such a grant is shown read-only there too. The folders on the way to it become mounts of their own,
    because a mount point cannot be renamed: the next start would take what a program has put in its place.
    """
    kept: dict[str, Grant] = {}
    writable = [grant for grant in walls.grants if grant.writable]
    places = {*(own.source for own in walls.runtime), *own_places([grant.source for grant in writable])}
    places -= {place for place in places for around in places if place.startswith(f"{around}/")}
    for grant in writable:
        for own in (place for place in places if place.startswith(f"{grant.source}/")):
            names = own.removeprefix(f"{grant.source}/").split("/")
            for depth in range(1, len(names) + 1):
                part = "/".join(names[:depth])
                info = os.lstat(f"{grant.source}/{part}")
                identity, target = (info.st_dev, info.st_ino), f"{grant.target}/{part}"
                kept[target] = Grant(f"{grant.source}/{part}", target, depth < len(names), identity)
    shown = {grant.target for grant in (*walls.runtime, *walls.grants)}
    return replace(walls, grants=(*walls.grants, *(grant for grant in kept.values() if grant.target not in shown)))


def _bubblewrap_command(
    walls: Walls, uid: int | None, filter_fd: int | None, info_fd: int, inner: list[str], opened: list[int]
) -> SpawnOrder:
    """Return the command that builds the walls, and the descriptors that carry its arguments.

    If the host is root, the unprivileged user of the jail may not reach the paths that are to be shown. Then a view
    shows them elsewhere, or, if the policy allows root's own files, a stage maps their owner. Each descriptor is added
    to ``opened`` as soon as it is open, because a later step may fail.
    """
    guest, bwrap = guest_folder(), find_bwrap()
    if uid is None and os.geteuid() == 0:
        raise EnforcerUnavailable(
            NAME,
            "root can become no other user here, and behind bubblewrap a program must not be root; start as an "
            "ordinary user, or with the usual capabilities and with more than one user mapped into this namespace",
        )
    shared = [guest, *(grant.source for grant in walls.runtime)]
    here = [] if walls.here is None else [walls.here]
    granted = [*(grant.source for grant in walls.grants), *here]
    args_fd = memfd_create("arguments")
    opened.append(args_fd)

    def write_args(sources: dict[str, str] | None) -> None:
        args = bubblewrap_args(walls, guest_dir=guest, seccomp_fd=filter_fd, info_fd=info_fd, sources=sources)
        if find_hierarchies() is None:  # shared mappings of zeros are memory that nobody counts; this cannot be mapped
            args += ["--dev-bind", "/dev/full", "/dev/zero"]
        os.write(args_fd, b"\0".join(map(os.fsencode, args)) + b"\0")
        os.lseek(args_fd, 0, os.SEEK_SET)

    if uid is None or (not granted and all(reachable_by_all(path) for path in (*shared, bwrap))):
        write_args(None)
        return SpawnOrder([bwrap, "--args", str(args_fd), "--", *inner], (args_fd,), uid=uid)
    package = package_of(bwrap)
    closed = frozenset(path for path in (*shared, package or bwrap) if is_closed(path))
    # Paths that other users cannot read need the stage, which maps their owner for one sandbox. All share the view.
    view = viewed_places([*shared, package or bwrap]) if not granted and not closed else None
    if view is not None:
        write_args(view)
        program = view[bwrap] if package is None else view[package] + bwrap.removeprefix(package)
        return SpawnOrder([program, "--args", str(args_fd), "--", *inner], (args_fd,), uid=uid, view=view)
    known = {**dict.fromkeys(here, walls.here_id), **{grant.source: grant.identity for grant in walls.grants}}
    plan, sources = plan_stage(
        uid, shared, granted, bwrap, args_fd, closed=closed, alone=frozenset(here), identities=known
    )
    write_args(sources)
    plan_fd = memory_file("plan", plan)
    opened.append(plan_fd)
    start = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", start_of("root.root_stage")]
    return SpawnOrder([*start, guest, str(plan_fd), "--", *inner], (args_fd, plan_fd))
