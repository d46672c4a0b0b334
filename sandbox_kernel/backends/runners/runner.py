"""One runner, as the process sees it that started it: gives it runs and follows them."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.backends.runners.run_channel import (
    FilesKept,
    RunBegins,
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
from sandbox_kernel.workspace.outcome import Keep
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
        self._control, theirs = socket.socketpair()
        #: How many runs it has now; ``Crowd`` counts them.
        self.load = 0
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

    def run(self, order: RunOrder, listeners: RunListeners) -> ExecResult | None:
        """Run an order to its end and return the result; None if the runner ended before the run began.

        Raises the error that the backend raised there, and ``BackendUnavailable`` if the runner ends in mid-run.
        """
        ours, theirs = socket.socketpair()
        with RunChannel(ours) as channel:
            try:
                with theirs:
                    socket.send_fds(self._control, [b"r"], [theirs.fileno()])
                channel.send(order)
            except (OSError, EOFError):
                return None
            begun = False
            try:
                while True:
                    _wait(channel, listeners.stop)
                    message, folder = channel.receive()
                    if isinstance(message, RunBegins):
                        begun = True
                    elif isinstance(message, RunEnded):
                        return message.result
                    elif isinstance(message, RunFailed):
                        raise message.error
                    else:
                        _hear(channel, message, folder, listeners)
            except EOFError:
                if not begun:
                    return None
                raise BackendUnavailable(
                    f"the process that ran it (runner {self.pid}) ended before the program did, and the sandbox with "
                    "it; run it again"
                ) from None
            except BaseException:
                # The caller's own callback failed, or Ctrl-C: return only after the jail is gone.
                _abandon(channel)
                raise

    def close(self) -> None:
        """Let the process end, with its spares. ``wait`` for it afterwards."""
        self._control.close()

    def wait(self) -> None:
        """Wait until the process has ended; it is killed if it does not."""
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child the process belongs to the parent: close the socket alone."""
        self._control.close()
        self._process.returncode = 0  # nobody waits for it here


def _command(control_fd: int) -> list[str]:
    # The same modules as here, and nothing from the folder in which the user happens to be.
    path = [_PACKAGE_ROOT, *(place for place in sys.path if place)]
    program = (
        f"import sys; sys.path[:] = {path!r}\n"
        f"from sandbox_kernel.backends.runners.runner_process import main; main({control_fd})"
    )
    return [sys.executable, "-I", "-c", program]


def _wait(channel: RunChannel, stop: Stop | None) -> None:
    """Wait until the channel has a message. Passes on the stop sign, once."""
    if stop is None:
        return
    either = select.poll()
    either.register(channel, select.POLLIN)
    either.register(stop, select.POLLIN)
    ready = [fd for fd, _ in either.poll()]
    if channel.fileno() not in ready:
        channel.send(StopRun())
        either.unregister(stop)
        either.poll()


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
