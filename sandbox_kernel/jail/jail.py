"""One jail: walls up, interpreter started, waiting for its one order. Whoever holds it ends it.

``Jail.start`` returns at once; ``wait_ready`` pays for the walls, which is why the pool calls both before anybody
waits. ``destroy`` is exact: it kills the namespace's init and waits until the kernel has ended everything in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.resources
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail import seccomp
from sandbox_kernel.jail.bubblewrap import NAME, bubblewrap_args, find_bwrap
from sandbox_kernel.jail.control import Inbox, encode_warm
from sandbox_kernel.jail.meter import Meter, make_meter
from sandbox_kernel.jail.pump import CHUNK
from sandbox_kernel.jail.root_plan import fresh_uid, plan_stage, reachable_by_all
from sandbox_kernel.jail.spawner import Start, spawn
from sandbox_kernel.jail.walls import GUEST, WORK, Walls

#: A program that is given as a script is compiled at every start; imported, its compiled form is used.
GATE_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); import gate; gate.main()"
_STAGE_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); import root_stage; root_stage.main()"

#: How long walls may take to come up on a machine under load.
START_TIMEOUT_S = 30.0
#: How long the kernel may take to end a killed namespace.
_DEATH_TIMEOUT_S = 10.0
_F_SETPIPE_SZ = 1031


@functools.lru_cache(maxsize=1)
def guest_folder() -> str:
    """Where the programs lie that run inside jails, compiled where that is possible.

    Jails see them read-only, so what is not compiled here is compiled anew at every start.
    """
    folder = os.path.realpath(str(importlib.resources.files("sandbox_kernel") / "guest"))
    for name in ("gate.py", "../jail/root_stage.py"):
        source = os.path.join(folder, name)
        if not os.path.exists(importlib.util.cache_from_source(os.path.normpath(source))):
            import compileall

            with contextlib.suppress(OSError):
                compileall.compile_dir(os.path.dirname(source), quiet=2, maxlevels=0)
    return folder


def _memory_file(name: str, data: bytes) -> int:
    fd = os.memfd_create(name, 0)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _large_pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # an unprivileged user's share of large pipes may be used up
        fcntl.fcntl(read, _F_SETPIPE_SZ, CHUNK)
    return read, write


class Jail:
    """A started sandbox. Not thread-safe: it belongs to one run or one session."""

    def __init__(self, walls: Walls, child: subprocess.Popen[bytes], ends: tuple[int, int, int, int]) -> None:
        self.walls = walls
        self.isolation = "process+sandbox"
        self.child = child
        self.stdin_fd, self.stdout_fd, self.stderr_fd, self._info_fd = ends
        self.control: socket.socket
        self.channel: socket.socket
        self.meter: Meter
        self.inbox = Inbox()
        self.init_pid = 0
        self.init_fd = -1
        self.box_fd = -1
        self._dead = False

    @classmethod
    def start(cls, walls: Walls) -> Jail:
        """Start the walls; returns before they are up."""
        bwrap = find_bwrap()
        program = seccomp.build_filter(seccomp.host_arch())
        opened: list[int] = []

        def keep(*fds: int) -> tuple[int, ...]:
            opened.extend(fds)
            return fds

        ours: list[int] = []
        control, control_in = socket.socketpair()
        channel, channel_in = socket.socketpair()
        try:
            stdin_in, stdin_out = keep(*os.pipe2(os.O_CLOEXEC))
            stdout_in, stdout_out = keep(*_large_pipe())
            stderr_in, stderr_out = keep(*_large_pipe())
            info_in, info_out = keep(*os.pipe2(os.O_CLOEXEC))
            (filter_fd,) = keep(_memory_file("filter", program))
            inner = [
                walls.interpreter, "-I", "-S", "-u", "-B", "-c", GATE_START, GUEST,
                str(control_in.fileno()), str(channel_in.fileno()), *walls.preload,
            ]  # fmt: skip
            argv, uid, passed = _command(walls, bwrap, filter_fd, info_out, inner)
            keep(*passed)
            fds = (filter_fd, info_out, control_in.fileno(), channel_in.fileno(), *passed)
            child = spawn(Start(argv, fds, stdin_in, stdout_out, stderr_out, uid))
            ours = [stdin_out, stdout_in, stderr_in, info_in]
            jail = cls(walls, child, (stdin_out, stdout_in, stderr_in, info_in))
            jail.control, jail.channel, jail.meter = control, channel, make_meter()
            return jail
        except BaseException:
            control.close()
            channel.close()
            raise
        finally:
            control_in.close()
            channel_in.close()
            for fd in opened:
                if fd not in ours:
                    os.close(fd)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when the gate waits for its order; ``EnforcerFailed`` with bubblewrap's own words if it cannot."""
        deadline = time.monotonic() + timeout_s
        try:
            self._read_init_pid(deadline)
            self.init_fd = os.pidfd_open(self.init_pid)
            # The init becomes the gate; it is moved while it starts, which hides what moving costs.
            self.meter.attach(self.init_pid)
            self._read_ready(deadline)
            if self.walls.warm is not None:
                # Not before: what the gate starts earlier would not be in its group.
                for part in encode_warm(self.walls.warm):
                    self.control.sendall(part)
            self.box_fd = os.open(f"/proc/{self.init_pid}/root{WORK}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError, EOFError) as error:
            said = self._last_words()
            self.destroy()
            raise EnforcerFailed(NAME, f"the walls did not come up: {said or error}") from None

    @property
    def alive(self) -> bool:
        """Whether the gate still waits: a spare may have been killed from outside."""
        if self._dead or self.init_fd < 0:
            return False
        return not select.select([self.init_fd], [], [], 0)[0]

    def kill(self) -> None:
        """Kill everything inside; returns before it is dead."""
        if self.init_fd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.init_fd, signal.SIGKILL)
        if self.child.poll() is None:
            self.child.kill()
        self.meter.kill()

    def destroy(self) -> None:
        """Kill everything, wait until it is gone, give back every descriptor and group. May be called twice."""
        if self._dead:
            return
        self._dead = True
        self.kill()
        self.wait_dead()
        self.forget()
        deadline = time.monotonic() + 1.0
        while not self.meter.close() and time.monotonic() < deadline:
            time.sleep(0.001)

    def forget(self) -> None:
        """Let go of the descriptors and of nothing else: in a forked child the jail is the parent's."""
        self._dead = True
        self.control.close()
        self.channel.close()
        for fd in (self.stdin_fd, self.stdout_fd, self.stderr_fd, self._info_fd, self.init_fd, self.box_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self.stdin_fd = self.stdout_fd = self.stderr_fd = self._info_fd = self.init_fd = self.box_fd = -1

    def wait_dead(self) -> None:
        """Wait until the kernel has ended the namespace: its init becomes readable only after all others are gone."""
        if self.init_fd >= 0:
            select.select([self.init_fd], [], [], _DEATH_TIMEOUT_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(_DEATH_TIMEOUT_S)

    def take_box(self) -> int:
        """Hand over the descriptor of the work folder; it stays readable after the jail is gone."""
        fd, self.box_fd = self.box_fd, -1
        return fd

    def _wait_readable(self, fd: int, deadline: float) -> None:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise EOFError("it took too long")

    def _read_init_pid(self, deadline: float) -> None:
        text = b""
        while not text.rstrip().endswith(b"}"):
            self._wait_readable(self._info_fd, deadline)
            part = os.read(self._info_fd, 4096)
            if not part:
                raise EOFError("bubblewrap ended before it made the sandbox")
            text += part
        self.init_pid = int(json.loads(text)["child-pid"])
        os.close(self._info_fd)
        self._info_fd = -1

    def _read_ready(self, deadline: float) -> None:
        self._wait_readable(self.control.fileno(), deadline)
        messages = self.inbox.feed(self.control.recv(4096))
        if not messages or messages[0]["op"] != "ready":
            raise EOFError("the gate inside did not start")

    def _last_words(self) -> str:
        """What bubblewrap (or the interpreter) printed before it gave up."""
        os.set_blocking(self.stderr_fd, False)
        with contextlib.suppress(OSError):
            self.child.wait(0.5) if self.child.poll() is None else None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            return os.read(self.stderr_fd, 4096).decode("utf-8", "replace").strip()
        return ""


def _command(
    walls: Walls, bwrap: str, filter_fd: int, info_fd: int, inner: list[str]
) -> tuple[list[str], int | None, tuple[int, ...]]:
    """The command that builds the walls, the uid to start it as, and the descriptors that carry its arguments."""
    guest = guest_folder()
    sources: dict[str, str] = {}
    uid: int | None = None
    if os.geteuid() != 0:
        args = bubblewrap_args(walls, guest_dir=guest, seccomp_fd=filter_fd, info_fd=info_fd)
        args_fd = _memory_file("arguments", b"\0".join(a.encode() for a in args) + b"\0")
        return [bwrap, "--args", str(args_fd), "--", *inner], None, (args_fd,)
    uid = fresh_uid()
    shared = [guest, *(grant.source for grant in walls.runtime)]
    granted = [grant.source for grant in walls.grants]
    if not granted and all(reachable_by_all(path) for path in (*shared, bwrap)):
        args = bubblewrap_args(walls, guest_dir=guest, seccomp_fd=filter_fd, info_fd=info_fd)
        args_fd = _memory_file("arguments", b"\0".join(a.encode() for a in args) + b"\0")
        return [bwrap, "--args", str(args_fd), "--", *inner], uid, (args_fd,)
    args_fd = os.memfd_create("arguments", 0)
    stage = plan_stage(uid, shared, granted, bwrap, args_fd)
    sources = stage.sources
    args = bubblewrap_args(walls, guest_dir=guest, seccomp_fd=filter_fd, info_fd=info_fd, sources=sources)
    os.write(args_fd, b"\0".join(a.encode() for a in args) + b"\0")
    os.lseek(args_fd, 0, os.SEEK_SET)
    plan_fd = _memory_file("plan", stage.plan)
    python = os.path.realpath(sys.executable)
    here = os.path.dirname(os.path.abspath(__file__))
    return [python, "-I", "-S", "-B", "-c", _STAGE_START, here, str(plan_fd), "--", *inner], None, (args_fd, plan_fd)
