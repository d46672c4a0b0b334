"""A jail behind bubblewrap: namespaces of its own, whose init is the gate. The init's end is the end of all in it."""

from __future__ import annotations

import json
import os
import sys

from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail import seccomp
from sandbox_kernel.jail.bubblewrap import NAME, bubblewrap_args, find_bwrap
from sandbox_kernel.jail.disk import Disk, of_file_system
from sandbox_kernel.jail.jail import Jail, guest_folder, memory_file, start_of
from sandbox_kernel.jail.root_plan import plan_stage, reachable_by_all
from sandbox_kernel.jail.walls import GUEST, WORK, Places, Walls


class BubblewrapJail(Jail):
    """Walls, then an interpreter inside them."""

    places = Places()

    def __init__(self, walls: Walls) -> None:
        super().__init__(walls)
        self._info_fd = -1
        self._launch()

    def _command(self, control: int, channel: int) -> tuple[list[str], int | None, tuple[int, ...]]:
        """See ``Jail``."""
        walls = self.walls
        self._info_fd, info_fd = os.pipe2(os.O_CLOEXEC)
        self._theirs.append(info_fd)
        # A unix socket of the host can be spoken to although its folder is shown read-only.
        families = seccomp.INTERNET if walls.grants else seccomp.DEFAULT_FAMILIES
        filter_fd = memory_file("filter", seccomp.build_filter(seccomp.host_arch(), families=families))
        self._theirs.append(filter_fd)
        inner = [
            walls.interpreter, "-I", "-S", "-u", "-B", "-c", start_of("gate"), GUEST,
            str(control), str(channel), *walls.preload,
        ]  # fmt: skip
        argv, uid, passed = _bubblewrap_command(walls, self.uid, filter_fd, info_fd, inner, self._theirs)
        return argv, uid, (filter_fd, info_fd, *passed)

    def _find_init(self, deadline: float) -> int:
        """See ``Jail``."""
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

    def _open_box(self) -> int:
        """See ``Jail``; the descriptor outlives the namespace."""
        return os.open(f"/proc/{self.init_pid}/root{WORK}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def disk(self, *, last: bool = False) -> Disk:
        """See ``Jail``; the work folder is a file system of its own, which the kernel limits."""
        return of_file_system(self.box_fd)

    def forget(self) -> None:
        """See ``Jail``."""
        super().forget()
        if self._info_fd >= 0:
            os.close(self._info_fd)
            self._info_fd = -1


def _bubblewrap_command(
    walls: Walls, uid: int | None, filter_fd: int, info_fd: int, inner: list[str], opened: list[int]
) -> tuple[list[str], int | None, tuple[int, ...]]:
    """The command that builds the walls, the uid to start it as, and the descriptors that carry its arguments.

    Each descriptor is in ``opened`` from the moment it is open: the next step may fail.
    """
    guest, bwrap = guest_folder(), find_bwrap()
    if uid is None and os.geteuid() == 0:
        raise EnforcerUnavailable(
            NAME,
            "root can become no other user here, and behind bubblewrap a program must not be root; start as an "
            "ordinary user, or with the usual capabilities and with more than one user mapped into this namespace",
        )
    shared = [guest, *(grant.source for grant in walls.runtime)]
    granted = [grant.source for grant in walls.grants]
    if uid is None or (not granted and all(reachable_by_all(path) for path in (*shared, bwrap))):
        args = bubblewrap_args(walls, guest_dir=guest, seccomp_fd=filter_fd, info_fd=info_fd)
        args_fd = memory_file("arguments", _joined(args))
        opened.append(args_fd)
        return [bwrap, "--args", str(args_fd), "--", *inner], uid, (args_fd,)
    args_fd = os.memfd_create("arguments", 0)
    opened.append(args_fd)
    stage = plan_stage(uid, shared, granted, bwrap, args_fd)
    args = bubblewrap_args(walls, guest_dir=guest, seccomp_fd=filter_fd, info_fd=info_fd, sources=stage.sources)
    os.write(args_fd, _joined(args))
    os.lseek(args_fd, 0, os.SEEK_SET)
    plan_fd = memory_file("plan", stage.plan)
    opened.append(plan_fd)
    start = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", start_of("root_stage")]
    here = os.path.dirname(os.path.abspath(__file__))
    return [*start, here, str(plan_fd), "--", *inner], None, (args_fd, plan_fd)


def _joined(args: list[str]) -> bytes:
    return b"\0".join(arg.encode() for arg in args) + b"\0"
