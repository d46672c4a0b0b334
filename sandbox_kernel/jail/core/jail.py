"""One jail: interpreter started, waiting for its one order. Whoever holds it ends it.

``Jail`` is what all kinds share. The kinds differ in how they start, how they are killed and how their disk is
watched: ``bubblewrap_jail.py`` and ``template_jail.py`` have namespaces, ``open_jail.py`` has none. ``start_jail``
(``start.py``) chooses by the walls and returns at once; ``wait_ready`` pays for the start, which is why the pool calls
both before anybody waits.
``destroy`` is exact: afterwards nothing of the jail runs any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.cgroups.cgroup import GROUP_PREFIX
from sandbox_kernel.jail.core.gate_messages import Inbox, encode_warm
from sandbox_kernel.jail.core.spawner import SpawnOrder, spawn
from sandbox_kernel.jail.core.walls import Places, Walls
from sandbox_kernel.jail.meter.disk import Disk
from sandbox_kernel.jail.meter.meter import Meter, make_meter
from sandbox_kernel.jail.root import root_view
from sandbox_kernel.jail.root.sandbox_user import own_user
from sandbox_kernel.jail.streams.output import CHUNK
from sandbox_kernel.jail.streams.readable import readable

#: How long walls may take to come up on a machine under load.
START_TIMEOUT_S = 30.0
#: How long the kernel may take to end what was killed.
DEATH_TIMEOUT_S = 10.0
_F_SETPIPE_SZ = 1031


def _large_pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # an unprivileged user's share of large pipes may be used up
        fcntl.fcntl(read, _F_SETPIPE_SZ, CHUNK)
    return read, write


@dataclass(frozen=True)
class JailCommand:
    """A command line, the uid to start it as (None: ours), descriptors that it needs, and sources shown elsewhere."""

    argv: list[str]
    uid: int | None
    passed: tuple[int, ...]
    view: Mapping[str, str] = field(default_factory=dict)


class Jail(ABC):
    """A started sandbox. Not thread-safe: it belongs to one run or one session."""

    #: Where the work folder, the program and our own programs are, as the program sees them.
    places: Places

    def __init__(self, walls: Walls) -> None:
        self.walls = walls
        self.isolation = "process" if walls.enforcer is None else "process+sandbox"
        #: Who the program is on the host; None: who we are.
        self.uid = own_user(walls.enforcer)
        self.inbox = Inbox()
        self.init_pid = 0
        self.init_fd = -1
        self.box_fd = -1
        self._dead = False
        self.control, self._control_in = socket.socketpair()
        self.channel, self._channel_in = socket.socketpair()
        self._theirs: list[int] = []
        self.stdin_fd = self.stdout_fd = self.stderr_fd = -1
        #: The process that we started; None where somebody else did.
        self.starter: subprocess.Popen[bytes] | None = None
        self.meter: Meter

    def _launch(self) -> None:
        """Start the child; its ends of everything are closed here whatever happens."""
        try:
            stdin, self.stdin_fd = os.pipe2(os.O_CLOEXEC)
            self._theirs.append(stdin)
            self.stdout_fd, stdout = _large_pipe()
            self._theirs.append(stdout)
            self.stderr_fd, stderr = _large_pipe()
            self._theirs.append(stderr)
            if self.uid is not None:
                # /dev/stdout and its like are opened anew by those who use them, which only the owner may.
                for fd in (stdin, stdout, stderr):
                    os.fchown(fd, self.uid, self.uid)
            self._begin(stdin, stdout, stderr)
            try:
                self.meter = self._make_meter()
            except BaseException:
                if self.starter is not None:
                    self.starter.kill()
                    self.starter.wait(DEATH_TIMEOUT_S)
                raise
        except BaseException:
            self.forget()
            raise
        finally:
            self._control_in.close()
            self._channel_in.close()
            for fd in self._theirs:
                os.close(fd)

    def _begin(self, stdin: int, stdout: int, stderr: int) -> None:
        """Start the process that becomes the gate, or the enforcer that starts it."""
        ends = (self._control_in.fileno(), self._channel_in.fileno())
        command = self._command(*ends)
        start = SpawnOrder(command.argv, (*ends, *command.passed), stdin, stdout, stderr, command.uid)
        if command.view:
            start = replace(start, thread=root_view.THREAD, prepare=functools.partial(root_view.show, command.view))
        self.starter = spawn(start)

    def _ahead(self) -> list[bytes]:
        """What the gate is told to do before its order comes."""
        return []

    def _make_meter(self) -> Meter:
        """What measures and limits this jail."""
        return make_meter()

    @property
    def child(self) -> subprocess.Popen[bytes]:
        """The process that we started."""
        assert self.starter is not None
        return self.starter

    def _command(self, control: int, channel: int) -> JailCommand:
        """How it is started; the descriptors that it is passed are in ``_theirs``."""
        raise NotImplementedError

    @abstractmethod
    def _find_init(self, deadline: float) -> int:
        """The pid of the process whose end is the end of the jail, as the host sees it."""

    @abstractmethod
    def _open_box(self) -> int:
        """A descriptor of the work folder, once the gate is ready."""

    @abstractmethod
    def disk(self, *, last: bool = False) -> Disk:
        """How full the work folder is; called at every tick of a run, and a ``last`` time when it is over."""

    def disk_anew(self) -> Disk:
        """The same for a cell that begins: what earlier looks have seen may have been taken back since."""
        return self.disk()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when the gate waits for its order; ``EnforcerFailed`` with the enforcer's own words if it cannot."""
        deadline = time.monotonic() + timeout_s
        try:
            self.init_pid = self._find_init(deadline)
            self.init_fd = os.pidfd_open(self.init_pid)
            # The init becomes the gate; it is moved while it starts, which hides what moving costs.
            self.meter.attach(self.init_pid)
            self._read_ready(deadline)
            # Not before: what the gate starts earlier would not be in its group.
            for part in encode_warm(self.walls.warm) if self.walls.warm is not None else self._ahead():
                self.control.sendall(part)
            self.box_fd = self._open_box()
        except (OSError, ValueError, EOFError) as error:
            said = self._last_words()
            self.destroy()
            name = self.walls.enforcer or "none"
            raise EnforcerFailed(name, f"the walls did not come up: {said or error}") from None

    @property
    def alive(self) -> bool:
        """Whether the gate still waits: a spare may have been killed from outside."""
        if self._dead or self.init_fd < 0:
            return False
        return not readable(self.init_fd, 0)

    @property
    def usable(self) -> bool:
        """Whether it can be given a run after it has waited: the gate is there, and what limits it too."""
        return self.alive and self.meter.intact()

    def check_limits(self) -> None:
        """``EnforcerFailed`` when what limits it was taken away: it must not go on. Called at every tick of a run."""
        if not self.meter.intact():
            raise EnforcerFailed(
                self.meter.mechanism,
                "somebody removed the sandbox's control group, so nothing limited it any more and it was ended; see "
                f"who cleans up groups named {GROUP_PREFIX}*, then run it again",
            )

    def kill(self) -> None:
        """Kill everything inside; returns before it is dead."""
        if self.init_fd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.init_fd, signal.SIGKILL)
        if self.starter is not None and self.starter.poll() is None:
            self.starter.kill()
        self._kill_rest()

    def _kill_rest(self) -> None:
        """Kill what may outlive the init."""
        self.meter.kill()

    def wait_dead(self) -> None:
        """Wait until everything that was killed is gone."""
        if self.init_fd >= 0:
            readable(self.init_fd, DEATH_TIMEOUT_S)
        if self.starter is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.starter.wait(DEATH_TIMEOUT_S)

    def destroy(self) -> None:
        """Kill everything, wait until it is gone, give back every descriptor and group. May be called twice."""
        if self._dead:
            return
        self._dead = True
        self.kill()
        self.wait_dead()
        self.forget()
        self._clear_away()

    def abandon(self) -> Callable[[], None] | None:
        """Kill everything and let go of it, where nothing runs on after that; what is left to do is for ``bury``.

        None where the end has to be waited for: nothing was done then.
        """
        return None

    def _clear_away(self) -> None:
        """Give back what the dead jail had of the host's."""
        deadline = time.monotonic() + 1.0
        while not self.meter.close() and time.monotonic() < deadline:
            time.sleep(0.001)

    def forget(self) -> None:
        """Let go of the descriptors and of nothing else: in a forked child the jail is the parent's."""
        self._dead = True
        self.control.close()
        self.channel.close()
        for fd in (self.stdin_fd, self.stdout_fd, self.stderr_fd, self.init_fd, self.box_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self.stdin_fd = self.stdout_fd = self.stderr_fd = self.init_fd = self.box_fd = -1

    def take_box(self) -> int:
        """Hand over the descriptor of the work folder; it stays readable after the jail is gone."""
        fd, self.box_fd = self.box_fd, -1
        return fd

    def _wait_readable(self, fd: int, deadline: float) -> None:
        if not readable(fd, deadline - time.monotonic()):
            raise EOFError("it took too long")

    def _read_ready(self, deadline: float) -> None:
        self._wait_readable(self.control.fileno(), deadline)
        messages = self.inbox.feed(self.control.recv(4096))
        if not messages or messages[0]["op"] != "ready":
            raise EOFError("the gate inside did not start")

    def _last_words(self) -> str:
        """What bubblewrap (or the interpreter) printed before it gave up."""
        os.set_blocking(self.stderr_fd, False)
        if self.starter is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.starter.wait(0.5)
        with contextlib.suppress(OSError):
            return os.read(self.stderr_fd, 4096).decode("utf-8", "replace").strip()
        return ""
