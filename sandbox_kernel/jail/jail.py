"""One jail: the interpreter is started and waits for its one order. The owner of the object must end it.

The kinds of jails differ in how they start, how they are killed and how their disk use is measured:
``bubblewrap_jail.py`` and ``template.py`` have namespaces, ``open_jail.py`` has none. ``start_jail``
(``enforcer.py``) chooses the kind by the walls and returns at once. After ``destroy`` no process of the jail runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from sandbox_kernel.errors import EnforcerFailed, PolicyViolation
from sandbox_kernel.jail.accounting.meter import Disk, Meter, make_meter
from sandbox_kernel.jail.gate_messages import AHEAD, Inbox, frame, warm_order
from sandbox_kernel.jail.proof_record import forget_proof
from sandbox_kernel.jail.root_user import own_user
from sandbox_kernel.jail.spawner import SpawnOrder, spawn
from sandbox_kernel.jail.streams import CHUNK, readable
from sandbox_kernel.jail.walls import Places, Walls
from sandbox_kernel.util.linux_calls import pidfd_open, pidfd_send_signal
from sandbox_kernel.workspace.given_grants import exchanged, identity_of

#: How long the start of a jail may take on a busy machine.
START_TIMEOUT_S = 30.0
#: How long the kernel may take to end killed processes.
DEATH_TIMEOUT_S = 10.0
_F_SETPIPE_SZ = 1031


def _large_pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # an unprivileged user may have used up its quota of large pipes
        fcntl.fcntl(read, _F_SETPIPE_SZ, CHUNK)
    return read, write


class Jail(ABC):
    """A started sandbox. Not thread-safe: it belongs to one run or one session."""

    #: Where the work folder, the program and our own programs are inside.
    places: Places
    #: Whether the first step is forked before its order comes: possible where all walls are up already.
    forks_ahead = False
    make_meter: Callable[[], Meter] = staticmethod(make_meter)

    def __init__(self, walls: Walls) -> None:
        self.walls = walls
        #: The user of the program on the host; None: the same user as the host process.
        self.uid = own_user(walls.enforcer)
        self.inbox = Inbox()
        self.init_pid = 0
        self.init_fd = -1
        self.box_fd = -1
        #: The other file systems in memory, where the host counts their files.
        self.more_fds: list[int] = []
        #: What the program changes in the folder that it works on (``Walls.here``); -1 without one.
        self.layer_fd = -1
        #: The settings of that mount, with which the host has looked-up names forgotten; -1 where there are none.
        self.settings_fd = -1
        self._dead = False
        self.control, self._control_in = socket.socketpair()
        self.channel, self._channel_in = socket.socketpair()
        self._child_fds: list[int] = []
        self.stdin_fd = self.stdout_fd = self.stderr_fd = -1
        #: The process that the host started; None when a template forked the jail.
        self.starter: subprocess.Popen[bytes] | None = None
        self.meter: Meter

    def _launch(self) -> None:
        """Start the child. The child's ends of pipes and sockets are closed in this process in every case."""
        try:
            stdin, self.stdin_fd = os.pipe2(os.O_CLOEXEC)
            self._child_fds.append(stdin)
            self.stdout_fd, stdout = _large_pipe()
            self._child_fds.append(stdout)
            self.stderr_fd, stderr = _large_pipe()
            self._child_fds.append(stderr)
            if self.uid is not None:
                # A program may open /dev/stdout, which only the owner of the pipe may do.
                for fd in (stdin, stdout, stderr):
                    os.fchown(fd, self.uid, self.uid)
            self._begin(stdin, stdout, stderr)
            try:
                self.meter = self.make_meter()
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
            for fd in self._child_fds:
                os.close(fd)

    def _begin(self, stdin: int, stdout: int, stderr: int) -> None:
        ends = (self._control_in.fileno(), self._channel_in.fileno())
        start = self._command(*ends)
        passed = (*ends, *start.pass_fds)
        self.starter = spawn(replace(start, pass_fds=passed, stdin=stdin, stdout=stdout, stderr=stderr))

    @property
    def child(self) -> subprocess.Popen[bytes]:
        """The process that the host started."""
        assert self.starter is not None
        return self.starter

    def _command(self, control: int, channel: int) -> SpawnOrder:
        """Return the command that starts the jail. Descriptors that it needs are added to ``_child_fds``."""
        raise NotImplementedError

    @abstractmethod
    def _find_init(self, deadline: float) -> int:
        """Return the host's pid of the process whose end is the end of the jail."""

    @abstractmethod
    def _open_box(self) -> int:
        """Return a descriptor of the work folder; called when the gate is ready."""

    @abstractmethod
    def disk(self, *, last: bool = False) -> Disk:
        """Measure the work folder. Called at every tick of a run, and with ``last`` when the run is over."""

    def has_too_many_sockets(self) -> bool:
        """Whether sockets inside may hold more memory than a limit sees. Called at every tick."""
        return False

    def disk_anew(self) -> Disk:
        """Measure again without earlier results, for a cell that begins: files may have been deleted since."""
        return self.disk()

    def wait_ready(self) -> Self:
        """Wait until the gate is ready for its order. Raises ``EnforcerFailed`` or ``PolicyViolation``, with why."""
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            self.init_pid = self._find_init(deadline)
            self.init_fd = pidfd_open(self.init_pid)
            # The init becomes the gate. It is moved into its group while it starts, which costs no extra time.
            self.meter.attach(self.init_pid)
            self._read_ready(deadline)
            # Only now: a process that the gate started before would not be in its group.
            if self.walls.warm is not None:
                self.control.sendall(warm_order(self.walls.warm))
            elif self.forks_ahead:
                self.control.sendall(frame(AHEAD))
            self.box_fd = self._open_box()
            return self
        except (OSError, ValueError, EOFError) as error:
            said = self._error_output()
            self.destroy()
            name = self.walls.enforcer or "none"
            for grant in self.walls.grants:
                if grant.identity not in (None, identity_of(grant.source)):
                    raise exchanged(grant.source) from None
            forget_proof(name)
            raise EnforcerFailed(name, f"the walls did not come up: {said or error}") from None
        except PolicyViolation:
            self.destroy()
            raise

    @property
    def alive(self) -> bool:
        """Whether the gate still waits. Something outside may have killed a spare."""
        return not self._dead and self.init_fd >= 0 and not readable(self.init_fd, 0)

    @property
    def usable(self) -> bool:
        """Whether a spare can be used for a run: the gate and the control group still exist."""
        return self.alive and self.meter.intact()

    def kill(self) -> None:
        """Kill every process inside; does not wait for their end."""
        if self.init_fd >= 0:
            with contextlib.suppress(OSError):
                pidfd_send_signal(self.init_fd, signal.SIGKILL)
        if self.starter is not None and self.starter.poll() is None:
            self.starter.kill()
        if self.init_fd < 0:
            # Where there is an init, every process ends with it, and killing by control group waits for a lock.
            self.meter.kill()

    def wait_dead(self) -> None:
        """Wait until every killed process is gone."""
        if self.init_fd >= 0:
            readable(self.init_fd, DEATH_TIMEOUT_S)
        if self.starter is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.starter.wait(DEATH_TIMEOUT_S)

    def destroy(self) -> None:
        """Kill every process, wait until they are gone, close descriptors, remove the group. May be called twice."""
        if self._dead:
            return
        self._dead = True
        self.kill()
        self.wait_dead()
        self.forget()
        self._clear_away()

    def abandon(self) -> Callable[[], None] | None:
        """Kill every process without waiting, and return the cleanup that remains, for ``bury``.

        Returns None, and does nothing, for a kind of jail whose end must be waited for.
        """
        return None

    def _clear_away(self) -> None:
        """Remove what the jail used on the host, after its end."""
        deadline = time.monotonic() + 1.0
        while not self.meter.close() and time.monotonic() < deadline:
            time.sleep(0.001)

    def forget(self) -> None:
        """Close the descriptors and do nothing else: in a forked child the jail belongs to the parent."""
        self._dead = True
        self.control.close()
        self.channel.close()
        for name in ("stdin_fd", "stdout_fd", "stderr_fd", "init_fd", "box_fd", "layer_fd", "settings_fd"):
            if getattr(self, name) >= 0:
                with contextlib.suppress(OSError):
                    os.close(getattr(self, name))
                setattr(self, name, -1)
        while self.more_fds:
            os.close(self.more_fds.pop())

    def take_box(self) -> int:
        """Return the descriptor of the work folder. It stays readable after the jail's end; the caller closes it."""
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

    def _error_output(self) -> str:
        os.set_blocking(self.stderr_fd, False)
        if self.starter is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.starter.wait(0.5)
        with contextlib.suppress(OSError):
            return os.read(self.stderr_fd, 4096).decode("utf-8", "replace").strip()
        return ""
