"""The template of a kind of jails, on the host's side: one waiting root whose forks are the jails.

It is built as a jail is, by bubblewrap, and its init is ``guest/gate/template.py``. ``make`` sends it the
descriptors of a jail; ``template_jail.py`` does the rest.
What a template shows of the host it shows as of when it was made, so it is
``current`` only while that is still the same, and not for ever. Its end is the end of its jails: one that is not used
any more is retired, and ends when the last of them has.
"""

from __future__ import annotations

import glob
import marshal
import os
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from sandbox_kernel.jail.core.guest_programs import guest_folder, memory_file
from sandbox_kernel.jail.core.walls import CELL, TMP, WORK, Walls
from sandbox_kernel.jail.kinds.bubblewrap_jail import BubblewrapJail
from sandbox_kernel.jail.meter.disk import Disk
from sandbox_kernel.jail.meter.meter import Meter
from sandbox_kernel.jail.meter.watchdog_meter import WatchdogMeter
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.rules.bubblewrap import HOST_ETC

#: Sizes of /box, /tmp and /dev/shm, as ``guest/gate/template.py`` reads them.
_ORDER = struct.Struct(">QQQ")
#: Room for what imports write while a template is made.
_OWN_BYTES = 16 << 20
#: What changes unseen (a package that was imported ahead is replaced) is noticed after this long.
MAX_AGE_S = 600.0
#: How often the system, which changes seldom, is looked at; what the policy shows is looked at for each jail.
LOOK_S = 1.0
#: A child's own file systems lie over these.
_PRIVATE = (WORK, TMP, CELL, "/dev/shm")


def kind_of(walls: Walls) -> Walls:
    """What is the same for all jails of one template: sizes and waiting programs are each jail's own."""
    return replace(walls, box_bytes=_OWN_BYTES, tmp_bytes=_OWN_BYTES, shm_bytes=_OWN_BYTES, warm=None)


def shown_beneath(walls: Walls) -> list[str]:
    """Places of the host's that lie in what each child has anew, and must be shown there again; outermost only."""
    targets = sorted({grant.target for grant in (*walls.runtime, *walls.grants)}, key=lambda path: path.count("/"))
    chosen: list[str] = []
    for path in targets:
        private = any(path.startswith(f"{root}/") for root in _PRIVATE)
        if private and not any(path.startswith(f"{known}/") for known in chosen):
            chosen.append(path)
    return chosen


class Template(BubblewrapJail):
    """A root with an init that forks. It is a jail to be started, found and ended, but never gets a job."""

    program = "gate.template"

    def __init__(self, walls: Walls) -> None:
        self._granted, self._system = granted(walls), system(walls)
        self._made_at = self._looked_at = time.monotonic()
        self._same = True
        self._lock = threading.Lock()
        self._held = 0
        self._retired = False
        self._host = os.getpid()
        super().__init__(kind_of(walls))

    @property
    def current(self) -> bool:
        """Whether it lives and what it shows of the host is still what is there."""
        now = time.monotonic()
        if not self.alive or now - self._made_at >= MAX_AGE_S or self._granted != granted(self.walls):
            return False
        if now - self._looked_at > LOOK_S:
            self._looked_at = now
            self._same = self._same and self._system == system(self.walls)
        return self._same

    def make(self, walls: Walls, descriptors: Sequence[int]) -> None:
        """Let it fork a jail of these sizes, for control, channel, stdin, stdout and stderr; OSError if it is gone."""
        order = _ORDER.pack(walls.box_bytes, walls.tmp_bytes, walls.shm_bytes)
        with self._lock:
            socket.send_fds(self.control, [order], list(descriptors))

    def hold(self) -> None:
        """A jail is to be forked: the template must outlive it, because its end would be the jail's."""
        with self._lock:
            self._held += 1

    def release(self) -> None:
        """The jail is dead."""
        with self._lock:
            self._held -= 1
        self._end_if_unused()

    def retire(self) -> None:
        """No jail is forked from it any more; it ends with the last that was. May be called twice."""
        self._retired = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        with self._lock:
            over = self._retired and self._held <= 0
        if over and os.getpid() == self._host:
            self.destroy()

    def _filter(self) -> tuple[int | None, tuple[int, ...]]:
        """See ``BubblewrapJail``: the init runs no program, and loads the filter in each of its forks."""
        program = seccomp.build_namespace_filter(bool(self.walls.grants))
        spec = {"filter": program, "shown": shown_beneath(self.walls)}
        return None, (memory_file("spec", marshal.dumps(spec, 2)),)

    def _ahead(self) -> list[bytes]:
        """It has no step."""
        return []

    def _make_meter(self) -> Meter:
        """Its memory is no run's: nobody limits it."""
        return WatchdogMeter()

    def _open_box(self) -> int:
        """Nobody looks into its work folder."""
        return -1

    def disk(self, *, last: bool = False) -> Disk:
        """Nothing is written there."""
        return Disk(full=False, over=False)


def granted(walls: Walls) -> tuple[tuple[int, ...], ...]:
    """What the policy shows of the host, as numbers that change when it is replaced."""
    return tuple(_identity(grant.source) for grant in walls.grants)


def system(walls: Walls) -> tuple[tuple[int, ...], ...]:
    """The rest of what a template shows, as numbers that change when it is replaced, or a package is installed."""
    folders = [guest_folder(), walls.interpreter, *(grant.source for grant in walls.runtime)]
    same = [_identity(path) for path in (*folders, *(f"/etc/{name}" for name in HOST_ETC))]
    prefix = os.path.dirname(os.path.dirname(walls.interpreter))
    packages = glob.glob(f"{prefix}/lib/python3*/*-packages")
    return (*same, *((*_identity(path), _changed_at(path)) for path in sorted(packages)))


def _identity(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path)
    except OSError:
        return ()
    return (info.st_dev, info.st_ino)


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
