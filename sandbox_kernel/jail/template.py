"""The host's side of a template: a waiting root from which jails of one kind are forked.

It is built like a jail, by bubblewrap, and its init is ``guest/gate/template.py``. ``make`` sends it the descriptors of
a jail; ``TemplateJail`` does the rest. A template shows the host's files as they were when it was made, so it is
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
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.accounting.meter import Meter
from sandbox_kernel.jail.bubblewrap_jail import BubblewrapJail, NamespaceJail
from sandbox_kernel.jail.guest_programs import guest_folder, memory_file
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules import bubblewrap, seccomp
from sandbox_kernel.jail.rules.bubblewrap import HOST_ETC
from sandbox_kernel.jail.walls import CELL, TMP, WORK, Walls, own_path

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
    forks_ahead = False
    #: No limits: a template runs no user code.
    make_meter = Meter

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

    def hold(self, jails: int) -> None:
        """Count jails that will be forked, or with -1 one that is dead. A retired template ends with its last jail."""
        with self._lock:
            self._held += jails
            over = self._retired and self._held <= 0
        if over and os.getpid() == self._host:
            self.destroy()

    def retire(self) -> None:
        """Fork no more jails; the template ends with its last jail. May be called twice."""
        self._retired = True
        self.hold(0)

    def _filter(self) -> tuple[int | None, tuple[int, ...]]:
        """See ``BubblewrapJail``. The init runs no program; it loads the filter in each of its forks."""
        program = seccomp.build_namespace_filter(bool(self.walls.grants), self.walls.serves)
        spec = {"filter": program, "shown": shown_beneath(self.walls), "here": self.walls.here is not None}
        spec["own"], spec["inside"] = own_path(self.walls)
        return None, (memory_file("spec", marshal.dumps(spec, 2)),)

    def _open_box(self) -> int:
        """Return no descriptor: the work folder of a template is not used."""
        return -1


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
    return (*same, *(_identity(path, changes=True) for path in sorted(packages)))


def _identity(path: str, *, changes: bool = False) -> tuple[int, ...]:
    try:
        info = os.stat(path)
    except OSError:
        return ()
    return (info.st_dev, info.st_ino, info.st_mtime_ns if changes else 0)


# A jail that was forked from a template: the same walls, without starting bubblewrap and an interpreter.

_CREDENTIALS = struct.Struct("3i")


class TemplateJail(NamespaceJail):
    """Forked by a template. Its pid is taken from the credentials that the kernel attaches to its first message."""

    def __init__(self, walls: Walls, template: Template) -> None:
        super().__init__(walls)
        self.uid = template.uid
        self._template = template
        # The kernel then adds the sender's pid, as the host sees it, to each message.
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        template.hold(1)
        try:
            self._launch()
        except BaseException:
            template.hold(-1)
            raise

    def _begin(self, stdin: int, stdout: int, stderr: int) -> None:
        ends = (self._control_in.fileno(), self._channel_in.fileno())
        self._template.make(self.walls, (*ends, stdin, stdout, stderr))

    def _find_init(self, deadline: float) -> int:
        self._wait_readable(self.control.fileno(), deadline)
        data, ancillary, _, _ = self.control.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
        # Descriptors that come later need the space that the credentials would take.
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        for level, kind, raw in ancillary:
            if data and (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, uid, _ = _CREDENTIALS.unpack(raw)
                if pid > 0 and uid == (self.uid if self.uid is not None else os.getuid()):
                    return int(pid)
        raise EOFError("the template forked no sandbox")

    def _read_ready(self, deadline: float) -> None:
        """See ``Jail``. The descriptor of the layer comes first, where the program works on a folder of the host."""
        if self.walls.here is not None:
            self._wait_readable(self.control.fileno(), deadline)
            _, descriptors, _, _ = socket.recv_fds(self.control, 1, 2)
            if not descriptors:
                raise EOFError("the layer over the folder could not be mounted")
            for fd in descriptors:
                os.set_inheritable(fd, False)
            self.layer_fd = descriptors[0]
            self.settings_fd = descriptors[1] if len(descriptors) > 1 else -1
        super()._read_ready(deadline)

    def _clear_away(self) -> None:
        super()._clear_away()
        self._template.hold(-1)


# The templates of one pool: one for each kind of walls, up to a maximum, replaced when they are dead or old.
#
# If there is a template, a jail is forked from it. If there is none, the jail is started by itself; no run waits for a
# template. Templates are made in the background, by the thread that makes spares. If none can be made (the host does
# not allow nested namespaces, or an imported module starts threads), jails are started one by one with the same walls,
# and ``unavailable`` returns the reason.

#: The most templates of one pool; the least recently used one is dropped first.
MAX_TEMPLATES = 6
#: After a template could not be made, the time until the next try.
RETRY_S = 60.0

#: Why templates could not be made, the latest last.
_reasons: list[str] = []


def unavailable() -> str | None:
    """Return why a template could not be made in this process, for the report; None if all could."""
    return _reasons[-1] if _reasons else None


class NoLayer(Exception):
    """A jail that works on a folder of the host, copy-on-write, cannot be made; the message says why."""


class Templates:
    """Templates by kind; thread-safe. ``prepare`` makes them, ``fork`` uses them."""

    def __init__(self, most: int = MAX_TEMPLATES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._ready: OrderedDict[Walls, Template] = OrderedDict()
        #: When a template of a kind could not be made, and why.
        self._failed: dict[Walls, tuple[float, str]] = {}
        self._retired: weakref.WeakSet[Template] = weakref.WeakSet()

    def fork(self, walls: Walls) -> Jail | None:
        """Return a ready jail, forked from the template of its kind; None when there is no usable template."""
        kind = kind_of(walls)
        with self._lock:
            template = self._ready.get(kind)
        if template is None or not template.current:
            return None
        try:
            return TemplateJail(walls, template).wait_ready()
        except (SandboxError, OSError) as error:
            if template.alive:
                self._note_failure(kind, error)
            return None

    def fork_over(self, walls: Walls) -> Jail:
        """Return a ready jail with a layer over the folder of its walls, which only forks of a template can have.

        Makes the template if there is none: of its kind, or for this one jail where templates are switched off. Raises
        ``NoLayer`` when the host allows no such jail.
        """
        if not walls.templates:
            try:
                template = Template(walls).wait_ready()
                try:
                    return TemplateJail(walls, template).wait_ready()
                finally:
                    self._retire([template])
            except (SandboxError, OSError) as error:
                raise NoLayer(getattr(error, "message", str(error))) from None
        forked = self.fork(walls)
        if forked is None:
            self.prepare(walls)
            forked = self.fork(walls)
        if forked is None:
            with self._lock:
                _, why = self._failed.get(kind_of(walls), (0.0, "templates cannot be made here"))
            raise NoLayer(why)
        return forked

    def prepare(self, walls: Walls) -> None:
        """Make a template of this kind if there is none, or remember why it cannot be made. Slow."""
        if walls.enforcer != bubblewrap.NAME or not walls.templates:
            return
        kind = kind_of(walls)
        with self._making:
            with self._lock:
                known = self._ready.get(kind)
                if known is not None:
                    self._ready.move_to_end(kind)
                failed_at, _ = self._failed.get(kind, (-RETRY_S, ""))
            if not self._most or (known is not None and known.current) or time.monotonic() - failed_at < RETRY_S:
                return
            made = None
            try:
                made = Template(kind).wait_ready()
            except (SandboxError, OSError) as error:
                self._note_failure(kind, error)
            with self._lock:
                old = [known] if known is not None else []
                self._ready.pop(kind, None)
                if made is not None:
                    self._ready[kind] = made
                # They may have been closed meanwhile.
                while len(self._ready) > self._most:
                    old.append(self._ready.popitem(last=False)[1])
            self._retire(old)

    def _note_failure(self, kind: Walls, error: Exception) -> None:
        """Remember the reason, and retire a template that cannot fork."""
        reason = getattr(error, "message", str(error))
        _reasons[:] = [reason]
        with self._lock:
            self._failed[kind] = time.monotonic(), reason
            broken = self._ready.pop(kind, None)
        if broken is not None:
            self._retire([broken])

    def _retire(self, templates: Iterable[Template]) -> None:
        for template in templates:
            self._retired.add(template)
            template.retire()

    def keep_only(self, wanted: set[Walls]) -> None:
        """Retire templates of all other kinds."""
        kinds = {kind_of(walls) for walls in wanted}
        with self._lock:
            old = [self._ready.pop(kind) for kind in list(self._ready) if kind not in kinds]
        self._retire(old)

    def close(self) -> None:
        """Retire every template and make no more. Those with jails end with their last jail."""
        self._most = 0
        self.keep_only(set())

    def forget(self) -> None:
        """In a forked child the templates belong to the parent: close their descriptors and make new locks."""
        self._lock, self._making = threading.Lock(), threading.Lock()
        for template in (*self._ready.values(), *self._retired):
            template.forget()
        self._ready = OrderedDict()
