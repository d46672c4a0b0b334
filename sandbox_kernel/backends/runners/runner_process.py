"""The runner itself: takes sockets for runs from the process that started it, and serves each in a thread.

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

from sandbox_kernel.backends.process import ProcessBackend, ProcessSetup
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
)
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.model import ExecResult
from sandbox_kernel.workspace.changes import Keep
from sandbox_kernel.workspace.tree.rooted import Rooted

#: Seconds without a run after which a runner ends.
IDLE_S = 60.0


class _ChannelStop(Stop):
    """The stop sign of a run whose caller is another process: any message on the run's socket, or its end."""

    def __init__(self, channel: RunChannel) -> None:
        super().__init__(-1)
        self._channel = channel

    def fileno(self) -> int:
        return self._channel.fileno()


class _Idle:
    """Counts the runs of this process, and knows when the last one ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._since = time.monotonic()

    def __enter__(self) -> None:
        with self._lock:
            self._runs += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._runs -= 1
            self._since = time.monotonic()

    def seconds(self) -> float:
        """Return how long there was no run."""
        with self._lock:
            return 0.0 if self._runs else time.monotonic() - self._since


def main(control_fd: int, marks_fd: int) -> None:
    """Serve until the other end of the control socket is closed, or nothing came for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the process that started this one
    control, marks, idle = socket.socket(fileno=control_fd), BegunMarks(marks_fd), _Idle()
    threads: list[threading.Thread] = []
    channels: list[RunChannel] = []
    while idle.seconds() < IDLE_S:
        if not select.select([control], [], [], IDLE_S / 4)[0]:
            continue
        number, sockets, _, _ = socket.recv_fds(control, 2, 1)
        if not number or not sockets:
            break
        os.set_inheritable(sockets[0], False)
        channels.append(RunChannel(socket.socket(fileno=sockets[0]), int.from_bytes(number)))
        threads.append(threading.Thread(target=_serve, args=(channels[-1], marks, idle), daemon=True))
        threads[-1].start()
    for channel in channels:
        channel.shut()
    for thread in threads:
        thread.join()


def _serve(channel: RunChannel, marks: BegunMarks, idle: _Idle) -> None:
    """Run what comes over one channel, one run after the other, until its other end is gone."""
    with channel:
        try:
            while True:
                order, _ = channel.receive()
                if isinstance(order, RunOrder):  # a stop sign that came after its run means nothing
                    with idle:
                        marks.set(channel.number, True)
                        channel.send(_answer(channel, order))
        except EOFError:
            pass  # nobody waits for the answer any more


def _answer(channel: RunChannel, order: RunOrder) -> RunEnded | RunFailed:
    try:
        return RunEnded(
            _backend(order.setup).run(
                order.request,
                on_output=(lambda stream, text: channel.send(RunPrinted(stream, text))) if order.tells_output else None,
                on_usage=(lambda used, limit: channel.send(RunUses(used, limit))) if order.tells_usage else None,
                keep=_keep(channel) if order.keeps_files else None,
                stop=_ChannelStop(channel),
            )
        )
    except EOFError:
        raise
    except SandboxError as error:
        return RunFailed(error)
    except Exception as error:  # of our own making: the caller sees it as an error, not as a silence
        return RunFailed(BackendUnavailable(f"a runner failed: {type(error).__name__}: {error}; run it again"))


def _keep(channel: RunChannel) -> Keep:
    def keep(box: Rooted, result: ExecResult) -> ExecResult:
        channel.send(RunLeft(result), folder=box.fileno())
        while True:
            message, _ = channel.receive()
            if isinstance(message, FilesKept):
                return message.result

    return keep


@functools.lru_cache(maxsize=32)
def _backend(setup: bytes) -> ProcessBackend:
    found: ProcessSetup = pickle.loads(setup)  # noqa: S301 (a process of ours wrote it)
    return found.backend()
