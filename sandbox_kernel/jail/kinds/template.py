"""The host's side of a template: a waiting root from which jails of one kind are forked.

It is built like a jail, by bubblewrap, and its init is ``guest/gate/template.py``. ``make`` sends it the descriptors of
a jail; ``template_jail.py`` does the rest. A template shows the host's files as they were when it was made, so it is
``current`` only while they are the same, and for a limited time. Its jails end with it. A template that is no longer
used is retired: it ends with its last jail.
"""

from __future__ import annotations

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
from sandbox_kernel.jail.meter.meter import Meter
from sandbox_kernel.jail.meter.reading import Disk
from sandbox_kernel.jail.meter.watchdog_meter import WatchdogMeter
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.rules.bubblewrap import HOST_ETC

#: Sizes of /box, /tmp and /dev/shm, as ``guest/gate/template.py`` reads them.
_ORDER = struct.Struct(">QQQ")
#: Space for what imports write while a template is made.
_OWN_BYTES = 16 << 20
#: The longest time that a template is used. Some changes are not noticed before, such as a replaced package.
MAX_AGE_S = 600.0
#: How often system files are checked for changes; files of the policy are checked for each jail.
LOOK_S = 1.0
#: Each fork has its own file systems at these paths.
_PRIVATE = (WORK, TMP, CELL, "/dev/shm")


def kind_of(walls: Walls) -> Walls:
    """Return what all jails of one template share. Sizes and waiting programs differ between jails."""
    return replace(walls, box_bytes=_OWN_BYTES, tmp_bytes=_OWN_BYTES, shm_bytes=_OWN_BYTES, warm=None)


def shown_beneath(walls: Walls) -> list[str]:
    """Return the host paths inside directories that each fork remounts; they must be shown again. Outermost only."""
    targets = sorted({grant.target for grant in (*walls.runtime, *walls.grants)}, key=lambda path: path.count("/"))
    chosen: list[str] = []
    for path in targets:
        private = any(path.startswith(f"{root}/") for root in _PRIVATE)
        if private and not any(path.startswith(f"{known}/") for known in chosen):
            chosen.append(path)
    return chosen


class Template(BubblewrapJail):
    """A root with an init that forks. It starts and ends like a jail, but never gets a job."""

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
        """Whether it lives and the host files that it shows are unchanged."""
        now = time.monotonic()
        if not self.alive or now - self._made_at >= MAX_AGE_S or self._granted != granted(self.walls):
            return False
        if now - self._looked_at > LOOK_S:
            self._looked_at = now
            self._same = self._same and self._system == system(self.walls)
        return self._same

    def make(self, walls: Walls, descriptors: Sequence[int]) -> None:
        """Fork a jail of these sizes with control, channel, stdin, stdout and stderr. ``OSError`` if it is gone."""
        order = _ORDER.pack(walls.box_bytes, walls.tmp_bytes, walls.shm_bytes)
        with self._lock:
            socket.send_fds(self.control, [order], list(descriptors))

    def hold(self) -> None:
        """Count a jail that will be forked: the template must live as long as the jail."""
        with self._lock:
            self._held += 1

    def release(self) -> None:
        """A jail of it is dead; ends the template if it is retired and this was the last."""
        with self._lock:
            self._held -= 1
        self._end_if_unused()

    def retire(self) -> None:
        """Fork no more jails; the template ends with its last jail. May be called twice."""
        self._retired = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        with self._lock:
            over = self._retired and self._held <= 0
        if over and os.getpid() == self._host:
            self.destroy()

    def _filter(self) -> tuple[int | None, tuple[int, ...]]:
        """See ``BubblewrapJail``. The init runs no program; it loads the filter in each of its forks."""
        program = seccomp.build_namespace_filter(bool(self.walls.grants), self.walls.serves)
        spec = {"filter": program, "shown": shown_beneath(self.walls), "here": self.walls.here is not None}
        return None, (memory_file("spec", marshal.dumps(spec, 2)),)

    def _ahead(self) -> list[bytes]:
        """Return nothing: a template has no steps."""
        return []

    def _make_meter(self) -> Meter:
        """Return a meter without limits: a template runs no user code."""
        return WatchdogMeter()

    def _open_box(self) -> int:
        """Return no descriptor: the work folder of a template is not used."""
        return -1

    def disk(self, *, last: bool = False) -> Disk:
        """Return an empty reading: nothing is written there."""
        return Disk(full=False, over=False)


def granted(walls: Walls) -> tuple[tuple[int, ...], ...]:
    """Return identities of the host files that the policy shows; they change when a file is replaced."""
    here = () if walls.here is None else (walls.here,)
    return tuple(_identity(source) for source in (*(grant.source for grant in walls.grants), *here))


def system(walls: Walls) -> tuple[tuple[int, ...], ...]:
    """Return identities of the other host files that a template shows; they also change when a package is installed."""
    folders = [guest_folder(), walls.interpreter, *(grant.source for grant in walls.runtime)]
    same = [_identity(path) for path in (*folders, *(f"/etc/{name}" for name in HOST_ETC))]
    prefix = os.path.dirname(os.path.dirname(walls.interpreter))
    import glob  # a single run makes no template

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
