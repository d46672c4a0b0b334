"""The runner itself: takes connections for runs from the process that started it, and serves each in a thread.

It has a pool, templates and control groups of its own. It ends when that process ends or closes the control socket, and
after a while without a run.
"""

from __future__ import annotations

import functools
import os
import pickle
import select
import signal
import socket
import threading
import time
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection

from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.process import ProcessBackend, ProcessSetup
from sandbox_kernel.backends.runner import LeftFiles, Order, Printed, Uses
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.model import ExecResult, FsChange, Note
from sandbox_kernel.workspace.changes import Keep
from sandbox_kernel.workspace.tree.rooted import Rooted

#: Seconds without a run after which a runner ends.
IDLE_S = 60.0


class _ConnectionStop(Stop):
    """The stop sign of a run whose caller is another process: any message on the run's connection, or its end."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(-1)
        self._connection = connection

    def fileno(self) -> int:
        return self._connection.fileno()


class _Runs:
    """Counts the runs of this process. None begins after ``end_when_idle`` has returned True."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._ended = False
        self._since = time.monotonic()

    def begin(self) -> bool:
        """Count one more run; False when this process is about to end."""
        with self._lock:
            self._count += not self._ended
            return not self._ended

    def done(self) -> None:
        """A run has ended."""
        with self._lock:
            self._count -= 1
            self._since = time.monotonic()

    def end_when_idle(self) -> bool:
        """Whether there was no run for so long that this process ends."""
        with self._lock:
            self._ended = self._count == 0 and time.monotonic() - self._since >= IDLE_S
            return self._ended


def main(control_fd: int) -> None:
    """Serve until the other end of the control socket is closed, or nothing came for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the process that started this one
    control, runs = socket.socket(fileno=control_fd), _Runs()
    threads: list[threading.Thread] = []
    while not runs.end_when_idle():
        if not select.select([control], [], [], IDLE_S / 4)[0]:
            continue
        said, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if not said or not sockets:
            # That process closes each connection when it has no run.
            for thread in threads:
                thread.join()
            return
        os.set_inheritable(sockets[0], False)
        threads.append(threading.Thread(target=_serve, args=(Connection(sockets[0]), runs), daemon=True))
        threads[-1].start()


def _serve(connection: Connection, runs: _Runs) -> None:
    """Run what comes over one connection, one run after the other, until its other end is gone."""
    with connection:
        try:
            while True:
                order = connection.recv()
                if not isinstance(order, Order):
                    continue  # a stop sign that came after its run means nothing
                if not runs.begin():
                    connection.send(None)
                    return
                try:
                    connection.send(_answer(connection, order))
                finally:
                    runs.done()
        except (EOFError, ConnectionError):
            pass  # nobody waits for the answer any more


def _answer(connection: Connection, order: Order) -> ExecResult | Exception:
    context = RunContext(
        on_output=(lambda stream, text: connection.send(Printed(stream, text))) if order.tells_output else None,
        on_usage=(lambda used, limit: connection.send(Uses(used, limit))) if order.tells_usage else None,
        keep=_keep(connection) if order.keeps_files else None,
        stop=_ConnectionStop(connection),
        chosen=order.chosen,
    )
    try:
        return _backend(order.setup).run(order.request, context)
    except (EOFError, ConnectionError):
        raise
    except SandboxError as error:
        return error
    except Exception as error:  # of our own making: the caller sees it as an error, not as a silence
        return BackendUnavailable(f"a runner failed: {type(error).__name__}: {error}; run it again")


def _keep(connection: Connection) -> Keep:
    def keep(box: Rooted, changes: Sequence[FsChange]) -> Sequence[Note]:
        connection.send(LeftFiles(tuple(changes)))
        reduction.send_handle(connection, box.fileno(), os.getppid())
        while (answer := connection.recv()) is None:
            continue  # a stop sign that came too late
        told: Sequence[Note] = answer
        return told

    return keep


@functools.lru_cache(maxsize=32)
def _backend(setup: bytes) -> ProcessBackend:
    found: ProcessSetup = pickle.loads(setup)  # noqa: S301 (a process of ours wrote it)
    return found.backend()
