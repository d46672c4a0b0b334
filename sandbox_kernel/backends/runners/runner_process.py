"""The runner itself: takes the sockets of runs from the process that started it, and runs each in a thread.

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
from concurrent.futures import Future, ThreadPoolExecutor

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.backends.runners.run_channel import (
    FilesKept,
    ProcessSetup,
    RunBegins,
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
from sandbox_kernel.workspace.outcome import Keep
from sandbox_kernel.workspace.tree.rooted import Rooted

#: Most runs at once in one runner; more wait. The caller spreads them over all runners.
MOST_RUNS = 64
#: Seconds without a run after which a runner ends.
IDLE_S = 60.0


class _ChannelStop(Stop):
    """The stop sign of a run whose caller is another process: any message on the run's socket, or its end."""

    def __init__(self, channel: RunChannel) -> None:
        super().__init__()
        self.close()
        self._channel = channel

    def fileno(self) -> int:
        return self._channel.fileno()


def main(control_fd: int) -> None:
    """Serve until the other end of the control socket is closed, or nothing came for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the process that started this one
    control = socket.socket(fileno=control_fd)
    runs: set[Future[None]] = set()
    with ThreadPoolExecutor(MOST_RUNS, thread_name_prefix="sandbox-run") as threads:
        while True:
            ready, _, _ = select.select([control], [], [], IDLE_S)
            runs = {run for run in runs if not run.done()}
            if ready:
                order, sockets, _, _ = socket.recv_fds(control, 1, 1)
                if not order or not sockets:
                    return
                os.set_inheritable(sockets[0], False)
                runs.add(threads.submit(_serve, RunChannel(socket.socket(fileno=sockets[0]))))
            elif not runs:
                return


def _serve(channel: RunChannel) -> None:
    with channel:
        try:
            order, _ = channel.receive()
            if isinstance(order, RunOrder):
                channel.send(_answer(channel, order))
        except EOFError:
            pass  # nobody waits for the answer any more


def _answer(channel: RunChannel, order: RunOrder) -> RunEnded | RunFailed:
    try:
        backend = _backend(order.setup)
        channel.send(RunBegins())
        return RunEnded(
            backend.run(
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
    return ProcessBackend(found.config, enforcer=found.enforcer, policy=found.policy)
