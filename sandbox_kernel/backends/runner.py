"""One runner, as the process sees it that started it: gives it runs and follows them.

Each run has a connection of its own to the runner. Over it go an ``Order``, then what happens, last an ``ExecResult``
or an exception; any message to the runner while it runs a program stops that. Both ends are processes of ours: no jail
ever holds such a connection, and what a program wrote is only text inside these values. ``runner_process.py`` is the
other end.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.model import ExecRequest, ExecResult, FsChange
from sandbox_kernel.workspace.tree.rooted import Rooted

#: Seconds that a runner has to end its spares and control groups when it is closed.
END_S = 10.0
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


class Order(NamedTuple):
    """To the runner, first: what to run. ``setup`` is a pickled ``ProcessSetup``: equal ones are found quickly."""

    setup: bytes
    request: ExecRequest
    tells_output: bool
    tells_usage: bool
    keeps_files: bool
    chosen: str


class Printed(NamedTuple):
    """From the runner: output of the program."""

    stream: str
    text: str


class Uses(NamedTuple):
    """From the runner: memory in use and its limit, in bytes."""

    used: int
    limit: int


class LeftFiles(NamedTuple):
    """From the runner, before the descriptor of the work folder: its files can be taken. Answered by notes."""

    changes: tuple[FsChange, ...]


class _Gone(Exception):
    """The runner closed the connection."""


class Runner:
    """A process that runs requests for this one. Used from many threads."""

    def __init__(self) -> None:
        #: How many runs it has now; ``Crowd`` counts them.
        self.load = 0
        self._lock = threading.Lock()
        self._free: list[Connection] = []
        self._closed = False
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                _command(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether the process is gone; it is also reaped then."""
        return self._process.poll() is not None

    def run(self, setup: bytes, request: ExecRequest, context: RunContext) -> ExecResult | None:
        """Run a request to its end and return the result; None if the runner ended before it could begin.

        Raises the error that the backend raised there, and ``BackendUnavailable`` if the runner ends in mid-run.
        """
        tells_output, tells_usage = context.on_output is not None, context.on_usage is not None
        order = Order(setup, request, tells_output, tells_usage, context.keep is not None, context.chosen)
        try:
            connection = self._take()
        except OSError:
            return None
        try:
            connection.send(order)
        except OSError:
            connection.close()
            return None
        try:
            ended = _follow(connection, context)
        except _Gone:
            connection.close()
            raise BackendUnavailable(
                f"the process that ran it (runner {self.pid}) ended before the program did, and the sandbox with it; "
                "run it again"
            ) from None
        except BaseException:
            # The caller's own callback failed, or Ctrl-C: return only after the jail is gone.
            _abandon(connection)
            connection.close()
            raise
        with self._lock:
            if self._closed:
                connection.close()
            else:
                self._free.append(connection)
        if isinstance(ended, Exception):
            raise ended
        return ended

    def _take(self) -> Connection:
        """Return a connection without a run: that of an earlier run, or a new one."""
        with self._lock:
            if self._free:
                return self._free.pop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            return Connection(ours.detach())

    def close(self) -> None:
        """Let the process end, with its spares; runs that it has now come to their end. ``wait`` for it afterwards."""
        self._control.close()
        with self._lock:
            self._closed = True
            for connection in self._free:
                connection.close()
            self._free.clear()

    def wait(self) -> None:
        """Wait until the process has ended; it is killed if it does not."""
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child the process belongs to the parent: close the descriptors alone."""
        self._control.close()
        for connection in self._free:
            connection.close()
        self._process.returncode = 0  # nobody waits for it here


def _command(control_fd: int) -> list[str]:
    # The same modules as here, and nothing from the folder in which the user happens to be.
    path = [_PACKAGE_ROOT, *(place for place in sys.path if place)]
    program = (
        f"import sys; sys.path[:] = {path!r}\n"
        f"from sandbox_kernel.backends.runner_process import main; main({control_fd})"
    )
    return [sys.executable, "-I", "-c", program]


def _follow(connection: Connection, context: RunContext) -> ExecResult | Exception | None:
    """Hear what the runner tells of a run until it has ended. Passes on the stop sign."""
    stop = context.stop
    while True:
        if stop is not None and _is_stopped(connection, stop):
            _send(connection, None)
            stop = None
        message = _receive(connection)
        if isinstance(message, Printed) and context.on_output is not None:
            context.on_output(message.stream, message.text)
        elif isinstance(message, Uses) and context.on_usage is not None:
            context.on_usage(message.used, message.limit)
        elif isinstance(message, LeftFiles) and context.keep is not None:
            with Rooted(folder := _receive_folder(connection)) as box:
                try:
                    _send(connection, list(context.keep(box, message.changes)))
                finally:
                    os.close(folder)
        elif message is None or isinstance(message, ExecResult | Exception):
            return message


def _is_stopped(connection: Connection, stop: Stop) -> bool:
    """Wait until the connection has a message or the stop sign is set; whether only the latter."""
    either = select.poll()
    either.register(connection, select.POLLIN)
    either.register(stop, select.POLLIN)
    return connection.fileno() not in [fd for fd, _ in either.poll()]


def _send(connection: Connection, message: object) -> None:
    try:
        connection.send(message)
    except ConnectionError:
        raise _Gone from None


def _receive(connection: Connection) -> object:
    try:
        return connection.recv()
    except (EOFError, ConnectionError):
        raise _Gone from None


def _receive_folder(connection: Connection) -> int:
    try:
        folder: int = reduction.recv_handle(connection)
    except (EOFError, ConnectionError):
        raise _Gone from None
    os.set_inheritable(folder, False)
    return folder


def _abandon(connection: Connection) -> None:
    """Stop a run and wait for its end, without its files."""
    with contextlib.suppress(_Gone):
        _send(connection, None)
        while not isinstance(message := _receive(connection), ExecResult | Exception):
            if isinstance(message, LeftFiles):
                os.close(_receive_folder(connection))
                _send(connection, [])
