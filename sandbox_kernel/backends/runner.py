"""A runner: a process that runs requests for this one, with a pool, templates and control groups of its own.

``Runner`` is its end in the process that started it, ``main`` runs in the runner. Each run has a connection of its own.
Over it go an ``Order``, then calls of the caller's callbacks (``Told``), last an ``ExecResult`` or an error; None to
the runner stops the program. Both ends are processes of ours: no jail ever holds such a connection, and what a program
wrote is only text inside these values.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.model import ExecRequest, ExecResult, FsChange, Note
from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.workspace.tree.rooted import Rooted

if TYPE_CHECKING:
    from sandbox_kernel.backends.process import ProcessBackend, ProcessSetup

#: Seconds that a runner has to end its spares and control groups when it is closed.
END_S = 10.0
#: Seconds without a run after which a runner ends.
IDLE_S = 60.0


class Order(NamedTuple):
    """To the runner: what to run, the callbacks that the caller has, and a pickled ``ProcessSetup``."""

    setup: bytes
    request: ExecRequest
    callbacks: frozenset[str]
    chosen: str


class Told(NamedTuple):
    """From the runner: a call of a callback. After ``keep`` comes the work folder; its notes are sent back."""

    callback: str
    given: tuple[object, ...]


class _Gone(Exception):
    """The runner closed the connection."""


class Runner:
    """A process that runs requests for this one. Used from many threads."""

    def __init__(self) -> None:
        #: How many runs it has now; ``Crowd`` counts them.
        self.load = 0
        self._control, theirs = socket.socketpair()
        # The same modules as here, and nothing from the folder in which the user happens to be.
        path = [str(Path(__file__).resolve().parents[2]), *(place for place in sys.path if place)]
        program = (
            f"import sys; sys.path[:] = {path!r}\nfrom sandbox_kernel.backends.runner import main; "
            f"main({theirs.fileno()})"
        )
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", program],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def has_ended(self) -> bool:
        """Whether the process is gone; it is also reaped then."""
        return self._process.poll() is not None

    def run(self, setup: bytes, request: ExecRequest, context: RunContext) -> ExecResult | None:
        """Run a request to its end; None if the runner ended before it began. Raises what the backend raised there."""
        heard = frozenset(name for name in ("on_output", "on_usage", "keep") if getattr(context, name) is not None)
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            return None
        with theirs, Connection(ours.detach()) as connection:
            try:
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
                theirs.close()
                connection.send(Order(setup, request, heard, context.chosen))
            except OSError:
                return None
            try:
                ended = _follow(connection, context)
            except _Gone:
                raise BackendUnavailable(
                    f"the process that ran it (runner {self.pid}) ended before the program did, and the sandbox with "
                    "it; run it again"
                ) from None
            except BaseException:
                # The caller's own callback failed, or Ctrl-C: return only after the jail is gone.
                # Not None: a runner that waits for the notes of ``keep`` takes that for a stop sign that came too late.
                with contextlib.suppress(_Gone):
                    _send(connection, [])
                    _follow(connection, RunContext())
                raise
        if isinstance(ended, Exception):
            raise ended
        return ended

    def close(self) -> None:
        """Let the process end, with its spares; runs that it has now come to their end. ``wait`` for it afterwards."""
        self._control.close()

    def wait(self) -> None:
        """Wait until the process has ended; it is killed if it does not."""
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child the process belongs to the parent: close the descriptors alone."""
        self.close()
        self._process.returncode = 0  # nobody waits for it here


def _follow(connection: Connection, context: RunContext) -> ExecResult | Exception:
    """Hear what the runner tells of a run until it has ended. Passes on the stop sign."""
    stop = context.stop
    while True:
        if stop is not None:
            either = select.poll()
            either.register(connection, select.POLLIN)
            either.register(stop, select.POLLIN)
            if connection.fileno() not in [fd for fd, _ in either.poll()]:
                _send(connection, None)
                stop = None
        try:
            message = connection.recv()
            folder = reduction.recv_handle(connection) if isinstance(message, Told) and message[0] == "keep" else -1
        except (EOFError, ConnectionError):
            raise _Gone from None
        if not isinstance(message, Told):
            ended: ExecResult | Exception = message
            return ended
        callback = getattr(context, message.callback)
        if folder < 0:
            if callback is not None:
                callback(*message.given)
            continue
        os.set_inheritable(folder, False)
        with closed_after(folder), Rooted(folder) as box:
            _send(connection, [] if callback is None else list(callback(box, *message.given)))


def _send(connection: Connection, message: object) -> None:
    with contextlib.suppress(ConnectionError):  # the next message from there is its last one, or tells that it is gone
        connection.send(message)


def main(control_fd: int) -> None:
    """Serve as a runner until the other end of the control socket is closed, or there was no run for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the process that started this one
    control = socket.socket(fileno=control_fd)
    threads: list[threading.Thread] = []
    while True:
        idle = not readable(control.fileno(), IDLE_S)
        threads = [thread for thread in threads if thread.is_alive()]
        if idle and threads:
            continue
        if idle:
            # From here on the other end cannot send: it does its runs itself. One that was sent before is still read.
            control.shutdown(socket.SHUT_RDWR)
        said, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if not said or not sockets:
            break
        os.set_inheritable(sockets[0], False)
        threads.append(threading.Thread(target=_serve, args=(Connection(sockets[0]),), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _serve(connection: Connection) -> None:
    with connection, contextlib.suppress(EOFError, ConnectionError):
        connection.send(_answer(connection, connection.recv()))


def _answer(connection: Connection, order: Order) -> ExecResult | Exception:
    def told(name: str) -> Callable[..., None] | None:
        return (lambda *given: connection.send(Told(name, given))) if name in order.callbacks else None

    def keep(box: Rooted, changes: Sequence[FsChange]) -> Sequence[Note]:
        connection.send(Told("keep", (tuple(changes),)))
        reduction.send_handle(connection, box.fileno(), os.getppid())
        while (answer := connection.recv()) is None:
            continue  # a stop sign that came too late
        notes: Sequence[Note] = answer
        return notes

    context = RunContext(
        on_output=told("on_output"),
        on_usage=told("on_usage"),
        keep=keep if "keep" in order.callbacks else None,
        stop=connection,  # any message while the program runs, and the end of the caller
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


@functools.lru_cache(maxsize=32)
def _backend(setup: bytes) -> ProcessBackend:
    found: ProcessSetup = pickle.loads(setup)  # noqa: S301 (a process of ours wrote it)
    return found.backend()
