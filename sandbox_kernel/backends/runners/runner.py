"""One runner, as the process sees it that started it: gives it runs and follows them."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.backends.runners.run_channel import (
    BegunMarks,
    FilesKept,
    RunChannel,
    RunEnded,
    RunFailed,
    RunLeft,
    RunOrder,
    RunPrinted,
    RunUses,
    StopRun,
)
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.meter.meter import OnUsage
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.model import ExecRequest, ExecResult
from sandbox_kernel.workspace.changes import Keep
from sandbox_kernel.workspace.tree.rooted import Rooted

#: Seconds that a runner has to end its spares and control groups when it is closed.
END_S = 10.0
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])


@dataclass(frozen=True, kw_only=True)
class RunListeners:
    """What the caller of a run wants to hear of it, all on the calling thread, and its stop sign."""

    on_output: OnOutput | None
    on_usage: OnUsage | None
    keep: Keep | None
    stop: Stop | None

    def order(self, setup: bytes, request: ExecRequest) -> RunOrder:
        """Return the order for a request, which asks for what is wanted here and nothing else."""
        return RunOrder(
            setup=setup,
            request=request,
            tells_output=self.on_output is not None,
            tells_usage=self.on_usage is not None,
            keeps_files=self.keep is not None,
        )


class Runner:
    """A process that runs requests for this one. Used from many threads."""

    def __init__(self) -> None:
        #: How many runs it has now; ``Crowd`` counts them.
        self.load = 0
        self._lock = threading.Lock()
        self._free: list[RunChannel] = []
        self._made = 0
        self._control, theirs = socket.socketpair()
        marks = os.memfd_create("sandbox-kernel-begun", os.MFD_CLOEXEC)
        try:
            os.ftruncate(marks, BegunMarks.SIZE)
            self._marks = BegunMarks(marks)
            with theirs:
                self._process = subprocess.Popen(
                    _command(theirs.fileno(), marks),
                    pass_fds=(theirs.fileno(), marks),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        finally:
            os.close(marks)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether the process is gone; it is also reaped then."""
        return self._process.poll() is not None

    def run(self, order: RunOrder, listeners: RunListeners) -> ExecResult | None:
        """Run an order to its end and return the result; None if the runner ended before the run began.

        Raises the error that the backend raised there, and ``BackendUnavailable`` if the runner ends in mid-run.
        """
        try:
            channel = self._take()
        except OSError:
            return None
        try:
            channel.send(order)
            result = _follow(channel, listeners)
        except EOFError:
            channel.close()
            if not self._marks.is_set(channel.number):
                return None
            raise BackendUnavailable(
                f"the process that ran it (runner {self.pid}) ended before the program did, and the sandbox with it; "
                "run it again"
            ) from None
        except BaseException:
            # The caller's own callback failed, or Ctrl-C: return only after the jail is gone.
            _abandon(channel)
            channel.close()
            raise
        with self._lock:
            self._free.append(channel)
        if isinstance(result, RunFailed):
            raise result.error
        return result.result

    def _take(self) -> RunChannel:
        """Return a channel without a run: one of an earlier run, or a new one."""
        with self._lock:
            if self._free:
                channel = self._free.pop()
                self._marks.set(channel.number, False)
                return channel
            number, self._made = self._made, self._made + 1
        if number >= BegunMarks.SIZE:
            raise OSError(errno.EMFILE, "a runner has no channel left")
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [number.to_bytes(2)], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return RunChannel(ours, number)

    def close(self) -> None:
        """Let the process end, with its spares; runs that it has now come to their end. ``wait`` for it afterwards."""
        self._control.close()
        with self._lock:
            for channel in self._free:
                channel.close()
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
        for channel in self._free:
            channel.close()
        self._process.returncode = 0  # nobody waits for it here


def _command(control_fd: int, marks_fd: int) -> list[str]:
    # The same modules as here, and nothing from the folder in which the user happens to be.
    path = [_PACKAGE_ROOT, *(place for place in sys.path if place)]
    program = (
        f"import sys; sys.path[:] = {path!r}\n"
        f"from sandbox_kernel.backends.runners.runner_process import main; main({control_fd}, {marks_fd})"
    )
    return [sys.executable, "-I", "-c", program]


def _follow(channel: RunChannel, listeners: RunListeners) -> RunEnded | RunFailed:
    """Hear what the runner tells of a run until it has ended. Passes on the stop sign."""
    stop = listeners.stop
    while True:
        if stop is not None and _is_stopped(channel, stop):
            channel.send(StopRun())
            stop = None
        message, folder = channel.receive()
        if isinstance(message, RunEnded | RunFailed):
            return message
        _hear(channel, message, folder, listeners)


def _is_stopped(channel: RunChannel, stop: Stop) -> bool:
    """Wait until the channel has a message or the stop sign is set; whether only the latter."""
    either = select.poll()
    either.register(channel, select.POLLIN)
    either.register(stop, select.POLLIN)
    return channel.fileno() not in [fd for fd, _ in either.poll()]


def _hear(channel: RunChannel, message: object, folder: int | None, listeners: RunListeners) -> None:
    if isinstance(message, RunPrinted) and listeners.on_output is not None:
        listeners.on_output(message.stream, message.text)
    elif isinstance(message, RunUses) and listeners.on_usage is not None:
        listeners.on_usage(message.used, message.limit)
    elif isinstance(message, RunLeft) and folder is not None and listeners.keep is not None:
        try:
            with Rooted(folder) as box:
                channel.send(FilesKept(listeners.keep(box, message.result)))
        finally:
            os.close(folder)


def _abandon(channel: RunChannel) -> None:
    with contextlib.suppress(EOFError):
        channel.send(StopRun())
        while True:
            message, folder = channel.receive()
            if folder is not None:
                os.close(folder)
            if isinstance(message, RunLeft):
                channel.send(FilesKept(message.result))
            elif isinstance(message, RunEnded | RunFailed):
                return
