"""The program that Jupyter starts instead of a kernel: starts the kernel in a jail and relays its channels.

The jail ends with it. A provisioner would read what a hostile kernel sends inside the server, and VS Code ignores it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.wrapped.inner_kernel import InnerKernel
from sandbox_kernel.wrapped.wrap_options import INNER_ENV, from_arguments

if TYPE_CHECKING:
    from sandbox_kernel.wrapped.relaying.outside import Outside
    from sandbox_kernel.wrapped.relaying.relay import Relay

#: The most memory of this process. What the kernel sends is bounded already; this holds if a bound is missing.
_OWN_MEMORY = 3 << 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a kernel to its end and return the exit code of this process."""
    try:
        variables = dict(os.environ)
        os.environ.pop(INNER_ENV, None)
        connection_file, options = from_arguments(sys.argv[1:] if arguments is None else arguments, variables)
    except SandboxError as error:
        _say(str(error))
        return 2
    wanted = _Wanted()
    try:
        kernel = InnerKernel(options, options.sandbox_policy())
        # Only the soft limit: processes of the jail get limits of their own.
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = _OWN_MEMORY if hard == resource.RLIM_INFINITY else min(_OWN_MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
        wanted.kernel = kernel
        way_out = kernel.start()
    except (SandboxError, OSError) as error:
        return _refuse(connection_file, str(error), wanted)
    # Imported while the kernel starts.
    from sandbox_kernel.wrapped.relaying.relay import Relay

    if (outside := _outside(connection_file)) is None:
        return 2
    asked = None
    if kernel.folder is not None:
        from sandbox_kernel.wrapped.folder_changes import AskedServer

        try:
            asked = AskedServer(kernel.folder.place, kernel.folder.answer)
        except OSError as error:
            _say(f"sandbox-kernel changes cannot ask this kernel while it lives: {error}")
    relay = Relay(outside, kernel, way_out)
    try:
        relay.run(wanted.still)
    finally:
        outside.close()
        way_out.close()
        kernel.stop()
        if asked is not None:
            asked.close()
        kernel.join()
        relay.dropped["not read by a front end"] += outside.waiting.dropped
        if options.record:  # whatever ended the relay
            _record(kernel, relay)
    if sum(relay.dropped.values()):
        counts = ", ".join(f"{count} {reason}" for reason, count in relay.dropped.items() if count)
        _say(f"messages of the kernel that were dropped: {counts}")
    end = kernel.end
    if end.failure:
        _say(end.failure)
    if not relay.came_up and wanted.still():
        return _refuse(connection_file, relay.why_ended, wanted, kernel.last_words)
    return end.exit_code if end.exit_code is not None and end.exit_code >= 0 else 1


def _refuse(connection_file: str, why: str, wanted: _Wanted, last_words: str = "") -> int:
    """Let every cell say why the kernel did not come up, until the front end ends it."""
    from sandbox_kernel.wrapped import kernel_words
    from sandbox_kernel.wrapped.relaying.outside import refuse

    error = kernel_words.no_start(why, last_words)
    _say(str(error["evalue"]))
    if (outside := _outside(connection_file)) is not None:
        with contextlib.closing(outside):
            refuse(outside, error, wanted.still)
    return 2


def _outside(connection_file: str) -> Outside | None:
    """Bind the sockets of the front end; None, with a line in the log, when that is not possible."""
    from zmq import ZMQError

    from sandbox_kernel.wrapped.relaying.outside import ConnectionFile, Outside

    try:
        return Outside(ConnectionFile.read(connection_file))
    except (SandboxError, OSError, ZMQError) as error:  # a port may have been taken meanwhile
        _say(str(error))
        return None


def _record(kernel: InnerKernel, relay: Relay) -> None:
    from sandbox_kernel.wrapped import record

    made, verdict = relay.recorder.record, kernel.end.verdict
    made.limit = verdict.limit.value if verdict is not None and verdict.limit is not None else ""
    made.dropped = sum(relay.dropped.values())
    with contextlib.suppress(OSError):  # the folder was removed
        made.folder = os.getcwd()
    try:
        record.append(kernel.options.record, made)
    except SandboxError as error:
        _say(str(error))


class _Wanted:
    """Whether a front end still needs the kernel: no signal to end came, and the process that started us lives."""

    def __init__(self) -> None:
        self._ended = False
        #: The kernel that signals for this process are meant for; None before it is there.
        self.kernel: InnerKernel | None = None
        self._parent = os.getppid() if os.environ.get("JPY_PARENT_PID") else None
        signal.signal(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)

    def still(self) -> bool:
        """Return False when the kernel should end."""
        return not self._ended and (self._parent is None or os.getppid() == self._parent)

    def _interrupt(self, number: int, frame: object) -> None:
        if self.kernel is not None:
            self.kernel.interrupt()

    def _end(self, number: int, frame: object) -> None:
        self._ended = True


def _say(text: str) -> None:
    sys.stderr.write(f"sandbox-kernel: {text}\n")
