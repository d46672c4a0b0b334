"""Decides which forks of a session are made, where the policy denies starting processes: only those that we ordered.

A session's checkpoints are forks of its worker, and so are looks at variables and saves. The syscall filter of such a
session refuses every way to start a process but a plain fork, and that one waits for the host (seccomp's user
notification). The host says yes only to the main thread of a process that it has just ordered to fork, once for each
order. A fork of a cell, at any time, is refused as before.

What this leaves open: a worker that code of the user has changed runs other code than ours in a fork that we ordered.
Such a process is one of the checkpoints that the session may have anyway, and cannot fork again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import threading
import time

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.gate_messages import receive_with_files
from sandbox_kernel.jail.streams import readable

#: struct seccomp_notif: id, pid, flags, then struct seccomp_data; struct seccomp_notif_resp: id, value, error, flags.
_ASKED, _ANSWER = struct.Struct("=QII64x"), struct.Struct("=QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_GO_ON = 1
#: A refused fork is answered after this time, so that a program that forks in a loop does not keep the host busy.
_PAUSE_S = 0.001
_KIND = "anon_inode:seccomp notify"


def receive_authorizer(channel: socket.socket, patience_s: float) -> ForkAuthorizer | None:
    """Take the listener that a worker sends with the first byte of its channel; None where the kernel gave it none.

    No code of the user has run yet. Raises ``SessionError`` when nothing comes.
    """
    if not readable(channel.fileno(), patience_s):
        raise SessionError(f"the worker did not start within {patience_s:g} s")
    try:
        # With room for the credentials that come first (``SO_PASSCRED``).
        _, found = receive_with_files(channel, 1, 16)
    except OSError as error:
        raise SessionError(f"the worker could not be heard: {error.strerror}") from None
    if len(found) == 1 and os.readlink(f"/proc/self/fd/{found[0]}") == _KIND:
        return ForkAuthorizer(found[0])
    for fd in found:
        os.close(fd)
    return None


class ForkAuthorizer:
    """Answers the forks of one jail on a thread of its own, until every process of the jail has ended."""

    def __init__(self, listener: int) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        #: The processes that may fork once, by their pids inside the jail.
        self._may: set[int] = set()
        threading.Thread(target=self._serve, name="sandbox-forks", daemon=True).start()

    def allow(self, pid: int) -> None:
        """Let a process, by its pid inside the jail, fork once."""
        with self._lock:
            self._may.add(pid)

    def withdraw(self, pid: int) -> None:
        """Take back that right, if it was not used."""
        with self._lock:
            self._may.discard(pid)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        try:
            while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
                asked = bytearray(_ASKED.size)
                try:
                    fcntl.ioctl(self._listener, _RECEIVE, asked)
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.EINTR):
                        continue  # the process ended, or was interrupted, before we asked for its question
                    raise
                number, process, _ = _ASKED.unpack(asked)
                allowed = self._take(process)
                if not allowed:
                    time.sleep(_PAUSE_S)
                answer = _ANSWER.pack(number, 0, 0 if allowed else -errno.EPERM, _GO_ON if allowed else 0)
                with contextlib.suppress(OSError):  # the process is gone
                    fcntl.ioctl(self._listener, _SEND, answer)
        except OSError:
            pass  # without a listener the kernel refuses every fork
        finally:
            os.close(self._listener)

    def _take(self, process: int) -> bool:
        """Use up the right of a process, by the pid that the host sees, to fork; only its main thread has one."""
        inside = _main_thread(process)
        with self._lock:
            allowed = inside in self._may
            self._may.discard(inside)
            return allowed


def _main_thread(thread: int) -> int:
    """Return the pid inside its jail of the process whose main thread this is; 0 for another thread."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{thread}/status") as file:
        found = dict(line.split(":", 1) for line in file)
        return int(found["NSpid"].split()[-1]) if int(found["Tgid"]) == thread else 0
    return 0
