"""Starts a Jupyter kernel, connects to its ports and passes the connected sockets to the host.

The jail has a network of its own, which the host cannot enter: so this program connects, from inside, and the host gets
the open sockets. Without such a network (Landlock) the kernel listens on unix sockets, this program tells the host
which are there, and the host connects. It also sends the kernel signals when the host asks, and ends with the kernel's
exit code.

Trust: the kernel has our uid and can kill us, which ends the jail. It does not have our channel to the host.
Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

from ..gate import lockdown
from ..gate.steps import REPORT_FD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

#: How long to wait before the next attempt to connect to a port that the kernel has not opened yet.
RETRY_S = 0.005
#: The host's order to interrupt the kernel.
INTERRUPT = b"i"
#: The host's answers to an offered unix socket: it is connected, or nothing listens there yet.
YES, NO = b"y", b"n"


def start_kernel(argv: List[str], filter_path: str) -> int:
    """Start the kernel in a process group of its own and return its pid."""
    child = os.fork()
    if child:
        return child
    try:
        os.close(REPORT_FD)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        lockdown.set_dumpable(True)
        if filter_path:
            with open(filter_path, "rb") as file:
                lockdown.load_seccomp(file.read())
        # Kernels end when this process is gone.
        os.execvpe(argv[0], argv, {**os.environ, "JPY_PARENT_PID": str(os.getppid())})
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def offer(channel: socket.socket, missing: Dict[int, int], prefix: str) -> bool:
    """Tell the host of one unix socket that is there and that it has not connected to; returns whether there is one.

    The host connects by itself, because nobody in this jail may connect, and answers whether it could.
    """
    for number, port in missing.items():
        if os.path.exists(f"{prefix}-{port}"):
            channel.send(bytes([number]))
            missing[number] = missing.pop(number)  # last: the next offer is another one
            return True
    return False


def exited(pid: int) -> int | None:
    """Return the exit code of the kernel, or None while it runs. A signal gives 128 and its number."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return None
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def main(argv: List[str]) -> int:
    """Run a kernel to its end.

    ``argv`` is a name for this program, the ports, the path of unix sockets up to their number (empty where the jail
    has a network of its own), the path of a filter, and the command.
    """
    lockdown.set_dumpable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=REPORT_FD)
    missing = {number: int(port) for number, port in enumerate(argv[1].split(","))}
    prefix, offered = argv[2], False
    kernel = start_kernel(argv[4:], argv[3])
    kernel_fd = lockdown.pidfd_open(kernel)
    while True:
        ready, _, _ = select.select([channel.fileno(), kernel_fd], [], [], RETRY_S if missing and not offered else None)
        if channel.fileno() in ready:
            order = channel.recv(64)
            if not order:
                return 1
            if INTERRUPT in order:
                os.killpg(kernel, signal.SIGINT)
            if YES in order:
                missing.popitem()
            if YES in order or NO in order:
                offered = False
        if kernel_fd in ready:
            code = exited(kernel)
            if code is not None:
                return code
        if missing and prefix:
            offered = offered or offer(channel, missing, prefix)
        elif missing:
            for number, port in list(missing.items()):
                with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
                    if sock.connect_ex(("127.0.0.1", port)) == 0:
                        socket.send_fds(channel, [bytes([number])], [sock.fileno()])
                        del missing[number]
